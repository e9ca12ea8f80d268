//! All spaces and all of RAM against each other.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{FrameSpan, Order, Pfn};

use super::exclusive::check_exclusive;
#[cfg(feature = "files")]
use super::file;
#[cfg(feature = "swap")]
use super::swap::check_swap;
use super::{Violation, leaves, space};
use crate::folio::{Folio, FolioFlags, Folios};
use crate::mm::Mm;
use crate::phys::{self, Kind, Meta};
use crate::space::Space;
use crate::sync::Ordering;
use crate::table::FOREIGN;

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
    /// Folios with a reference or a pin besides their mappings.
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
    let files = nodes_and_folios(mm)?;
    let meta = mm.allocator().meta();
    let totals = records(meta)?;
    let recorded = (totals.index, totals.of_files);
    if recorded != files {
        return Err(Violation::Files { recorded, found: files });
    }
    if totals.table != found.table {
        return Err(Violation::Tables { recorded: totals.table, found: found.table });
    }
    if totals.node != found.node {
        return Err(Violation::Nodes { recorded: totals.node, found: found.node });
    }
    let recorded = totals.folio + totals.table + totals.node + totals.index + totals.swap;
    let too_many = Violation::TooMany { taken: free.taken, recorded };
    let held = free.taken.checked_sub(recorded).ok_or(too_many)?;
    check_cached(mm)?;
    check_mapped(mm, spaces)?;
    check_exclusive(mm, spaces)?;
    #[cfg(feature = "swap")]
    check_swap(mm, spaces)?;
    Ok(Totals { free: free.free, cached: free.cached, held, mapped: found.mapped, ..totals })
}

/// Checks all files; how many nodes their indexes have, and how many folios.
#[cfg(feature = "files")]
fn nodes_and_folios<A: Arch, H: Hardware>(mm: &Mm<'_, A, H>) -> Result<(u64, u64), Violation> {
    mm.files().ids().try_fold((0, 0), |(nodes, folios), id| {
        let report = file(mm, id)?;
        Ok((nodes + report.nodes, folios + report.folios))
    })
}

#[cfg(not(feature = "files"))]
fn nodes_and_folios<A: Arch, H: Hardware>(_: &Mm<'_, A, H>) -> Result<(u64, u64), Violation> {
    Ok((0, 0))
}

/// Walks all slots, and counts their records.
fn records(meta: Meta<'_>) -> Result<Totals, Violation> {
    let mut totals = Totals::default();
    let all = meta.span();
    let mut at = all.start;
    while let Some(slot) = meta.slot(at) {
        let state = slot.state();
        let mut pages = 1;
        match state.kind() {
            Kind::None => {}
            // The allocator's walker has checked these.
            Kind::Free => pages = 1 << state.order(),
            Kind::Table => totals.table += 1,
            Kind::Node => totals.node += 1,
            Kind::Index => totals.index += 1,
            Kind::Swap => totals.swap += 1,
            Kind::Stray => return Err(Violation::Stray(at)),
            Kind::Folio => {
                let folio = Folio { head: at, order: Order::new(state.order()) };
                check_folio(meta, folio)?;
                pages = folio.order.pages();
                totals.folio += pages;
                totals.folios += 1;
                let known = Folios::new(meta).known(folio).0;
                totals.of_files += known.contains(FolioFlags::CACHED) as u64;
                let counts = Folios::new(meta).counts(folio);
                totals.pinned += (counts.refs > 0 || counts.pins > 0) as u64;
            }
        }
        at = at.add(pages);
    }
    Ok(totals)
}

fn check_folio(meta: Meta<'_>, folio: Folio) -> Result<(), Violation> {
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
            Some(kind) => return Err(Violation::Inside { folio, frame, kind }),
        }
    }
    Ok(())
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
    each_mapping(mm, spaces, |head, pages| {
        meta.at(head).counts.fetch_sub(pages << 32, Ordering::Relaxed);
    })?;
    let mut first = None;
    for frame in frames(meta.span()) {
        let is_head = meta.at(frame).state().kind() == Kind::Folio;
        if is_head && first.is_none() {
            let folio = Folio { head: frame, order: Order::new(meta.at(frame).state().order()) };
            let left = folios.counts(folio).mapped;
            first = (left != 0).then_some((folio, left));
        }
    }
    each_mapping(mm, spaces, |head, pages| {
        meta.at(head).counts.fetch_add(pages << 32, Ordering::Relaxed);
    })?;
    first.map_or(Ok(()), |(folio, left)| {
        let counted = folios.counts(folio).mapped;
        Err(Violation::Mapped { folio, counted, found: counted.wrapping_sub(left) })
    })
}

/// Calls `each` with the head of the folio that a leaf maps, and the number of its pages.
fn each_mapping<A: Arch, H: Hardware>(
    mm: &Mm<'_, A, H>,
    spaces: &[&Space<A>],
    mut each: impl FnMut(Pfn, u64),
) -> Result<(), Violation> {
    let folios = Folios::new(mm.allocator().meta());
    for space in spaces {
        leaves(mm, space, |leaf| {
            let folio = folios.of(leaf.frame).filter(|_| !leaf.attrs.contains(FOREIGN));
            if let Some(folio) = folio {
                each(folio.head, leaf.pages.count());
            }
        })?;
    }
    Ok(())
}

fn frames(span: FrameSpan) -> impl Iterator<Item = Pfn> {
    (0..span.count).map(move |at| span.start.add(at))
}
