//! Reports about a space: its areas, and the folios in them.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{FrameSpan, Order, PageSpan, Vpn};

use super::Spaces;
use crate::base::Error;
use crate::limits::ORDERS;
use crate::space::{Area, Space};
use crate::stats::Event;
#[cfg(feature = "swap")]
use crate::swap::SwapEntry;
#[cfg(feature = "swap")]
use crate::table::Marks;
use crate::table::{Gather, Seen, Sight, WATCHED, What};

/// The pages of an area that folios of one size map, in base pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SizeOf {
    /// Pages of folios that are mapped whole, at a virtual address aligned to their size.
    pub aligned: u64,
    /// Pages of folios that are mapped whole, at another address.
    pub unaligned: u64,
    /// Pages of folios that are mapped in part.
    pub partial: u64,
}

impl SizeOf {
    /// All of them.
    pub fn pages(&self) -> u64 {
        self.aligned + self.unaligned + self.partial
    }
}

/// An area with its resident memory, by folio size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FolioMap {
    /// The area.
    pub area: Area,
    /// By order of the folio.
    pub sizes: [SizeOf; ORDERS],
    /// Pages mapped by leaves larger than a base page.
    pub by_blocks: u64,
    /// Pages of frames that belong to no folio.
    pub foreign: u64,
}

impl FolioMap {
    /// Resident pages.
    pub fn resident(&self) -> u64 {
        self.sizes.iter().map(SizeOf::pages).sum::<u64>() + self.foreign
    }
}

impl<A: Arch, H: Hardware> Spaces<'_, A, H> {
    /// Calls `tell` with each area of `space` in ascending order, and its resident memory.
    pub fn folio_map(&self, space: &Space<A>, mut tell: impl FnMut(&FolioMap)) {
        let all = Space::<A>::all();
        for area in self.areas(space, all) {
            let mut map =
                FolioMap { area, sizes: [SizeOf::default(); ORDERS], by_blocks: 0, foreign: 0 };
            self.tables(space).tell(area.span, |pages, level, what| {
                if let What::Leaf { frame, .. } = what {
                    if !level.is_last() {
                        map.by_blocks += pages.count();
                    }
                    self.sort(&mut map, pages, FrameSpan::new(frame, pages.count()));
                }
            });
            tell(&map);
        }
    }

    /// The first page of `span` that no area holds; `None` when all of it is covered, or empty.
    pub fn first_hole(&self, space: &Space<A>, span: PageSpan) -> Option<Vpn> {
        match Self::agree(self.areas(space, span), span, |_| Ok(())) {
            Err(Error::NoArea(page)) => Some(page),
            _ => None,
        }
    }

    /// Calls `tell` with the mapped stretches in `span`, ascending, in pieces as long as one table
    /// permits: the frames, the rights, and the accessed and dirty bits, exactly for each page.
    /// Absent pages are skipped. No lock is held while `tell` runs; each piece is the state of a
    /// table at some moment.
    pub fn runs(&self, space: &Space<A>, span: PageSpan, tell: &mut dyn FnMut(&Seen)) {
        let all = Space::<A>::all();
        self.tables(space).pieces(span.intersect(all)).for_each(|seen| tell(&seen));
    }

    /// Clears the accessed bits of the pages of `span` (`/proc/PID/clear_refs`), and flushes all
    /// CPUs: the next access to each shows again. A large leaf or a contiguous block that reaches
    /// across an end of the span stays. Returns how many entries were written.
    pub fn clear_young(&self, space: &Space<A>, span: PageSpan) -> u64 {
        let all = Space::<A>::all();
        let mut gather = Gather::new();
        let entries = self.tables(space).age(span.intersect(all), &mut gather);
        self.base.settle(space, &mut gather);
        self.base.count(Event::EntriesChanged, entries);
        entries
    }

    /// See `Mm::resident`.
    pub(crate) fn resident(&self, space: &Space<A>) -> u64 {
        let mut pages = 0;
        self.folio_map(space, |map| pages += map.resident());
        pages
    }

    /// Pages of `space` that are mapped or on swap devices, by a walk of all its tables: the memory
    /// that would be free if it ended, except for shared pages.
    pub fn footprint(&self, space: &Space<A>) -> u64 {
        self.tables(space).weigh()
    }

    /// Adds a run's pages to the sizes of the folios they belong to.
    fn sort(&self, map: &mut FolioMap, pages: PageSpan, frames: FrameSpan) {
        let folios = self.base.folios();
        let mut page = pages.start;
        let counted = folios.each(frames, |folio, piece| {
            let size = &mut map.sizes[folio.order.index()];
            if piece.count < folio.order.pages() {
                size.partial += piece.count;
            } else if page.is_aligned(Order::pages(folio.order)) {
                size.aligned += piece.count;
            } else {
                size.unaligned += piece.count;
            }
            page = page.add(piece.count);
            true
        });
        map.foreign += frames.count - counted;
    }
}

/// Whether a write to pages in the state `seen` waits for the [watcher](Spaces::write_protect) of
/// their area.
pub fn is_protected(seen: &Seen) -> bool {
    match seen.what {
        Sight::Leaf { attrs, .. } => attrs.contains(WATCHED),
        #[cfg(feature = "swap")]
        Sight::Marker(Marks { first, .. }) if SwapEntry::of(first).is_some() => {
            SwapEntry::of(first).is_some_and(|entry| entry.watched)
        }
        Sight::Marker(_) => seen.is_shielded(),
    }
}
