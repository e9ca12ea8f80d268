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
use quire_units::{FrameSpan, Order, OrderSet, PageSpan, Vpn};

use super::Reclaim;
use super::collapse::{Block, NotMade, blocks};
use crate::base::{AllSpaces, Error, Need, Stop};
use crate::cache::Reads;
use crate::space::{Advice, Space};
use crate::stats::Event;
use crate::swap::SwapEntry;
use crate::table::{Sight, Survey};

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
struct Scan<'a, A, H> {
    reclaim: &'a Reclaim<'a, A, H>,
    limits: &'a ScanLimits,
    /// The pages to scan.
    pages: u64,
    done: Scanned,
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
        let mut scan = Scan { reclaim: self, limits, pages, done: Scanned::default() };
        let (begin, mut stopped) = (*cursor, false);
        let mut is_found = begin == ScanCursor::default();
        spaces.visit(&mut |space| {
            let root = space.root().get();
            let is_here = root == begin.root;
            is_found |= is_here;
            if is_found && !stopped {
                let from = if is_here { begin.page } else { 0 };
                let page = scan.space(space, Vpn::new(from)).get();
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
}

impl<A: Arch, H: Hardware> Scan<'_, A, H> {
    fn is_over(&self) -> bool {
        self.done.pages >= self.pages || self.done.reads.is_some() || self.done.starved
    }

    /// Scans a space; returns the page to continue at.
    fn space(&mut self, space: &Space<A>, from: Vpn) -> Vpn {
        let (mut at, end) = (from, Vpn::new(A::USER_PAGES));
        while at < end {
            if self.is_over() {
                return at;
            }
            let mut areas = self.reclaim.spaces().areas(space, PageSpan::new(at, end));
            let Some(area) = areas.next() else { break };
            let advice = Advice::of(area.flags);
            let sizes = self.reclaim.base().policy.candidates(advice, space.opt_out());
            let sizes = sizes & OrderSet::up_to(A::block_order());
            if !area.is_private_anon() || sizes.is_empty() {
                self.done.pages += 1;
                at = area.span.end;
                continue;
            }
            let start = at.max(area.span.start);
            let window = PageSpan::block(start, A::block_order()).intersect(area.span);
            self.done.pages += window.count();
            if let Err(error) = self.window(space, window, sizes) {
                self.done.starved |= matches!(error, Stop::Refuse(Error::NoMemory(_)));
            }
            at = if self.done.reads.is_some() { start } else { window.end };
        }
        end
    }

    /// Collapses the part of a block within its area into one folio, or into smaller ones.
    fn window(&mut self, space: &Space<A>, window: PageSpan, sizes: OrderSet) -> Result<(), Stop> {
        if self.reclaim.base().view(space).tables().look(window).is_none() {
            return Ok(());
        }
        for order in sizes.descending(Order::new(1)) {
            // Pages that no block of this size covers may be worth a smaller one.
            let edges = window.start.get() | window.end.get();
            let mut all = edges.is_multiple_of(order.pages());
            for block in blocks(window, order) {
                all &= self.block(space, block, order)?;
            }
            if all || self.done.reads.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Collapses a block if it is within the limits; returns whether it is one folio now.
    fn block(&mut self, space: &Space<A>, block: PageSpan, order: Order) -> Result<bool, Stop> {
        let base = self.reclaim.base();
        // The survey is a hint, but mostly right, and then no fault has to wait.
        if base.view(space).tables().survey(block, order) == Survey::Whole {
            return Ok(true);
        }
        let census = self.census(space, block);
        if let Some(event) = self.limits.exceeded::<A>(&census, order) {
            base.count(event, 1);
            return Ok(false);
        }
        if census.there == 0 || !census.is_young || !base.groups.affords(space, order) {
            return Ok(false);
        }
        if census.swapped > 0 {
            self.done.reads = self.bring_back(space, block)?;
            if self.done.reads.is_some() {
                return Ok(false);
            }
        }
        match self.reclaim.collapse_block(space, block, self.limits.hard) {
            Ok(Block::Made) => {
                self.done.made += 1;
                self.done.collapsed += order.pages();
                Ok(true)
            }
            Ok(Block::Already) => Ok(true),
            Err(NotMade::Refused(_)) => Ok(false),
            Err(NotMade::Failed(error)) => Err(error.into()),
        }
    }

    /// Counts the contents of a block.
    fn census(&self, space: &Space<A>, block: PageSpan) -> Census {
        let folios = self.reclaim.base().folios();
        let mut census = Census::default();
        for seen in self.reclaim.base().view(space).tables().pieces(block) {
            let pages = seen.pages.count();
            match seen.what {
                Sight::Leaf { frame, attrs, .. } => {
                    census.there += pages;
                    census.is_young |= attrs.contains(Attrs::YOUNG);
                    folios.each(FrameSpan::new(frame, pages), |folio, piece| {
                        census.shared += if folios.is_shared(folio) { piece.count } else { 0 };
                        true
                    });
                }
                Sight::Marker(marks) if SwapEntry::of(marks.first).is_some() => {
                    census.swapped += pages;
                }
                // The collapse refuses pages with other marks.
                Sight::Marker(_) => census.there += pages,
            }
        }
        census
    }

    /// Maps the pages of a block that are on swap devices; returns the reads that must come first.
    fn bring_back(&self, space: &Space<A>, block: PageSpan) -> Result<Option<Reads>, Stop> {
        let paging = self.reclaim.paging();
        let mut left = block;
        while let Some((pages, _)) = paging.entries(space, left).next() {
            match paging.swap_in_page(space, pages.start) {
                Ok(()) => left = PageSpan::new(pages.start.add(1), block.end),
                Err(Stop::Need(Need::Read(reads))) => return Ok(Some(reads)),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

impl ScanLimits {
    /// The counter of the limit that a block of `order` exceeds.
    fn exceeded<A: Arch>(&self, census: &Census, order: Order) -> Option<Event> {
        let all_but_one = self.none + 1 >= A::block_order().pages();
        let (none, swapped, shared) = match order == A::block_order() {
            true => (self.none, self.swapped, self.shared),
            false => (if all_but_one { order.pages() - 1 } else { 0 }, 0, 0),
        };
        if census.swapped > swapped {
            Some(Event::ScanSwapped)
        } else if order.pages().saturating_sub(census.there + census.swapped) > none {
            Some(Event::ScanNone)
        } else if census.shared > shared {
            Some(Event::ScanShared)
        } else {
            None
        }
    }
}
