//! The rules a page at a time: each page knows its attributes and its folio, and nothing of runs
//! or of tables. The test plays random programs on it and on the model.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proptest::prelude::*;

use super::replay::{Outcome, replay};
use super::rules::{BLOCK, LEAST, Setting, Word};
use crate::advise::memory::Memory;
use crate::tape::{Access, Advice, Area, Event, Rights, Span, Tape, Writer};

/// The attributes of a page: areas of equal attributes side by side are one.
type Kind = (Rights, Option<bool>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Entry {
    Zero,
    /// A page of this folio; it may be written.
    Page(usize, bool),
}

#[derive(Clone, Default)]
struct Process {
    areas: BTreeMap<u64, Kind>,
    pages: BTreeMap<u64, Entry>,
    /// Blocks that have a table, and those that one entry maps.
    tables: BTreeSet<u64>,
    blocks: BTreeSet<u64>,
    peak: u64,
}

struct Folio {
    order: u8,
    /// Which pages of which process map it.
    users: BTreeSet<(u32, u64)>,
    /// A third process has mapped it.
    many: bool,
}

#[derive(Default)]
struct Naive {
    all: HashMap<u32, Process>,
    folios: Vec<Folio>,
    at: u32,
    folios_made: [u64; BLOCK as usize + 1],
    zero: u64,
    copies: u64,
    kept: u64,
    peak: u64,
}

const PAGES: u64 = 1 << BLOCK;

impl Naive {
    fn process(&mut self) -> &mut Process {
        self.all.entry(self.at).or_default()
    }

    fn set(&mut self, page: u64, entry: Option<Entry>) {
        let space = self.at;
        let old = self.process().pages.get(&page).copied();
        if let Some(Entry::Page(folio, _)) = old {
            self.folios[folio].users.remove(&(space, page));
        }
        match entry {
            None => drop(self.process().pages.remove(&page)),
            Some(entry) => drop(self.process().pages.insert(page, entry)),
        }
        if let Some(Entry::Page(folio, _)) = entry {
            let folio = &mut self.folios[folio];
            let others: BTreeSet<u32> = folio.users.iter().map(|user| user.0).collect();
            folio.many |= others.len() >= 2 && !others.contains(&space);
            folio.users.insert((space, page));
        }
        let process = self.process();
        let own = process.pages.values().filter(|it| matches!(it, Entry::Page(..))).count() as u64;
        process.peak = process.peak.max(own);
    }

    fn bring(&mut self, page: u64, order: u8) {
        self.folios.push(Folio { order, users: BTreeSet::new(), many: false });
        let folio = self.folios.len() - 1;
        let first = page >> order << order;
        (first..first + (1 << order)).for_each(|page| {
            self.set(page, Some(Entry::Page(folio, true)));
        });
        self.process().tables.insert(page / PAGES);
        if order == BLOCK {
            self.process().blocks.insert(page / PAGES);
        } else {
            self.process().blocks.remove(&(page / PAGES));
        }
    }

    /// All pages of the folio of `order` around `page` are of one area.
    fn fits(&mut self, page: u64, order: u8) -> bool {
        let first = page >> order << order;
        let areas = &self.process().areas;
        (first..first + (1 << order)).all(|other| areas.get(&other) == areas.get(&page))
    }

    fn touch(&mut self, setting: &Setting, page: u64, access: Access) {
        let Some((rights, huge)) = self.process().areas.get(&page).copied() else { return };
        if !rights.allow(access) {
            return;
        }
        let orders = setting.orders(&Area { huge, ..Area::anon(Span::of(page, 1)) });
        let (write, block) = (access == Access::Write, page / PAGES);
        match self.process().pages.get(&page).copied() {
            Some(Entry::Page(folio, false)) if write => self.share_ends(page, folio),
            Some(Entry::Zero) if write => {
                let whole = self.process().blocks.contains(&block);
                let order = if whole { BLOCK } else { 0 };
                self.folios_made[usize::from(order)] += 1;
                self.bring(page, order);
            }
            Some(_) => {}
            None if write => {
                let order = self.order(page, orders);
                self.folios_made[usize::from(order)] += 1;
                self.bring(page, order);
            }
            None => {
                self.zero += 1;
                let whole = orders >> BLOCK & 1 != 0
                    && self.fits(page, BLOCK)
                    && !self.process().tables.contains(&block);
                self.process().tables.insert(block);
                if whole {
                    self.process().blocks.insert(block);
                    let first = block * PAGES;
                    (first..first + PAGES).for_each(|page| self.set(page, Some(Entry::Zero)));
                } else {
                    self.set(page, Some(Entry::Zero));
                }
            }
        }
    }

    /// The largest order that a write to an empty page gets.
    fn order(&mut self, page: u64, orders: u16) -> u8 {
        let table = self.process().tables.contains(&(page / PAGES));
        if orders >> BLOCK & 1 != 0 && self.fits(page, BLOCK) && !table {
            return BLOCK;
        }
        let empty = |it: &mut Naive, order: u8| {
            let first = page >> order << order;
            it.process().pages.range(first..first + (1 << order)).next().is_none()
        };
        (LEAST..BLOCK)
            .rev()
            .find(|order| {
                orders >> order & 1 != 0 && self.fits(page, *order) && empty(self, *order)
            })
            .unwrap_or(0)
    }

    fn share_ends(&mut self, page: u64, folio: usize) {
        let space = self.at;
        let it = &self.folios[folio];
        let alone = it.users.iter().all(|user| user.0 == space);
        let own = alone && !it.many || it.order == 0 && it.users.len() == 1;
        let block = page / PAGES;
        let whole = self.process().blocks.contains(&block);
        if own {
            self.kept += 1;
            let span = if whole { block * PAGES..block * PAGES + PAGES } else { page..page + 1 };
            span.for_each(|page| self.set(page, Some(Entry::Page(folio, true))));
        } else {
            self.copies += 1;
            self.bring(page, 0);
        }
    }

    fn forget(&mut self, span: Span, tables: bool) {
        for block in span.start / PAGES..span.end.div_ceil(PAGES) {
            let all = Span::of(block * PAGES, PAGES);
            let part = all.with(span);
            if !self.process().tables.contains(&block) {
                continue;
            }
            (part.start..part.end).for_each(|page| self.set(page, None));
            let was_block = self.process().blocks.remove(&block);
            let empty = self.process().pages.range(all.start..all.end).next().is_none();
            if was_block && part == all || tables && empty {
                self.process().tables.remove(&block);
            }
        }
    }

    fn unmap(&mut self, span: Span) {
        if self.process().areas.range(span.start..span.end).next().is_none() {
            return;
        }
        self.forget(span, false);
        self.process().areas.retain(|page, _| !span.has(*page));
        for block in span.start / PAGES..span.end.div_ceil(PAGES) {
            let first = block * PAGES;
            if self.process().areas.range(first..first + PAGES).next().is_none() {
                self.process().tables.remove(&block);
            }
        }
    }

    fn fork(&mut self, child: u32) {
        // One entry maps pages of one area only: an area that ends within a block splits it.
        let blocks: Vec<u64> = self.process().blocks.iter().copied().collect();
        for block in blocks {
            if !self.fits(block * PAGES, BLOCK) {
                self.process().blocks.remove(&block);
            }
        }
        let mut copy = self.process().clone();
        copy.peak = 0;
        let pages = std::mem::take(&mut copy.pages);
        copy.tables = pages.keys().map(|page| page / PAGES).collect();
        copy.blocks.retain(|block| copy.tables.contains(block));
        self.all.insert(child, copy);
        let parent = self.at;
        for (page, entry) in pages {
            let shared = match entry {
                Entry::Page(folio, _) => Entry::Page(folio, false),
                Entry::Zero => Entry::Zero,
            };
            self.at = child;
            self.set(page, Some(shared));
            self.at = parent;
            self.set(page, Some(shared));
        }
    }

    fn event(&mut self, setting: &Setting, event: Event) {
        match event {
            Event::Space(number) => self.at = number,
            Event::Touch { page, access } => self.touch(setting, page, access),
            Event::Map(area) => {
                self.unmap(area.span);
                let kind = (area.rights, area.huge);
                (area.span.start..area.span.end).for_each(|page| {
                    self.process().areas.insert(page, kind);
                });
            }
            Event::Unmap(span) => self.unmap(span),
            Event::Protect(span, rights) => {
                let areas = self.process().areas.range_mut(span.start..span.end);
                areas.for_each(|(_, kind)| kind.0 = rights);
            }
            Event::Advise(span, Advice::Forget) => {
                // Area by area, and tables go with the last of a whole block.
                let parts = runs(span, &self.process().areas);
                parts.into_iter().for_each(|part| self.forget(part, span.count() >= PAGES));
            }
            Event::Advise(span, advice) => {
                let areas = self.process().areas.range_mut(span.start..span.end);
                areas.for_each(|(_, kind)| kind.1 = Some(advice == Advice::Huge));
            }
            Event::Fork(child) => self.fork(child),
            Event::Exit => {
                self.forget(Span { start: 0, end: 1 << 20 }, false);
                let gone = self.all.remove(&self.at).unwrap_or_default();
                self.peak = self.peak.max(gone.peak);
            }
            _ => {}
        }
    }
}

/// The parts of `span` that are of one area each.
fn runs(span: Span, areas: &BTreeMap<u64, Kind>) -> Vec<Span> {
    let mut all: Vec<Span> = Vec::new();
    for page in areas.keys().copied().filter(|page| span.has(*page)) {
        match all.last_mut() {
            Some(last) if last.end == page && areas.get(&(page - 1)) == areas.get(&page) => {
                last.end += 1;
            }
            _ => all.push(Span::of(page, 1)),
        }
    }
    all
}

/// The counts of both: folios by order, reads of zeroes, copies, kept pages, the peak.
type Said = ([u64; BLOCK as usize + 1], u64, u64, u64, u64);

fn said(setting: &Setting, events: &[Event]) -> [Said; 2] {
    let mut naive = Naive::default();
    events.iter().for_each(|event| naive.event(setting, *event));
    let peak = naive.all.values().map(|it| it.peak).max().unwrap_or(0).max(naive.peak);
    let mut writer = Writer::default();
    events.iter().for_each(|event| writer.push(*event));
    let tape = Tape { page: 4096, body: writer.finish(), ..Tape::default() };
    let Outcome { counts, peak: modelled, .. } = replay(&tape, setting, Memory::new(0.0));
    [
        (naive.folios_made, naive.zero, naive.copies, naive.kept, peak),
        (counts.folios, counts.zero, counts.copies, counts.kept, modelled),
    ]
}

/// Pages of four blocks, in parts as programs have them.
fn span() -> impl Strategy<Value = Span> {
    let fine = (0_u64..2048, 1_u64..40).prop_map(|(start, count)| Span::of(start, count));
    let coarse = (0_u64..4, 1_u64..3).prop_map(|(at, count)| Span::of(at * PAGES, count * PAGES));
    let middle = (0_u64..128, 1_u64..32).prop_map(|(at, count)| Span::of(at * 16, count * 16));
    let span = prop_oneof![fine, coarse, middle];
    span.prop_map(|span| Span { start: span.start, end: span.end.min(2048) })
}

pub(super) fn event() -> impl Strategy<Value = Event> {
    let access = || prop_oneof![3 => Just(Access::Write), 1 => Just(Access::Read)];
    let advice = prop_oneof![Just(Advice::Huge), Just(Advice::NoHuge), Just(Advice::Forget)];
    let huge = prop_oneof![3 => Just(None), 1 => Just(Some(true))];
    prop_oneof![
        30 => (0_u64..2048, access()).prop_map(|(page, access)| Event::Touch { page, access }),
        4 => (span(), huge).prop_map(|(span, huge)| Event::Map(Area { huge, ..Area::anon(span) })),
        1 => span().prop_map(Event::Unmap),
        1 => (span(), prop_oneof![Just(1_u64), Just(3)])
            .prop_map(|(span, bits)| Event::Protect(span, Rights::of_bits(bits))),
        2 => (span(), advice).prop_map(|(span, advice)| Event::Advise(span, advice)),
        1 => (0_u32..3).prop_map(Event::Fork),
        3 => (0_u32..3).prop_map(Event::Space),
    ]
}

/// Forks go to a process that is not there, since a number is used once.
pub(super) fn sensible(events: Vec<Event>) -> Vec<Event> {
    let (mut at, mut next, mut alive) = (0, 0, vec![0]);
    let mut all = vec![Event::Space(0), Event::Map(Area::anon(Span::of(0, 1024)))];
    for event in events {
        match event {
            Event::Fork(_) if alive.len() < 5 => {
                next += 1;
                alive.push(next);
                all.push(Event::Fork(next));
            }
            Event::Fork(_) => {
                all.push(Event::Exit);
                alive.retain(|other| *other != at);
                at = alive[0];
                all.push(Event::Space(at));
            }
            Event::Space(number) => {
                at = alive[number as usize % alive.len()];
                all.push(Event::Space(at));
            }
            other => all.push(other),
        }
    }
    all
}

pub(super) fn setting() -> impl Strategy<Value = Setting> {
    let word = prop_oneof![Just(Word::Never), Just(Word::Madvise), Just(Word::Always)];
    proptest::collection::vec(word, usize::from(BLOCK - LEAST) + 1).prop_map(|words| {
        let all = words.into_iter().zip(LEAST..=BLOCK);
        all.fold(Setting::never(), |setting, (word, order)| setting.with(order, word))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn f1_the_model_counts_as_one_that_knows_pages_only(
        events in proptest::collection::vec(event(), 1..120),
        setting in setting(),
    ) {
        let [naive, model] = said(&setting, &sensible(events));
        prop_assert_eq!(naive, model);
    }
}
