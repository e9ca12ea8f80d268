//! All spaces and all of RAM against each other.

use quire_arch::{Arch, Attrs};
use quire_hw::Hardware;
use quire_units::{Order, Pfn};

#[cfg(feature = "files")]
use super::file;
#[cfg(feature = "swap")]
use super::swap::check_swap;
use super::{Leaf, Miscount, Violation, leaves, space};
#[cfg(feature = "files")]
use crate::cache::File;
use crate::folio::{Counts, Folio, FolioFlags, Folios};
#[cfg(feature = "files")]
use crate::limits::ORDERS;
use crate::mm::Mm;
use crate::phys::{self, Kind, Meta};
use crate::space::{AreaFlags, Space};
use crate::sync::Ordering;
use crate::table::is_foreign;

/// Flags that a frame's slot has only during this check.
const MAPPED: u32 = 1 << 20;
const MAPPED_TWICE: u32 = 1 << 21;
const OWNED: u32 = 1 << 22;

/// The use of all frames: each in exactly one of the first eight.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Frames that are free in the zones.
    pub free: u64,
    /// Frames that are free in the caches of the CPUs.
    pub cached: u64,
    /// Frames of folios.
    pub folio: u64,
    /// Frames of page tables.
    pub table: u64,
    /// Frames of area-tree nodes, used or spare.
    pub node: u64,
    /// Frames of files' index nodes.
    pub index: u64,
    /// Frames of the trees of swap slots.
    pub swap: u64,
    /// All others: held by the embedder, never added, or lost.
    pub held: u64,
    /// Folios.
    pub folios: u64,
    /// Those that are in the index of a file.
    pub of_files: u64,
    /// Folios with a pin, or a reference besides those of their mappings and of a file's index.
    pub pinned: u64,
    /// Pages that are mapped to folios, over all spaces.
    pub mapped: u64,
}

/// Verifies each of `spaces`, which must be all, and then all of them against RAM: the tables and
/// nodes on record are those that the spaces have, each folio is mapped as often as it counts
/// (I12), and no frame is two things at once. A lost frame counts as [`held`](Totals::held), so the
/// caller compares that with its own frames.
///
/// No other CPU may use the memory manager meanwhile; even a read can cause a false alarm.
///
/// # Errors
/// The first [`Violation`].
pub fn system<A: Arch, H: Hardware>(
    mm: &Mm<'_, A, H>,
    spaces: &[&Space<A>],
) -> Result<Totals, Violation> {
    let free = mm.allocator().check().map_err(Violation::Phys)?;
    let mut found = Totals::default();
    for one in spaces {
        let report = space(mm, one)?;
        found.table += report.tables;
        found.node += report.nodes;
        found.mapped += report.pages - report.foreign;
    }
    #[cfg(feature = "files")]
    let mut promised = [0; ORDERS];
    #[cfg(feature = "files")]
    for id in mm.files().ids() {
        let report = file(mm, id)?;
        let order = mm.files().get(id).map_or(Order::ZERO, File::smallest);
        promised[order.index()] += report.promised;
        found.index += report.nodes;
        found.of_files += report.folios;
    }
    #[cfg(feature = "files")]
    check_pools(mm, &promised)?;
    let totals = records(mm.allocator().meta())?;
    Miscount::check(totals.index, found.index).map_err(Violation::IndexNodes)?;
    Miscount::check(totals.of_files, found.of_files).map_err(Violation::FileFolios)?;
    Miscount::check(totals.table, found.table).map_err(Violation::Tables)?;
    Miscount::check(totals.node, found.node).map_err(Violation::Nodes)?;
    let used = totals.folio + totals.table + totals.node + totals.index + totals.swap;
    let too_many = Miscount { counted: used, found: free.taken };
    let held = free.taken.checked_sub(used).ok_or(Violation::TooMany(too_many))?;
    check_cached(mm)?;
    check_mapped(mm, spaces)?;
    check_exclusive(mm, spaces)?;
    #[cfg(feature = "swap")]
    check_swap(mm, spaces)?;
    Ok(Totals { free: free.free, cached: free.cached, held, mapped: found.mapped, ..totals })
}

/// Compares the promises that pools count with those that files have on record, and with the folios
/// that are free for them (I20).
#[cfg(feature = "files")]
fn check_pools<A: Arch, H: Hardware>(
    mm: &Mm<'_, A, H>,
    promised: &[u64; ORDERS],
) -> Result<(), Violation> {
    for (at, found) in promised.iter().enumerate() {
        let order = Order::new(at as u8);
        let counts = mm.files().pool(order).unwrap_or_default();
        let counted = Miscount::check(counts.promised, *found);
        counted.map_err(|count| Violation::Promises(order, count))?;
        if counts.promised > counts.free || counts.free > counts.size {
            return Err(Violation::Pool(order, counts));
        }
    }
    Ok(())
}

/// Walks all slots, and counts their records.
fn records(meta: Meta<'_>) -> Result<Totals, Violation> {
    let mut totals = Totals::default();
    let mut at = meta.span().start;
    while let Some(slot) = meta.slot(at) {
        let state = slot.state();
        let mut pages = 1;
        match state.kind() {
            Kind::None | Kind::Outside => {}
            // The allocator's walker has checked these.
            Kind::Free => pages = 1 << state.order(),
            Kind::Table => totals.table += 1,
            Kind::Node => totals.node += 1,
            Kind::Index => totals.index += 1,
            Kind::Swap => totals.swap += 1,
            Kind::Stray => return Err(Violation::Stray(at)),
            Kind::Folio => {
                let folio = Folio { head: at, order: Order::new(state.order()) };
                let counts = check_folio(meta, folio)?;
                pages = folio.order.pages();
                totals.folio += pages;
                totals.folios += 1;
                let known = Folios::new(meta).known(folio).0;
                let by_index = known.contains(FolioFlags::CACHED) as u16;
                totals.of_files += u64::from(by_index);
                totals.pinned += (counts.refs > by_index || counts.pins > 0) as u64;
            }
        }
        at = at.add(pages);
    }
    Ok(totals)
}

/// Checks the frames and the counts of a folio, and returns the counts.
fn check_folio(meta: Meta<'_>, folio: Folio) -> Result<Counts, Violation> {
    if !folio.head.is_aligned(folio.order.pages()) || !meta.span().covers(folio.span()) {
        return Err(Violation::Misplaced(folio));
    }
    let counts = Folios::new(meta).counts(folio);
    if counts.refs == 0 && counts.pins == 0 && counts.mapped == 0 {
        return Err(Violation::Unheld(folio));
    }
    for frame in (1..folio.order.pages()).map(|page| folio.head.add(page)) {
        match meta.slot(frame).map(|slot| slot.state().kind()) {
            None | Some(Kind::None) => {}
            Some(kind) => return Err(Violation::Inside(folio, frame, kind)),
        }
    }
    Ok(counts)
}

/// Verifies that no frame in a CPU's cache is a folio's. The allocator's walker finds those with
/// another record.
fn check_cached<A: Arch, H: Hardware>(mm: &Mm<'_, A, H>) -> Result<(), Violation> {
    let folios = Folios::new(mm.allocator().meta());
    let mut bad = None;
    let walked = phys::each_cached(mm.allocator(), |_, frame| {
        bad = bad.or(folios.of(frame).map(|_| frame));
        Ok(())
    });
    walked.map_err(Violation::Phys)?;
    bad.map_or(Ok(()), |frame| Err(Violation::Cached(frame)))
}

/// I12, without memory to add up in: subtracts the mapped pages from each folio's count, checks the
/// rest, and adds them again.
fn check_mapped<A: Arch, H: Hardware>(
    mm: &Mm<'_, A, H>,
    spaces: &[&Space<A>],
) -> Result<(), Violation> {
    let meta = mm.allocator().meta();
    let folios = Folios::new(meta);
    let counts = |leaf: &Leaf| folios.of(leaf.frame).map(|folio| &meta.at(folio.head).counts);
    let mapped = |leaf: &Leaf| leaf.pages.count() << 32;
    each_leaf(mm, spaces, |_, leaf| {
        counts(leaf).map(|counts| counts.fetch_sub(mapped(leaf), Ordering::Relaxed));
    })?;
    let wrong = (0..meta.span().count).find_map(|at| {
        let head = meta.span().start.add(at);
        let state = meta.at(head).state();
        if state.kind() != Kind::Folio {
            return None;
        }
        let folio = Folio { head, order: Order::new(state.order()) };
        let left = folios.counts(folio).mapped;
        (left != 0).then_some((folio, left))
    });
    each_leaf(mm, spaces, |_, leaf| {
        counts(leaf).map(|counts| counts.fetch_add(mapped(leaf), Ordering::Relaxed));
    })?;
    wrong.map_or(Ok(()), |(folio, left)| {
        let counted = folios.counts(folio).mapped;
        let found = counted.wrapping_sub(left).into();
        Err(Violation::Mapped(folio, Miscount { counted: counted.into(), found }))
    })
}

/// Calls `each` with every leaf, and its space.
fn each_leaf<A: Arch, H: Hardware>(
    mm: &Mm<'_, A, H>,
    spaces: &[&Space<A>],
    mut each: impl FnMut(&Space<A>, &Leaf),
) -> Result<(), Violation> {
    spaces.iter().try_for_each(|space| leaves(mm, space, |leaf| each(space, leaf)))
}

/// Verifies that each page that is mapped exclusively in a private area is mapped nowhere else. It
/// marks the frames that it has seen by flags in their slots, and takes the flags back.
fn check_exclusive<A: Arch, H: Hardware>(
    mm: &Mm<'_, A, H>,
    spaces: &[&Space<A>],
) -> Result<(), Violation> {
    let meta = mm.allocator().meta();
    each_page(mm, spaces, |frame, owns| {
        let state = meta.at(frame).state();
        let twice = if state.flags() & MAPPED != 0 { MAPPED_TWICE } else { 0 };
        let seen = MAPPED | twice | if owns { OWNED } else { 0 };
        meta.at(frame).set_state(state.with_flags(state.flags() | seen));
    })?;
    let bad = MAPPED_TWICE | OWNED;
    let mut wrong = None;
    each_page(mm, spaces, |frame, _| {
        let state = meta.at(frame).state();
        wrong = wrong.or((state.flags() & bad == bad).then_some(frame));
        meta.at(frame).set_state(state.with_flags(state.flags() & !(MAPPED | bad)));
    })?;
    wrong.map_or(Ok(()), |frame| Err(Violation::NotExclusive(frame)))
}

/// Calls `each` with every frame of a folio that a private area maps, and whether exclusively.
fn each_page<A: Arch, H: Hardware>(
    mm: &Mm<'_, A, H>,
    spaces: &[&Space<A>],
    mut each: impl FnMut(Pfn, bool),
) -> Result<(), Violation> {
    each_leaf(mm, spaces, |space, leaf| {
        let area = mm.base().view(space).areas().lookup(leaf.pages.start).0;
        let shared = area.is_none_or(|area| area.flags.contains(AreaFlags::SHARED));
        if !shared && !is_foreign(leaf.attrs) {
            let owns = !leaf.attrs.contains(Attrs::COW);
            (0..leaf.pages.count()).for_each(|page| each(leaf.frame.add(page), owns));
        }
    })
}
