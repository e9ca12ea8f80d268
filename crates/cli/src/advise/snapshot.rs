//! `--snapshot`: ways to bring the memory of a restored process back.
//!
//! A snapshot holds all private pages that a recording has touched, in the order of addresses. The
//! restored process touches those of them that the recording's first seconds touch. Each way says
//! how many faults stop the process, how many bytes are read, and how much is resident in each
//! clone: pages that it has only read are the snapshot's own, and all clones share them; a page
//! that it writes becomes its own.
//!
//! Recorded sets come from another recording of the same program, where there is one: else the set
//! is exactly what is touched, which is the best case.

use std::collections::{BTreeMap, HashSet};

use comfy_table::Table;

use super::show::{plain, to_the_right};
use crate::size::Size;
use crate::tape::{Access, Event, Tape};

/// A page of a process.
type Page = (u32, u64);

/// The pages of private memory in the order of their first touch, and whether it writes.
struct Touched {
    order: Vec<(Page, bool)>,
    /// How many of them the first seconds touch.
    early: usize,
}

/// The result of one way.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Cost {
    faults: u64,
    /// Pages that are read, before the start and in all.
    before: u64,
    read: u64,
    /// Resident pages of a clone, and those that all clones share.
    resident: u64,
    shared: u64,
}

/// A way to bring pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// Aligned blocks of this order around each fault; a write copies one page.
    Window(u8),
    /// Aligned blocks of this order; a write copies all of the block.
    Folio(u8),
    /// All of another run's pages before the start, then pages one by one.
    Set,
    /// All of the snapshot before the start.
    All,
}

/// The table for all ways; `other` is another recording of the same program.
pub(super) fn page(tape: &Tape, other: Option<&Tape>, seconds: f64) -> String {
    let touched = Touched::of(tape, seconds);
    let set: HashSet<Page> = match other {
        Some(other) => Touched::of(other, seconds).early().collect(),
        None => touched.early().collect(),
    };
    let mut ways: Vec<(String, Way)> = vec![("one by one".to_owned(), Way::Window(0))];
    let name = |order: u8| Size(tape.page << order).to_string();
    ways.extend(
        [2, 4, 6, 9].map(|order| (format!("windows of {}", name(order)), Way::Window(order))),
    );
    ways.extend(
        [2, 4, 6, 9].map(|order| (format!("folios of {}", name(order)), Way::Folio(order))),
    );
    ways.push(("a recorded set before the start".to_owned(), Way::Set));
    ways.push(("all before the start".to_owned(), Way::All));
    let rows = ways.into_iter().map(|(name, way)| (name, touched.cost(way, &set)));
    let table = table(rows, tape.page);
    let source =
        if other.is_some() { "another recording" } else { "this recording: the best case" };
    format!(
        "{table}\nThe snapshot has {} pages; {} of them are touched in the first {seconds} s. The \
         recorded set is of {source}.\n",
        touched.order.len(),
        touched.early
    )
}

fn table(rows: impl Iterator<Item = (String, Cost)>, page: u64) -> Table {
    let mut table = plain();
    table.set_header([
        "way",
        "faults",
        "KiB before the start",
        "KiB read",
        "KiB in each clone",
        "shared by all",
    ]);
    let kib = |pages: u64| (pages * page / 1024).to_string();
    for (name, cost) in rows {
        table.add_row([
            name,
            cost.faults.to_string(),
            kib(cost.before),
            kib(cost.read),
            kib(cost.resident - cost.shared),
            kib(cost.shared),
        ]);
    }
    to_the_right(table)
}

impl Touched {
    /// The pages without a file behind them: touches without a `Held` behind them that adds pages.
    fn of(tape: &Tape, seconds: f64) -> Touched {
        let mut writes: BTreeMap<Page, usize> = BTreeMap::new();
        let mut touched = Touched { order: Vec::new(), early: 0 };
        let (mut space, mut ms, mut began) = (0, 0, false);
        let mut last = None;
        for event in tape.events() {
            match event {
                Event::Space(number) => space = number,
                Event::Begin => began = true,
                Event::Time(passed) => ms += passed,
                Event::Touch { page, access } => {
                    let write = access == Access::Write;
                    let at = *writes.entry((space, page)).or_insert(touched.order.len());
                    if at == touched.order.len() {
                        touched.order.push(((space, page), write));
                        last = Some((space, page));
                    } else {
                        touched.order[at].1 |= write;
                    }
                }
                Event::Held(pages) if pages > 0 => {
                    // It was a page of a file.
                    if let Some(page) = last.take() {
                        writes.remove(&page);
                        touched.order.pop();
                    }
                }
                _ => {}
            }
            if began && ms as f64 <= seconds * 1e3 {
                touched.early = touched.order.len();
            }
        }
        touched
    }

    fn early(&self) -> impl Iterator<Item = Page> + '_ {
        self.order[..self.early].iter().map(|(page, _)| *page)
    }

    /// The cost of one way; `set` is what a recorded set brings.
    fn cost(&self, way: Way, set: &HashSet<Page>) -> Cost {
        let all: HashSet<Page> = self.order.iter().map(|(page, _)| *page).collect();
        let mut cost = Cost::default();
        let mut here: HashSet<Page> = match way {
            Way::All => all.clone(),
            Way::Set => set.intersection(&all).copied().collect(),
            Way::Window(_) | Way::Folio(_) => HashSet::new(),
        };
        (cost.before, cost.read) = (here.len() as u64, here.len() as u64);
        let mut own: HashSet<Page> = HashSet::new();
        for (page, write) in &self.order[..self.early] {
            let brought = !here.contains(page);
            if brought {
                let order = way.order();
                let block = block(*page, order, &all);
                cost.read += block.iter().filter(|page| here.insert(**page)).count() as u64;
            }
            let copied = if *write && !own.contains(page) {
                own.extend(block(*page, way.copies(), &all));
                true
            } else {
                false
            };
            // A write that brings a page copies it in the same fault.
            cost.faults += u64::from(brought || copied);
        }
        cost.resident = here.union(&own).count() as u64;
        cost.shared = here.difference(&own).count() as u64;
        cost
    }
}

impl Way {
    /// The order in which pages come.
    fn order(self) -> u8 {
        match self {
            Way::Window(order) | Way::Folio(order) => order,
            Way::Set | Way::All => 0,
        }
    }

    /// The order in which a write copies.
    fn copies(self) -> u8 {
        match self {
            Way::Folio(order) => order,
            Way::Window(_) | Way::Set | Way::All => 0,
        }
    }
}

/// The pages of `all` in the aligned block around `page`.
fn block((space, page): Page, order: u8, all: &HashSet<Page>) -> Vec<Page> {
    let first = page >> order << order;
    let pages = (first..first + (1 << order)).map(|page| (space, page));
    pages.filter(|page| all.contains(page)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::{Area, Span, Writer};

    /// 32 pages are read in the first second, each second of them is written, and 32 more are
    /// touched later.
    fn touched() -> Touched {
        let mut writer = Writer::default();
        writer.push(Event::Space(0));
        writer.push(Event::Map(Area::anon(Span::of(512, 64))));
        writer.push(Event::Begin);
        let touch = |page, access| Event::Touch { page, access };
        for page in 512..544 {
            let access = if page % 2 == 0 { Access::Write } else { Access::Read };
            writer.push(touch(page, access));
        }
        writer.push(touch(9000, Access::Read));
        writer.push(Event::Held(16));
        writer.push(Event::Time(2000));
        (544..576).for_each(|page| writer.push(touch(page, Access::Write)));
        Touched::of(&Tape { page: 4096, body: writer.finish(), ..Tape::default() }, 1.0)
    }

    #[test]
    fn f1_pages_of_files_are_no_part_of_a_snapshot() {
        let touched = touched();
        assert_eq!((touched.order.len(), touched.early), (64, 32));
    }

    #[test]
    fn f1_each_way_to_restore_has_its_faults_and_bytes() {
        let touched = touched();
        let set: HashSet<Page> = touched.early().collect();
        let cost = |way| touched.cost(way, &set);
        let pages = cost(Way::Window(0));
        assert_eq!((pages.faults, pages.read, pages.resident, pages.shared), (32, 32, 32, 16));
        // One fault brings 16; the other writes of the window copy a page each.
        let window = cost(Way::Window(4));
        assert_eq!((window.faults, window.read, window.shared), (16, 32, 16));
        let folio = cost(Way::Folio(4));
        assert_eq!((folio.faults, folio.read, folio.shared), (2, 32, 0));
        let recorded = cost(Way::Set);
        assert_eq!((recorded.faults, recorded.before, recorded.read), (16, 32, 32));
        let all = cost(Way::All);
        assert_eq!((all.faults, all.read, all.resident), (16, 64, 64));
        // The set of another run lacks some.
        let less: HashSet<Page> = touched.early().take(16).collect();
        assert_eq!(touched.cost(Way::Set, &less).faults, 24);
    }
}
