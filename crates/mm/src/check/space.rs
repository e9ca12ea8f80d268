//! One address space: its areas, its tables, its leaves; contiguous blocks entry by entry (I4, C1).

use core::ops::Range;

use quire_arch::{Arch, Attrs, Entry, Level};
use quire_hw::{Hardware, TypedBy};
use quire_units::{FrameSpan, PageSpan, Pfn, Prot, Vpn};

use super::{Miscount, Violation};
use crate::mm::Mm;
use crate::phys::Kind;
use crate::space::{Area, AreaFlags, Backing, Space, View};
use crate::sync::Ordering;
use crate::table::{WATCHED, is_foreign, plain};

/// The size of a space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpaceReport {
    /// Areas.
    pub areas: u64,
    /// Nodes of the area tree, spare ones included.
    pub nodes: u64,
    /// Page tables, the root included.
    pub tables: u64,
    /// Leaves of all sizes.
    pub leaves: u64,
    /// Pages that they map.
    pub pages: u64,
    /// Pages among them whose frames are no folios: a device's.
    pub foreign: u64,
    /// Pages among them that are mapped with less than their area's rights, and are not COW.
    pub lesser: u64,
    /// Pages among them that are COW.
    pub cow: u64,
    /// Pages among them that are mapped in contiguous blocks.
    pub folded: u64,
    /// Entries that are neither absent nor seen by the hardware.
    pub markers: u64,
}

/// One leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaf {
    /// The pages it maps.
    pub pages: PageSpan,
    /// The first of its frames.
    pub frame: Pfn,
    /// Its attributes.
    pub attrs: Attrs,
    /// The level it is at.
    pub level: Level,
    /// Whether it is part of a contiguous block.
    pub folded: bool,
}

/// Verifies one space: the area tree, with all neighbours merged that can be; the identity and the
/// entry count of each table; and that each leaf lies in one area, grants no more than it, and maps
/// frames of one live folio.
///
/// A table cannot be linked twice: its slot records its root, its level and its first page, and no
/// two entries of a space expect the same.
///
/// # Errors
/// The first [`Violation`].
pub fn space<A: Arch, H: Hardware>(
    mm: &Mm<'_, A, H>,
    space: &Space<A>,
) -> Result<SpaceReport, Violation> {
    let view = mm.base().view(space);
    let writer = space.areas.writer(view.hw, view.meta);
    let tree = writer.check_merged().map_err(Violation::Tree)?;
    let nodes = tree.nodes + writer.spares() as u64;
    drop(writer);
    let mut report = SpaceReport { areas: tree.areas, nodes, ..Default::default() };
    let mut known = None;
    let mut shown = 0;
    let (tables, markers) = walk(&view, |leaf| {
        let area = area_of(&view, known, leaf)?;
        known = Some(area);
        shown += if area.is_of_frames() { leaf.pages.count() } else { 0 };
        check_leaf(&view, &mut report, leaf, &area)
    })?;
    let all = view.areas().overlapping(Space::<A>::all()).filter(Area::is_of_frames);
    Miscount::check(all.map(|area| area.span.count()).sum(), shown).map_err(Violation::Shown)?;
    Ok(SpaceReport { tables, markers, ..report })
}

/// Calls `hear` with every leaf of a space, ascending.
///
/// # Errors
/// A [`Violation`] of the tables themselves, after the leaves before it.
pub fn leaves<A: Arch, H: Hardware>(
    mm: &Mm<'_, A, H>,
    space: &Space<A>,
    mut hear: impl FnMut(&Leaf),
) -> Result<(), Violation> {
    walk(&mm.base().view(space), |leaf| {
        hear(leaf);
        Ok(())
    })
    .map(drop)
}

/// Checks all tables; `hear` checks each leaf. Returns how many tables and markers there are.
fn walk<A: Arch, H: Hardware>(
    view: &View<'_, A, H>,
    hear: impl FnMut(&Leaf) -> Result<(), Violation>,
) -> Result<(u64, u64), Violation> {
    let mut walk = Walk { view, hear, tables: 0, markers: 0 };
    walk.table(view.space.root(), A::ROOT, Vpn::new(0))?;
    Ok((walk.tables, walk.markers))
}

struct Walk<'w, 'v, A, H, F> {
    view: &'w View<'v, A, H>,
    hear: F,
    tables: u64,
    markers: u64,
}

impl<A: Arch, H: Hardware, F: FnMut(&Leaf) -> Result<(), Violation>> Walk<'_, '_, A, H, F> {
    /// Walks one table and all below it. Calls itself once a level.
    fn table(&mut self, table: Pfn, level: Level, base: Vpn) -> Result<(), Violation> {
        let (counted, counted_blocks) = counts(self.view, table, level, base)?;
        self.tables += 1;
        let (mut found, mut blocks) = (0, 0);
        let block = A::order(level);
        // The embedder's half is not counted.
        let user = A::USER_PAGES.saturating_sub(base.get()).div_ceil(block.pages());
        let end = A::entries(level).min(user as usize);
        let mut next = 0;
        loop {
            next += empty::<A, H>(self.view, table, level, next..end);
            let index = next;
            if index >= end {
                break;
            }
            next += 1;
            let raw = self.view.hw.load(table, index);
            let folded = A::is_folded(raw, level);
            let word = plain::<A>(raw, level, index);
            found += (word != 0) as u64;
            blocks += check_block(self.view, table, level, index)? as u64;
            let page = base.add((index as u64) << block.get());
            match (A::decode(word, level), level.child()) {
                (Entry::Absent, _) => {}
                (Entry::Marker(_), _) => self.markers += 1,
                (Entry::Leaf { frame, attrs }, _) => {
                    let pages = PageSpan::block(page, block);
                    (self.hear)(&Leaf { pages, frame, attrs, level, folded })?;
                }
                (Entry::Table(lower), Some(child)) => self.table(lower, child, page)?,
                (Entry::Table(_), None) | (Entry::Malformed, _) => {
                    return Err(Violation::Malformed { table, index, word });
                }
            }
        }
        Miscount::check(counted, found).map_err(|count| Violation::Present(table, count))?;
        Miscount::check(counted_blocks, blocks).map_err(|count| Violation::Blocks(table, count))
    }
}

/// How many entries at the start of `part` are empty, in whole contiguous blocks, and so need no
/// check; 0 in the middle of a block.
fn empty<A: Arch, H: Hardware>(
    view: &View<'_, A, H>,
    table: Pfn,
    level: Level,
    part: Range<usize>,
) -> usize {
    let width = 1 << A::LEVELS[level.index()].contiguous;
    match part.start.is_multiple_of(width) {
        true => view.hw.count_run(table, part.start, part.len(), 0, 0) & !(width - 1),
        false => 0,
    }
}

/// Checks that `frame` is recorded as the table that it is used as; returns its counts of entries
/// and of contiguous blocks.
fn counts<A: Arch, H: Hardware>(
    view: &View<'_, A, H>,
    frame: Pfn,
    level: Level,
    base: Vpn,
) -> Result<(u64, u64), Violation> {
    let stranger = Violation::NotTheTable(frame, level, base);
    let slot = view.meta.slot(frame).ok_or(stranger)?;
    let state = slot.state();
    let is_it = state.kind() == Kind::Table
        && state.order() as usize == level.index()
        && slot.owner.load(Ordering::Relaxed) == base.get()
        && slot.links[0].load(Ordering::Relaxed) == view.meta.index(view.space.root());
    let counts = slot.counts.load(Ordering::Relaxed);
    if is_it { Ok((counts & u32::MAX as u64, counts >> 32)) } else { Err(stranger) }
}

/// The one area that holds the pages of `leaf`; most often the one `known` from the last leaf.
fn area_of<A: Arch, H: Hardware>(
    view: &View<'_, A, H>,
    known: Option<Area>,
    leaf: &Leaf,
) -> Result<Area, Violation> {
    let holds = |area: &Area| area.span.covers(leaf.pages);
    known
        .filter(holds)
        .or_else(|| view.areas().lookup(leaf.pages.start).0.filter(holds))
        .ok_or(Violation::Area(leaf.pages))
}

fn check_leaf<A: Arch, H: Hardware>(
    view: &View<'_, A, H>,
    report: &mut SpaceReport,
    leaf: &Leaf,
    area: &Area,
) -> Result<(), Violation> {
    let pages = leaf.pages.count();
    report.leaves += 1;
    report.pages += pages;
    let allowed = granted::<A>(area.prot, leaf);
    let user = leaf.attrs.contains(Attrs::USER) || is_foreign(leaf.attrs);
    if !allowed.contains(leaf.attrs.prot()) || !user {
        let (page, granted) = (leaf.pages.start, leaf.attrs);
        return Err(Violation::Rights { page, granted, prot: area.prot });
    }
    if leaf.attrs.contains(Attrs::COW | Attrs::WRITE) {
        return Err(Violation::WritableCow(leaf.pages.start));
    }
    if leaf.attrs.contains(WATCHED) && !area.flags.contains(AreaFlags::WATCH_WRITE) {
        return Err(Violation::Unwatched(leaf.pages.start));
    }
    report.cow += if leaf.attrs.contains(Attrs::COW) { pages } else { 0 };
    report.folded += if leaf.folded { pages } else { 0 };
    if allowed != leaf.attrs.prot() && !leaf.attrs.contains(Attrs::COW) {
        report.lesser += pages;
    }
    check_shown(view, leaf, area)?;
    let frames = FrameSpan::new(leaf.frame, pages);
    match view.folios().of(leaf.frame) {
        None if is_foreign(leaf.attrs) => {
            report.foreign += pages;
            Ok(())
        }
        Some(folio) if folio.span().covers(frames) => Ok(()),
        _ => Err(Violation::NotAFolio(leaf.pages, leaf.frame)),
    }
}

/// Checks that a leaf maps the frames that its area shows, with the memory type that it says.
fn check_shown<A: Arch, H: Hardware>(
    view: &View<'_, A, H>,
    leaf: &Leaf,
    area: &Area,
) -> Result<(), Violation> {
    let Backing::Frames { first, memory } = area.backing_of(leaf.pages.start) else {
        return Ok(());
    };
    let type_flag = match view.hw.profile().memory_types.of(memory) {
        TypedBy::Entry => Attrs::memory(memory),
        TypedBy::Platform | TypedBy::Nothing => Attrs::empty(),
    };
    let own = is_foreign(leaf.attrs);
    match own && leaf.frame == first && leaf.attrs & Attrs::MEMORY == type_flag {
        true => Ok(()),
        false => Err(Violation::NotShown(leaf.pages, leaf.frame)),
    }
}

/// The rights that the ISA grants for `prot`: some formats tie rights together.
fn granted<A: Arch>(prot: Prot, leaf: &Leaf) -> Prot {
    match A::decode(A::leaf(leaf.frame, leaf.level, Attrs::user(prot)), leaf.level) {
        Entry::Leaf { attrs, .. } => attrs.prot(),
        _ => prot,
    }
}

/// The bits that the hardware sets by itself, in any entry of a block.
const NOTED: Attrs = Attrs::YOUNG.union(Attrs::DIRTY);

/// Checks the block that begins at entry `index` of `table`, if there is one; returns whether it is
/// folded. A CPU without contiguous blocks has none.
fn check_block<A: Arch, H: Hardware>(
    view: &View<'_, A, H>,
    table: Pfn,
    level: Level,
    index: usize,
) -> Result<bool, Violation> {
    let Some(order) = A::fold_order(level) else { return Ok(false) };
    let width = 1 << A::LEVELS[level.index()].contiguous;
    if !index.is_multiple_of(width) {
        return Ok(false);
    }
    let raw = |at: usize| view.hw.load(table, index + at);
    let folded = (0..width).filter(|&at| A::is_folded(raw(at), level)).count();
    let leaf = |at: usize| match A::decode(plain::<A>(raw(at), level, index + at), level) {
        Entry::Leaf { frame, attrs } if attrs.intersects(Attrs::RIGHTS) => Some((frame, attrs)),
        _ => None,
    };
    let fits = leaf(0).is_some_and(|(first, attrs)| {
        let alike = |at: usize| {
            let frame = first.add(at as u64 * A::order(level).pages());
            leaf(at).is_some_and(|(found, also)| found == frame && also - NOTED == attrs - NOTED)
        };
        let folio = view.folios().of(first);
        let one = is_foreign(attrs) || folio.is_some_and(|folio| folio.order >= order);
        first.is_aligned(order.pages()) && one && (0..width).all(alike)
    });
    let fits = fits && view.hw.profile().contiguous;
    match (folded == width, folded == 0, fits) {
        (true, _, true) => Ok(true),
        (_, true, false) => Ok(false),
        (_, true, true) => Err(Violation::Plain(table, index)),
        _ => Err(Violation::Torn(table, index)),
    }
}
