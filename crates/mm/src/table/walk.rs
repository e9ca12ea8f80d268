//! Walking down a tree of tables without a lock.

use core::marker::PhantomData;

use quire_arch::{Arch, Entry, Level};
use quire_hw::{FrameRun, Hardware, Pieces, Transitions};
use quire_units::{Order, PageSpan, Pfn, Vpn};

use super::Gather;
use super::gather::{Target, invalidations};
use super::word::plain;
use crate::folio::Home;
use crate::phys::{Flushed, Kind, Meta};
use crate::stats::{Counters, Event};
use crate::sync::Ordering;

/// One tree of page tables: a view that is cheap to make and to copy.
pub struct Tables<'a, A, H> {
    pub(super) hw: &'a H,
    pub(super) meta: Meta<'a>,
    /// The CPUs that may hold its translations, for the flush inside a break-before-make.
    pub(super) target: Target<'a>,
    counters: &'a [Counters],
    arch: PhantomData<A>,
}

impl<A, H> Clone for Tables<'_, A, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A, H> Copy for Tables<'_, A, H> {}

/// Where a walk ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The table.
    pub frame: Pfn,
    /// Its level.
    pub level: Level,
    /// The word found in it, as it would be outside of a contiguous block.
    pub word: u64,
}

impl Place {
    /// Whether it is a base page's leaf for `frame`.
    #[inline]
    pub(super) fn maps<A: Arch>(self, frame: Pfn) -> bool {
        let found = A::decode(self.word, self.level);
        self.level.is_last() && matches!(found, Entry::Leaf { frame: there, .. } if there == frame)
    }
}

impl<'a, A: Arch, H: Hardware> Tables<'a, A, H> {
    /// The tree under the root of `target`, which [`found`](Self::found) has made. Events are
    /// counted in the CPU's own of `counters`, if it has one.
    #[inline]
    pub fn new(hw: &'a H, meta: Meta<'a>, counters: &'a [Counters], target: Target<'a>) -> Self {
        Self { hw, meta, target, counters, arch: PhantomData }
    }

    /// Makes the one frame of `run` the root of a new tree, which no CPU uses. Its words are zero,
    /// but for those beyond the user half of the address space, which belong to the embedder.
    pub fn found(hw: &'a H, meta: Meta<'a>, run: FrameRun) -> Self {
        let target = Target { tag: None, root: run.start() };
        let tables = Self::new(hw, meta, &[], target);
        tables.adopt(run, A::ROOT, Vpn::new(0));
        tables
    }

    /// The frame of the top-level table.
    #[inline]
    pub fn root(&self) -> Pfn {
        self.target.root
    }

    /// The name of `page` of this tree in a folio's slot.
    #[inline]
    pub(crate) fn home(&self, page: Vpn) -> Home {
        Home::new(self.root(), page)
    }

    /// Counts for the CPU that runs this.
    #[inline]
    pub(super) fn count(&self, event: Event, count: u64) {
        if let Some(own) = self.counters.get(self.hw.cpu().index()) {
            own.add(event, count);
        }
    }

    /// Whether live entries may change size and contiguity without a break-before-make.
    #[inline]
    pub(super) fn is_relaxed(&self) -> bool {
        self.hw.profile().transitions == Transitions::BbmLevel2
    }

    /// The flush inside a break-before-make: the entries of `pages` are zero now.
    pub(super) fn broken(&self, pages: PageSpan, stride: Order) {
        self.count(Event::Break, 1);
        self.flush(pages, stride);
    }

    /// Flushes the translations of `pages`, mapped by entries of `stride`, at once, while a table
    /// is locked. A tree without users, such as that of a child that is being made, needs none.
    pub(super) fn flush(&self, pages: PageSpan, stride: Order) {
        let flush = self.target.order(Some(Pieces::new(pages, stride)), false);
        let Some(flush) = flush.filter(|flush| !flush.cpus.is_empty()) else { return };
        self.hw.flush(&flush);
        self.count(Event::Flush, 1);
        self.count(Event::Invalidations, invalidations(&flush));
    }

    /// Flushes all translations of the tree, which no CPU will use again; a gather to take it down.
    pub(crate) fn retire(&self) -> Gather {
        let flush = self.target.order(None, true);
        let flush = flush.filter(|flush| !flush.cpus.is_empty());
        if let Some(flush) = &flush {
            self.count(Event::Flush, 1);
            self.count(Event::Invalidations, invalidations(flush));
        }
        Gather::unused(Flushed::by(self.hw, flush.as_ref()))
    }

    /// Records the one frame of `run` as a table of this tree.
    pub(super) fn adopt(&self, run: FrameRun, level: Level, base: Vpn) -> Pfn {
        let slot = self.meta.at(run.start());
        slot.owner.store(base.get(), Ordering::Relaxed);
        slot.links[0].store(self.meta.index(self.root()), Ordering::Relaxed);
        self.meta.adopt(run, Kind::Table, level.index() as u8)
    }

    /// The first page that the table of `level` which translates `page` translates.
    #[inline]
    pub(super) fn base(page: Vpn, level: Level) -> Vpn {
        page.align_down(A::order(level).pages() * A::entries(level) as u64)
    }

    /// The pages that the table of `level` which translates `page` translates.
    #[inline]
    pub(super) fn reach(page: Vpn, level: Level) -> PageSpan {
        let start = Self::base(page, level);
        PageSpan::new(start, start.add(A::order(level).pages() * A::entries(level) as u64))
    }

    /// The lowest table that translates `page`, but not below `least`, and its word for the page.
    /// A hint: it may be out of date, so lock the table and ask before acting.
    #[inline(never)]
    pub fn walk(&self, page: Vpn, least: Level) -> Place {
        self.walk_here(page, least)
    }

    /// The same, as a part of its caller.
    #[inline(always)]
    pub(super) fn walk_here(&self, page: Vpn, least: Level) -> Place {
        let mut frame = self.root();
        let mut level = A::ROOT;
        loop {
            let index = A::index(page, level);
            let raw = self.hw.load(frame, index);
            // No folded word is taken for a lower table.
            if level != least
                && let (Entry::Table(lower), Some(child)) = (A::decode(raw, level), level.child())
            {
                (frame, level) = (lower, child);
                continue;
            }
            return Place { frame, level, word: plain::<A>(raw, level, index) };
        }
    }

    /// The first page beyond what a walk for `page` found at `place`, which is no lower table: the
    /// leaf, or the absent entries. A hint, as the place is.
    pub(super) fn beyond(&self, place: Place, page: Vpn) -> Vpn {
        let Place { frame, level, word } = place;
        let index = A::index(page, level);
        let most = A::entries(level) - index;
        let absent = if word == 0 { self.hw.count_run(frame, index, most, 0, 0) } else { 1 };
        let block = A::order(level);
        page.align_down(block.pages()).add((absent.max(1) as u64) << block.get())
    }
}
