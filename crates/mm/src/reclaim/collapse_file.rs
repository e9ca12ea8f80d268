//! Making one folio of many (`MADV_COLLAPSE`): pages of files, private or shared, code or data.
//!
//! ```text
//!   read missing pages ─── allocate ───── seclude ─ copy ─ into the index ─ free old ones ─ map
//!   │ a store has them     │ no memory    │ held    │ poisoned  │ another page was inserted
//!   ▼                      ▼              '─────────┴───────────┴─► readmit: all as before
//!   return the reads
//! ```
//!
//! Dirty pages stay dirty. A private area's copies stay copies.

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};
use quire_units::{FrameSpan, Order, OrderSet, PageSpan, Prot, Vpn};

use super::Reclaim;
use super::collapse::{Block, Collapsed, Hindrance, NotMade, is_refused};
use crate::base::{AllSpaces, Error, Need, Stop, folios_within};
use crate::cache::{Entry, FilePages, Reads, Store, Window, identity};
use crate::files::{Bound, Mappings, OpenFile};
use crate::folio::{Folio, FolioFlags};
use crate::space::{Area, AreaFlags, Backing, Space};
use crate::stats::Event;
use crate::table::{Gather, Sight, Survey};

/// One aligned block of a file's pages, and its place in an area.
#[derive(Clone, Copy)]
struct Target {
    pages: FilePages,
    order: Order,
    span: PageSpan,
    /// The area's entries say more than where its pages are: a watcher's protection, or writes.
    is_noted: bool,
}

/// The collapse of a file's pages that an area maps.
struct FileCollapse<'a, A, H> {
    reclaim: &'a Reclaim<'a, A, H>,
    space: &'a Space<A>,
    file: OpenFile<'a, A, H>,
    spaces: &'a dyn AllSpaces<A>,
}

impl<A: Arch, H: Hardware> Reclaim<'_, A, H> {
    /// Makes the pages of files that areas map in `span` folios as large as the file's sizes allow
    /// ([`policy`](crate::Files::policy)) and as the pages of the area and of the file are aligned
    /// alike: each aligned block of the file that lies wholly in `span`, in the area, and in the
    /// file. Missing pages of a file in memory are zero. The blocks are then mapped in all
    /// `spaces`, which must be all that may map the files, where their pages may have been mapped.
    ///
    /// A block of another area is [refused](Hindrance::Area) and counts as one.
    ///
    /// # Errors
    /// [`Need::Read`] and [`Need::Wait`] when a page must be read first; [`Error::Failed`] when
    /// that read failed; [`Error::Poisoned`], [`Error::NoMemory`], and [`Error::Invalid`] for pages
    /// that programs may not map. Blocks before the one that failed are done then; that one and
    /// those behind it have not changed, except that pages may have been read into memory, and that
    /// accesses may have to map some again.
    pub fn collapse_file(
        &self,
        space: &Space<A>,
        span: PageSpan,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) -> Result<Collapsed, Stop> {
        if !Space::<A>::may_map(span) {
            return Err(Error::Invalid.into());
        }
        let mut done = Collapsed::default();
        for area in self.spaces().areas(space, span) {
            match area.backing {
                Backing::Anon | Backing::Frames { .. } => {
                    done.add::<Stop>(Err(Hindrance::Area.into()))?
                }
                Backing::File { .. }
                    if is_refused(space, &area) || self.base().whole(area.backing).is_some() =>
                {
                    done.add::<Stop>(Err(Hindrance::Advice.into()))?;
                }
                Backing::File { id, .. } => {
                    let file = self.files().opened(id)?;
                    let collapse = FileCollapse { reclaim: self, space, file, spaces: &spaces };
                    collapse.area(&area, area.span.intersect(span), &mut done)?;
                }
            }
        }
        Ok(done)
    }
}

impl<A: Arch, H: Hardware> FileCollapse<'_, A, H> {
    /// Makes the blocks of one area that lie in `part` folios.
    fn area(&self, area: &Area, part: PageSpan, done: &mut Collapsed) -> Result<(), Stop> {
        let sizes = self.sizes_for(area);
        let Some(unit) = unit(area, sizes) else {
            return done.add::<Stop>(Err(Hindrance::Area.into()));
        };
        let mut at = part.start.align_up(unit.pages()).unwrap_or(part.end);
        while at < part.end {
            let left = PageSpan::new(at, part.end);
            match target(area, left, sizes, self.file.pages()) {
                Some(target) => {
                    done.add(self.block(target))?;
                    at = target.span.end;
                }
                None => at = at.add(unit.pages()),
            }
        }
        Ok(())
    }

    /// The orders that folios of the file may have in an area, as a set. None exceeds the
    /// preference of the area itself.
    fn sizes_for(&self, area: &Area) -> OrderSet {
        let (bounds, own) = (self.file.bounds(), area.flags.read_order());
        let is_code = own.is_some() || area.prot.contains(Prot::EXEC);
        let code = match is_code {
            true => self.reclaim.files().preference_in(area).exec,
            false => OrderSet::EMPTY,
        };
        let most = own.unwrap_or(A::block_order()).min(A::block_order());
        ((bounds.sizes | code) & OrderSet::up_to(most)) - OrderSet::up_to(bounds.smallest)
    }

    /// Makes one block one folio, and maps it.
    fn block(&self, target: Target) -> Result<Block, NotMade<Stop>> {
        let (reclaim, space) = (self.reclaim, self.space);
        let tables = reclaim.base().view(space).tables();
        match self.whole(target) {
            None => {
                self.bring_all(target.pages)?;
                if self.whole(target).is_none() {
                    self.join(target)?;
                }
            }
            Some(_) if tables.survey(target.span, target.order) == Survey::Whole => {
                return Ok(Block::Already);
            }
            Some(folio) => self.unmap_pages(target, folio),
        }
        self.file.show_again(target.pages, Mappings::Anywhere, self.spaces);
        // Where the program has not accessed the block yet, it had no table.
        reclaim.files().map_cached(space, target.span);
        if self.has_copies(target) { Err(Hindrance::Copied.into()) } else { Ok(Block::Made) }
    }

    /// Unmaps a folio that has all of a block and is mapped by pages, so that one entry can map it.
    // The gather is no part of the frame of a caller that goes deeper.
    #[inline(never)]
    fn unmap_pages(&self, target: Target, folio: Folio) {
        if target.order < A::block_order() || target.is_noted {
            return;
        }
        let (base, mut gather) = (self.reclaim.base(), Gather::new());
        let _taking = self.space.taking();
        let is_it = |mapped: Folio| mapped == folio;
        self.reclaim.spaces().detach(self.space, target.span, &mut gather, &is_it);
        base.settle(self.space, &mut gather);
    }

    /// The folio that has all of a block.
    fn whole(&self, target: Target) -> Option<Folio> {
        match self.file.index.find(target.pages.start) {
            (Entry::Folio { folio, .. }, at) if at.covers(target.pages) => Some(folio),
            _ => None,
        }
    }

    /// Checks that all pages of a file with a store are in memory, and those of another that have
    /// left.
    fn bring_all(&self, pages: FilePages) -> Result<(), Stop> {
        let (file, index, mut at) = (&self.file, &self.file.index, pages.start);
        let mut left = pages;
        while let Some((entry, here)) = index.next_content(left) {
            if let Entry::Away { .. } = entry {
                file.come_back(here.start)?;
            }
            left = FilePages::new(here.end, left.end);
        }
        while at < pages.end && file.store() != Some(Store::Memory) {
            let (entry, here) = index.find(at);
            let Entry::Folio { folio, .. } = entry else {
                file.take_read_error(entry, at)?;
                let window = Window::exactly(pages, &file.bounds());
                return Err(Need::Read(Reads::new(index.id, window, Some(at))).into());
            };
            let cached = self.reclaim.base().cached(index.id, here.start, folio);
            if cached.is_some_and(|cached| !cached.known().contains(FolioFlags::UPTODATE)) {
                return Err(Need::Wait(index.id).into());
            }
            at = here.end;
        }
        Ok(())
    }

    /// Replaces all folios in a block by one.
    fn join(&self, target: Target) -> Result<(), NotMade<Stop>> {
        let (base, file) = (self.reclaim.base(), &self.file);
        let run = self.reclaim.folio_frames(target.order, true)?;
        let _reshaping = file.reshaping();
        let hidden = match target.pages.end > file.pages() {
            true => Err(Hindrance::Empty),
            false => {
                file.seclude(target.pages, self.spaces).map(drop).map_err(|kept| kept.why.into())
            }
        };
        if let Err(why) = hidden {
            base.free(run);
            return Err(why.into());
        }
        let copied = self.copy(target.pages, &run);
        let run = run.dirtied();
        let joined = copied.and_then(|()| Ok(self.replace(target, &run)?));
        match joined {
            Ok(()) => base.count(Event::CollapseAlloc, 1),
            Err(_) => {
                file.readmit(target.pages);
                base.free(run);
            }
        }
        joined
    }

    /// Replaces the secluded folios of a block by `run`, a copy of them.
    fn replace(&self, target: Target, run: &FrameRun) -> Result<(), Hindrance> {
        let (base, index) = (self.reclaim.base(), &self.file.index);
        let folios = base.folios();
        let owner = identity(index.id, target.pages.start);
        let folio = folios.adopt_cached(run, target.order, owner, FolioFlags::UPTODATE);
        let mut before = 0;
        let mut gone = |old: Folio| {
            before += old.order.pages();
            base.put(old);
        };
        if !index.join(target.pages.start, folio, &|old| folios.is_secluded(old), &mut gone) {
            folios.unadopt(folio);
            return Err(Hindrance::Held);
        }
        self.file.count_cached(target.pages.count() as i64 - before as i64);
        Ok(())
    }

    /// Fills `run` with the secluded folios of `pages`, and with zeroes where a file in memory has
    /// no folio.
    fn copy(&self, pages: FilePages, run: &FrameRun) -> Result<(), NotMade<Stop>> {
        let there = || folios_within(&self.file.index, pages);
        let present: u64 = there().map(|(_, at)| at.count()).sum();
        if present == 0 {
            return Err(Hindrance::Empty.into());
        }
        if present < pages.count() && self.file.store() != Some(Store::Memory) {
            // A folio has been dropped meanwhile.
            return Err(Hindrance::Held.into());
        }
        let pieces = there().map(|(folio, at)| (at.start - pages.start, folio.span()));
        Ok(self.reclaim.fill(run, pieces)?)
    }

    /// Whether the space has private copies of pages of a block.
    fn has_copies(&self, target: Target) -> bool {
        let Some(whole) = self.whole(target) else { return false };
        let (base, space) = (self.reclaim.base(), self.space);
        let mut pieces = base.view(space).tables().pieces(target.span);
        pieces.any(|seen| match seen.what {
            Sight::Leaf { frame, .. } => {
                let frames = FrameSpan::new(frame, seen.pages.count());
                base.folios().each(frames, |folio, _| folio == whole) < frames.count
            }
            Sight::Marker(_) => true,
        })
    }
}

impl From<Bound> for Hindrance {
    fn from(bound: Bound) -> Self {
        match bound {
            Bound::Held => Hindrance::Held,
            Bound::Failed => Hindrance::Foreign,
            Bound::Tracked => Hindrance::Tracked,
        }
    }
}

/// The smallest of `sizes`, if the pages of an area and of its file are aligned alike to it.
fn unit(area: &Area, sizes: OrderSet) -> Option<Order> {
    let Backing::File { page: at, .. } = area.backing else { return None };
    let unit = sizes.smallest()?;
    let differs = (area.span.start.get() ^ at) & (unit.pages() - 1) != 0;
    (!differs).then_some(unit)
}

/// The largest block of one of `sizes` at the beginning of `left`, a part of an area that maps a
/// file of `end` pages.
fn target(area: &Area, left: PageSpan, sizes: OrderSet, end: u64) -> Option<Target> {
    let Backing::File { page: at, .. } = area.backing_of(left.start) else { return None };
    let room = left.count().min(end.saturating_sub(at));
    let fits = |order: &Order| {
        let aligned = (left.start.get() | at) & (order.pages() - 1) == 0;
        aligned && order.pages() <= room
    };
    let order = sizes.descending(Order::new(1)).find(fits)?;
    let pages = FilePages::block(at, order);
    let span = PageSpan::new(left.start, Vpn::new(left.start.get() + order.pages()));
    let is_noted = area.flags.intersects(AreaFlags::WATCH | AreaFlags::TRACKED);
    Some(Target { pages, order, span, is_noted })
}
