//! The story of a fault: chapters made from what was recorded.

use std::fmt::Write;

use quire::fault::Cause;
use quire::stats::Event;
use quire_arch::Entry;
use quire_hw::Reuse;
use quire_units::{Order, Pfn, Prot};

use super::recorder::Effect;
use super::scene::{Evidence, Place, Seen, frames, grants};
use crate::size::Size;

const BOLD: &str = "\x1b[1m";
const FILE: &str = "\x1b[36m";
const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// One step of the fault.
pub(super) struct Chapter {
    pub(super) title: String,
    /// Where it happens, the file to read first.
    pub(super) files: &'static [&'static str],
    pub(super) text: String,
}

/// All of it.
pub(super) struct Story {
    pub(super) head: String,
    pub(super) chapters: Vec<Chapter>,
    pub(super) tail: &'static str,
}

impl Story {
    /// The story as text with colours.
    pub(super) fn print(&self) -> String {
        let (title, head) = self.head.split_once('\n').unwrap_or((&self.head, ""));
        let mut text = format!("{BOLD}{title}{PLAIN}\n{head}\n");
        for (at, Chapter { title, files, text: lines }) in self.chapters.iter().enumerate() {
            let files = files.join("  ");
            let _ =
                writeln!(text, "\n{BOLD}{:>2}  {title}{PLAIN}\n    {FILE}{files}{PLAIN}", at + 1);
            lines.lines().for_each(|line| text.extend(["    ", line, "\n"]));
        }
        text.push('\n');
        for line in self.tail.lines() {
            let _ = writeln!(text, "{DIM}{line}{PLAIN}");
        }
        text
    }
}

/// The effects, by the step they belong to.
struct Steps<'e> {
    nodes: Vec<&'e Seen>,
    walk: Vec<&'e Seen>,
    around: usize,
    clears: Vec<&'e Seen>,
    again: usize,
    fill: Option<&'e Seen>,
}

impl<'e> Steps<'e> {
    fn of(effects: &'e [Seen]) -> Steps<'e> {
        let is_load = |seen: &&&Seen| matches!(seen.effect, Effect::Load { .. });
        let is_clear = |seen: &Seen| matches!(seen.effect, Effect::Clear { .. });
        let first = effects.iter().position(is_clear).unwrap_or(effects.len());
        let last = effects.iter().rposition(is_clear).map_or(effects.len(), |at| at + 1);
        let (plan, install) = (&effects[..first], &effects[last..]);
        let loads: Vec<&Seen> =
            plan.iter().collect::<Vec<_>>().iter().filter(is_load).copied().collect();
        let in_table = |seen: &&&Seen| matches!(seen.place, Place::Table { .. });
        let tables: Vec<&Seen> = loads.iter().filter(in_table).copied().collect();
        // The walk goes down one level with each word, and ends at the first that is no table.
        let depth = tables.iter().position(|seen| !leads_on(seen)).map_or(0, |at| at + 1);
        Steps {
            nodes: loads.iter().filter(|seen| seen.place == Place::Node).copied().collect(),
            around: tables.len() - depth,
            walk: tables[..depth].to_vec(),
            clears: effects[first..last].iter().filter(|seen| is_clear(seen)).collect(),
            again: install
                .iter()
                .collect::<Vec<_>>()
                .iter()
                .filter(is_load)
                .filter(in_table)
                .count(),
            fill: install.iter().find(|seen| matches!(seen.effect, Effect::Fill { .. })),
        }
    }
}

fn leads_on(seen: &Seen) -> bool {
    matches!(seen.place, Place::Table { entry: Entry::Table(_), .. })
}

/// The story of `evidence`; the user asked for the first of `sizes` and got the second.
pub(super) fn tell(evidence: &Evidence, (asked, size): (Size, Size)) -> Story {
    let steps = Steps::of(&evidence.effects);
    let mut head = format!(
        "One page fault, step by step: {}, a folio of {size}

A program touches memory that it has mapped and never used. This has just happened, on the
hosted machine of this program; all numbers below were recorded on the way. File names are
those of Quire's sources: read along.",
        evidence.format
    );
    if asked != size {
        let _ = write!(head, "\n({} has no folios of {asked}, so it is {size}.)", evidence.format);
    }
    Story {
        head,
        chapters: vec![
            touch(evidence),
            engine(),
            area(evidence, &steps),
            walk(evidence, &steps),
            sizes(evidence, &steps),
            block(evidence),
            clear(evidence, &steps),
            install(evidence, &steps),
            counters(evidence),
            again(evidence),
        ],
        tail:
            "Next: crates/mm/src/lib.rs lists the rooms in the order of this story. ARCHITECTURE.md
says what must not happen between them, and `quire bench fault` how long it takes.",
    }
}

fn touch(evidence: &Evidence) -> Chapter {
    Chapter {
        title: format!("The program stores a word at {}", evidence.addr),
        files: &["crates/machine/src/cpu.rs", "crates/machine/src/walk.rs"],
        text: format!(
            "The CPU needs a translation. Its TLB has none: the MMU walks the tables, and reads
{}. The last one says: nothing here. The CPU stops the program with
a trap: \"{}\".",
            words(evidence.missed.words_walked),
            evidence.trap
        ),
    }
}

fn engine() -> Chapter {
    Chapter {
        title: "The kernel calls Mm::fault".to_owned(),
        files: &["crates/mm/src/spaces/faults.rs"],
        text:
            "The service `spaces` asks the room `fault` for a plan, brings the parts that the plan
lacks, and has it carried out. If the world changed meanwhile, it asks again."
                .to_owned(),
    }
}

fn area(evidence: &Evidence, steps: &Steps<'_>) -> Chapter {
    let area = &evidence.area;
    let mut nodes: Vec<Pfn> = steps.nodes.iter().filter_map(|seen| frame_of(seen)).collect();
    nodes.dedup();
    Chapter {
        title: "May it? Which area holds the page?".to_owned(),
        files: &["crates/mm/src/fault/plan.rs", "crates/mm/src/space/tree/read.rs"],
        text: format!(
            "The program has {} areas in a tree. {} of {} answer, and no lock is taken:
  {} to {}, {}, {}
A store is allowed. The tree's sequence number goes into the plan: a change of an area
changes the number too, and then the plan is void.",
            evidence.areas,
            words(steps.nodes.len() as u64),
            plural(nodes.len() as u64, "node"),
            area.span.start.addr(evidence.page_shift),
            area.span.end.addr(evidence.page_shift),
            sized(area.span.count(), evidence.page_shift),
            rights(area.prot)
        ),
    }
}

fn walk(evidence: &Evidence, steps: &Steps<'_>) -> Chapter {
    let mut lines =
        vec!["Down the page tables, one load for each level, again without a lock:".to_owned()];
    for seen in &steps.walk {
        let (Effect::Load { frame, index, word }, Place::Table { level, entry }) =
            (&seen.effect, seen.place)
        else {
            continue;
        };
        let says = match entry {
            Entry::Table(lower) => format!("a table, in frame {:#x}", lower.get()),
            Entry::Absent => "nothing".to_owned(),
            other => format!("{other:?}"),
        };
        lines.push(format!(
            "  level {level}: frame {:#x}, word {index:>4} = {word:#018x}  {says}",
            frame.get()
        ));
    }
    lines.push(match steps.walk.last().map(|seen| seen.place) {
        Some(Place::Table { level, .. }) if !is_leaf_level(evidence, level) => {
            "Where a table is missing, the plan would say so and `spaces` would bring one."
                .to_owned()
        }
        _ => "Level 0 maps base pages. The place is free: memory is needed.".to_owned(),
    });
    Chapter {
        title: "What is there now?".to_owned(),
        files: &["crates/mm/src/table/walk.rs", "crates/arch/src/lib.rs"],
        text: lines.join("\n"),
    }
}

/// Whether a walk to `level` found the table that the folio goes into.
fn is_leaf_level(evidence: &Evidence, level: u8) -> bool {
    level == 0 || evidence.entries == 1
}

fn sizes(evidence: &Evidence, steps: &Steps<'_>) -> Chapter {
    let mut lines = vec![format!(
        "The larger the better: one fault, one run. {} around the page tell how much is free.",
        words(steps.around as u64)
    )];
    let wanted = (0..32).rev().filter(|order| evidence.wanted >> order & 1 != 0);
    for order in wanted.map(|order| Order::new(order as u8)) {
        let cause = Cause::ALL.into_iter().find(|cause| {
            let at = *cause as usize;
            evidence.after.fallback[order.index()][at] > evidence.before.fallback[order.index()][at]
        });
        let verdict = match cause {
            None if order == evidence.order => "yes: in the area, and empty",
            None => "possible, but a larger one is",
            Some(Cause::Geometry) => "no: the block around the page would reach beyond the area",
            Some(Cause::Occupied) => "no: a page in that block is mapped already",
            Some(Cause::Memory) => "no: no free block of that size",
            Some(Cause::Policy) => "no: the policy does not allow it",
            Some(Cause::Charge) => "no: the memory group of the space is at its limit",
        };
        lines.push(format!("  {:>5}  {verdict}", bytes(order, evidence.page_shift)));
    }
    if evidence.order == Order::ZERO {
        lines.push(format!(
            "  {:>5}  yes: a base page always fits",
            bytes(Order::ZERO, evidence.page_shift)
        ));
    }
    lines.push(
        "Each no is counted with its cause. The policy allows these sizes here, in the
words of Linux: `always`, `madvise` or `never` for each size."
            .to_owned(),
    );
    Chapter {
        title: "How large?".to_owned(),
        files: &["crates/mm/src/fault/size.rs", "crates/mm/src/fault/policy.rs"],
        text: lines.join("\n"),
    }
}

fn block(evidence: &Evidence) -> Chapter {
    let [before, after] = evidence.free;
    let pages = evidence.order.pages();
    let mut lines = vec![format!(
        "The plan asks for {} ({}), without any lock of a table held.",
        plural(pages, "frame"),
        evidence.order
    )];
    let [had, has] = evidence.cached;
    let files: &[&str] = if has + pages == had {
        lines.push(format!(
            "CPU 0 keeps {had} free frames for itself, such a block among them: a few cycles."
        ));
        &["crates/mm/src/phys/alloc.rs", "crates/mm/src/phys/cpu_cache.rs"]
    } else {
        let moved = |order: &usize| before[*order] != after[*order];
        let changed: Vec<String> = (0..before.len())
            .filter(moved)
            .map(|order| {
                format!("{} {} to {}", Order::new(order as u8), before[order], after[order])
            })
            .collect();
        lines.push(if has > had {
            format!(
                "CPU 0's cache had none and fetched several, so that it keeps {} now.",
                plural(has, "frame")
            )
        } else {
            "It is too large for the CPU's cache: the buddy gives it.".to_owned()
        });
        if !changed.is_empty() {
            lines.push(format!("Free by order of block: {}.", changed.join(", ")));
        }
        &["crates/mm/src/phys/alloc.rs", "crates/mm/src/phys/buddy.rs"]
    };
    lines.push(
        "The result is a FrameRun: the right to these frames, which cannot be copied.".to_owned(),
    );
    Chapter { title: "Where from?".to_owned(), files, text: lines.join("\n") }
}

fn clear(evidence: &Evidence, steps: &Steps<'_>) -> Chapter {
    let mut lines = Vec::new();
    for (at, seen) in steps.clears.iter().enumerate() {
        let Effect::Clear { run, pages, reuse } = &seen.effect else { continue };
        if at == 0 {
            lines.push(format!(
                "The program must not see what was in {}. Each extent in one go:",
                frames(*run)
            ));
        }
        let count = pages.end - pages.start;
        let backend = evidence.clears.backend(count << evidence.page_shift, *reuse);
        let fault = evidence.page.offset_from(evidence.pages.start);
        let place = match (pages.contains(&fault), pages.start > fault) {
            (true, _) => "around the fault",
            (_, true) => "right of it",
            _ => "left of it",
        };
        let why = match reuse {
            Reuse::Soon => "kept in the caches",
            Reuse::Later => "past the caches",
        };
        let which = match count {
            1 => format!("page {}", pages.start),
            _ => format!("pages {} to {}", pages.start, pages.end - 1),
        };
        lines.push(format!(
            "  {}. {which:<18} {place:<17} {:>6}  {why}, {backend}",
            at + 1,
            sized(count, evidence.page_shift)
        ));
    }
    lines.push(
        "The page that the program waits for comes last, so that it is in the cache when it
goes on. Memory known to be zero would not be cleared at all."
            .to_owned(),
    );
    Chapter {
        title: "Zeroes".to_owned(),
        files: &["crates/mm/src/folio/clear.rs", "crates/hw/src/extent/mod.rs"],
        text: lines.join("\n"),
    }
}

fn install(evidence: &Evidence, steps: &Steps<'_>) -> Chapter {
    let mut lines = vec![format!(
        "Now one table is locked, and asked: are you still this table of this space? The areas: is
your number still the plan's? The place: still empty? {} tell. Three times yes, so",
        words(steps.again as u64)
    )];
    if let Some(Seen {
        effect: Effect::Fill { frame, index, count, first, step },
        place: Place::Table { level, entry },
    }) = steps.fill
    {
        lines.push(match count {
            1 => "one entry is written:".to_owned(),
            _ => format!("one run of {count} entries is written, in one call:"),
        });
        lines.push(format!(
            "  level {level}: frame {:#x}, word {index:>4} = {first:#018x}{}",
            frame.get(),
            if *count > 1 { format!(", each next one {step:#x} more") } else { String::new() }
        ));
        if let Entry::Leaf { frame, attrs } = entry {
            lines.push(format!("  which says: frame {:#x}, {}", frame.get(), grants(*attrs)));
        }
    }
    let flushes = evidence.effects.iter().filter(|seen| seen.effect == Effect::Flush).count();
    lines.push(format!(
        "Young and dirty at once: the CPU does not have to set them later. An empty entry is in
no TLB, so there is nothing to drop: {}.",
        plural(flushes as u64, "flush")
    ));
    Chapter {
        title: "Lock, ask, write".to_owned(),
        files: &["crates/mm/src/fault/install.rs", "crates/mm/src/table/lock.rs"],
        text: lines.join("\n"),
    }
}

fn counters(evidence: &Evidence) -> Chapter {
    let mut parts = Vec::new();
    for &event in Event::ALL {
        let more = evidence.after.event(event) - evidence.before.event(event);
        if more > 0 {
            parts.push(format!("{} +{more}", event.name()));
        }
    }
    for order in 0..evidence.after.alloc.len() {
        let more = evidence.after.alloc[order] - evidence.before.alloc[order];
        if more > 0 {
            let size = bytes(Order::new(order as u8), evidence.page_shift);
            parts.push(format!("anon_fault_alloc {size} +{more}"));
        }
        for cause in Cause::ALL {
            let at = cause as usize;
            let more = evidence.after.fallback[order][at] - evidence.before.fallback[order][at];
            if more > 0 {
                let size = bytes(Order::new(order as u8), evidence.page_shift);
                parts.push(format!("anon_fault_fallback {size} {} +{more}", cause.name()));
            }
        }
    }
    Chapter {
        title: "The counts".to_owned(),
        files: &["crates/mm/src/stats.rs"],
        text: parts.chunks(2).map(|pair| format!("  {}\n", pair.join("   "))).collect(),
    }
}

fn again(evidence: &Evidence) -> Chapter {
    Chapter {
        title: "The program goes on".to_owned(),
        files: &["crates/machine/src/walk.rs", "crates/machine/src/mmu/entry.rs"],
        text: format!(
            "It repeats the store. The MMU, whose decoder shares no code with Quire, reads
{} and finds the frame; the TLB keeps it. Then the program loads the word: {}.
The other {} of the folio are there as well, and will not fault.",
            words(evidence.hit.words_walked),
            evidence.value,
            plural(evidence.pages.count() - 1, "page")
        ),
    }
}

fn frame_of(seen: &Seen) -> Option<Pfn> {
    match seen.effect {
        Effect::Load { frame, .. } => Some(frame),
        _ => None,
    }
}

fn rights(prot: Prot) -> String {
    let names = [(Prot::READ, "read"), (Prot::WRITE, "write"), (Prot::EXEC, "execute")];
    let set = names.iter().filter(|(right, _)| prot.contains(*right));
    set.map(|(_, name)| *name).collect::<Vec<_>>().join(" and ")
}

fn bytes(order: Order, page_shift: u32) -> Size {
    Size(order.bytes(page_shift))
}

fn sized(pages: u64, page_shift: u32) -> Size {
    Size(pages << page_shift)
}

fn words(count: u64) -> String {
    plural(count, "word")
}

/// `1 word`, `2 words`, `no words`.
fn plural(count: u64, what: &str) -> String {
    let end = if what.ends_with("sh") { "es" } else { "s" };
    match count {
        0 => format!("no {what}{end}"),
        1 => format!("1 {what}"),
        _ => format!("{count} {what}{end}"),
    }
}
