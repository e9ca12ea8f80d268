//! Collapse in the background: a scan over all spaces for blocks that are worth one folio.
//!
//! ```text
//!   cursor ──► area that wants large folios ──► block: how much of it is present, swapped,
//!                                                      shared, accessed lately?
//!                    enough ──► one folio           too little ──► its parts, in the smaller sizes
//! ```
//!
//! A block must be within the limits of Linux's khugepaged, and the policy says which sizes are
//! wanted. The embedder keeps the cursor, and decides when and how far it moves. Where pages of a
//! block are on a swap device, the scan returns the reads, and the cursor waits.

use quire_arch::{Arch, Attrs};
use quire_hw::Hardware;
use quire_units::{FrameSpan, Order, PageSpan, Vpn};

use super::Reclaim;
use super::collapse::Block;
use crate::base::AllSpaces;
use crate::base::Error;
use crate::cache::Reads;
use crate::space::{Advice, Area, Space};
use crate::stats::Event;
use crate::swap::SwapEntry;
use crate::table::{Seen, Sight, Survey};

/// The limits for a block that is collapsed: counts of base pages, in a block of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanLimits {
    /// Missing pages, at most (`max_ptes_none`). For smaller sizes none may be missing, unless this
    /// allows all but one: else each collapse would grow by the pages that the last one filled.
    pub none: u64,
    /// Pages on swap devices, at most (`max_ptes_swap`). For smaller sizes none.
    pub swapped: u64,
    /// Pages of shared folios, at most (`max_ptes_shared`). For smaller sizes none.
    pub shared: u64,
    /// Try as hard for the folio as for a page (`defrag`).
    pub hard: bool,
}

/// The place where a scan continues. It begins with the default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScanCursor {
    root: u64,
    page: u64,
}

/// The result of a part of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Scanned {
    /// Scanned pages, and one for each skipped area.
    pub pages: u64,
    /// Folios that were made.
    pub made: u64,
    /// Their pages.
    pub collapsed: u64,
    /// The scan has been through all spaces.
    pub is_round: bool,
    /// There was no memory for a folio.
    pub starved: bool,
    /// Pages to be read before the scan goes on.
    pub reads: Option<Reads>,
}

/// The contents of a block.
#[derive(Clone, Copy, Default)]
struct Census {
    there: u64,
    swapped: u64,
    shared: u64,
    /// A page of it was accessed lately.
    is_young: bool,
}

/// A scan under way.
struct Scan<'s> {
    limits: &'s ScanLimits,
    /// The pages to scan.
    pages: u64,
    done: Scanned,
}

impl Scan<'_> {
    fn is_over(&self) -> bool {
        self.done.pages >= self.pages || self.done.reads.is_some() || self.done.starved
    }
}

impl<A: Arch, H: Hardware> Reclaim<'_, A, H> {
    /// Scans about `pages` pages of the `spaces` from `cursor` on, or up to the end of the last
    /// space, and collapses each block within the limits.
    pub fn scan(
        &self,
        cursor: &mut ScanCursor,
        pages: u64,
        limits: &ScanLimits,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) -> Scanned {
        let mut scan = Scan { limits, pages, done: Scanned::default() };
        let (begin, mut stopped) = (*cursor, false);
        let mut is_found = begin == ScanCursor::default();
        spaces.visit(&mut |space| {
            let root = space.root().get();
            let is_here = root == begin.root;
            is_found |= is_here;
            if is_found && !stopped {
                let from = if is_here { begin.page } else { 0 };
                let page = self.scan_space(space, Vpn::new(from), &mut scan).get();
                stopped = page < A::USER_PAGES;
                *cursor = ScanCursor { root, page };
            }
        });
        if !stopped {
            // If the cursor's space is gone, the round ends without being counted.
            scan.done.is_round = is_found;
            *cursor = ScanCursor::default();
        }
        scan.done
    }

    /// Scans a space; returns the page to continue at.
    fn scan_space(&self, space: &Space<A>, from: Vpn, scan: &mut Scan<'_>) -> Vpn {
        let (mut at, end) = (from, Vpn::new(A::USER_PAGES));
        while at < end {
            if scan.is_over() {
                return at;
            }
            let Some(area) = self.spaces().areas(space, PageSpan::new(at, end)).next() else {
                break;
            };
            let sizes = self.base().policy.candidates(Advice::of(area.flags), space.opt_out());
            let sizes = sizes & ((2 << A::block_order().get()) - 1);
            if !area.is_private_anon() || sizes == 0 {
                scan.done.pages += 1;
                at = area.span.end;
                continue;
            }
            let start = at.max(area.span.start);
            let block = PageSpan::block(start, A::block_order());
            let window = block.intersect(area.span);
            scan.done.pages += window.count();
            self.scan_block(space, (&area, window), sizes, scan);
            at = if scan.done.reads.is_some() { start } else { window.end };
        }
        end
    }

    /// Collapses the part of a block within its area into one folio, or into smaller ones.
    fn scan_block(
        &self,
        space: &Space<A>,
        (area, window): (&Area, PageSpan),
        sizes: u32,
        scan: &mut Scan<'_>,
    ) {
        if self.base().view(space).tables().look(window).is_none() {
            return;
        }
        for order in (1..=A::block_order().get()).rev().map(Order::new) {
            if sizes >> order.get() & 1 == 0 {
                continue;
            }
            let first = window.start.get().next_multiple_of(order.pages());
            let mut block = PageSpan::block(Vpn::new(first), order);
            let mut all = block.end <= window.end;
            while block.end <= window.end {
                match self.scan_one(space, area, (block, order), scan) {
                    Ok(is_whole) => all &= is_whole,
                    Err(error) => {
                        scan.done.starved |= matches!(error, Error::NoMemory(_));
                        return;
                    }
                }
                block = PageSpan::new(block.end, block.end.add(order.pages()));
            }
            if all || scan.done.reads.is_some() {
                return;
            }
        }
    }

    /// Collapses a block if it is within the limits; returns whether it is one folio now.
    fn scan_one(
        &self,
        space: &Space<A>,
        area: &Area,
        (block, order): (PageSpan, Order),
        scan: &mut Scan<'_>,
    ) -> Result<bool, Error> {
        // The survey is a hint, but mostly right, and then no fault has to wait.
        if self.base().view(space).tables().survey(block, order) == Survey::Whole {
            return Ok(true);
        }
        let limits = limits_of::<A>(scan.limits, order);
        let census = self.census(space, block);
        if let Some(event) = limits.exceeded(&census, order) {
            self.base().count(event, 1);
            return Ok(false);
        }
        if census.there == 0 || !census.is_young || !self.base().groups.affords(space, order) {
            return Ok(false);
        }
        if census.swapped > 0 {
            scan.done.reads = self.bring_back(space, block)?;
            if scan.done.reads.is_some() {
                return Ok(false);
            }
        }
        debug_assert!(area.span.covers(block), "sizes are tried within the area");
        let mut change = self.base().change(space);
        change.hold(block);
        let done = self.collapse_block(space, &mut change, block, (order, limits.hard))?;
        drop(change);
        if matches!(done, Ok(Block::Made)) {
            scan.done.made += 1;
            scan.done.collapsed += order.pages();
        }
        Ok(done.is_ok())
    }

    /// Counts the contents of a block.
    fn census(&self, space: &Space<A>, block: PageSpan) -> Census {
        let folios = self.base().folios();
        let mut census = Census::default();
        for seen in self.base().view(space).tables().pieces(block) {
            match seen.what {
                Sight::Leaf { frame, attrs, .. } => {
                    census.there += seen.pages.count();
                    census.is_young |= attrs.contains(Attrs::YOUNG);
                    folios.each(FrameSpan::new(frame, seen.pages.count()), |folio, piece| {
                        let mapped = u64::from(folios.counts(folio).mapped);
                        census.shared += if mapped > folio.order.pages() { piece.count } else { 0 };
                        true
                    });
                }
                Sight::Marker(marks) if SwapEntry::of(marks.first).is_some() => {
                    census.swapped += seen.pages.count();
                }
                // The collapse refuses pages with other marks.
                Sight::Marker(_) => census.there += seen.pages.count(),
            }
        }
        census
    }

    /// Maps the pages of a block that are on swap devices; returns the reads that must come first.
    fn bring_back(&self, space: &Space<A>, block: PageSpan) -> Result<Option<Reads>, Error> {
        let is_swapped = |seen: &Seen| match seen.what {
            Sight::Marker(marks) => SwapEntry::of(marks.first).is_some(),
            Sight::Leaf { .. } => false,
        };
        let mut left = block;
        while let Some(seen) = self.base().view(space).tables().pieces(left).find(is_swapped) {
            match self.paging().swap_in_page(space, seen.pages.start) {
                Ok(()) => left = PageSpan::new(seen.pages.start.add(1), block.end),
                Err(Error::Unread(reads)) => return Ok(Some(reads)),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

/// The limits for blocks of `order`.
fn limits_of<A: Arch>(limits: &ScanLimits, order: Order) -> ScanLimits {
    if order == A::block_order() {
        return *limits;
    }
    let all_but_one = limits.none + 1 >= A::block_order().pages();
    let none = if all_but_one { order.pages() - 1 } else { 0 };
    ScanLimits { none, swapped: 0, shared: 0, ..*limits }
}

impl ScanLimits {
    /// The counter of the limit that a block of `order` exceeds.
    fn exceeded(&self, census: &Census, order: Order) -> Option<Event> {
        let none = order.pages() - (census.there + census.swapped).min(order.pages());
        if census.swapped > self.swapped {
            Some(Event::ScanSwapped)
        } else if none > self.none {
            Some(Event::ScanNone)
        } else if census.shared > self.shared {
            Some(Event::ScanShared)
        } else {
            None
        }
    }
}
