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
use quire_hw::{FrameRun, Hardware, Reuse};
use quire_units::{FrameSpan, Order, PageSpan, Prot, Vpn};

use super::Reclaim;
use super::collapse::{Block, Collapsed, Hindrance};
use crate::base::{AllSpaces, Error, folios_within};
use crate::cache::{Entry, FileId, FilePages, Index, Reads, Store, Window, identity};
use crate::files::Bound;
use crate::folio::FolioFlags;
use crate::space::{Advice, Area, Backing, OptOut, Space};
use crate::stats::Event;
use crate::table::{Sight, Survey};

/// One aligned block of a file's pages, and its place in an area.
#[derive(Clone, Copy)]
struct Target {
    pages: FilePages,
    order: Order,
    span: PageSpan,
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
    /// [`Error::Unread`] and [`Error::Busy`] when a page must be read first; [`Error::Failed`] when
    /// that read failed; [`Error::Poisoned`], [`Error::NoMemory`], and [`Error::Invalid`] for pages
    /// that programs may not map. Blocks before the one that failed are done then; that one and
    /// those behind it have not changed, except that pages may have been read into memory, and that
    /// accesses may have to map some again.
    pub fn collapse_file(
        &self,
        space: &Space<A>,
        span: PageSpan,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) -> Result<Collapsed, Error> {
        if !Space::<A>::may_map(span) {
            return Err(Error::Invalid);
        }
        let mut done = Collapsed::default();
        let mut at = span.start;
        while let Some(area) = self.spaces().areas(space, PageSpan::new(at, span.end)).next() {
            let part = area.span.intersect(PageSpan::new(at, span.end));
            at = part.end;
            let refused =
                Advice::of(area.flags) == Advice::NoHuge || space.opt_out() == OptOut::All;
            match area.backing {
                Backing::Anon => done.add(Err(Hindrance::Area)),
                Backing::File { .. } if refused => done.add(Err(Hindrance::Advice)),
                Backing::File { id, .. } => {
                    self.collapse_area(space, (&area, part), id, spaces, &mut done)?;
                }
            }
        }
        Ok(done)
    }

    /// The same for the blocks of one area.
    fn collapse_area(
        &self,
        space: &Space<A>,
        (area, part): (&Area, PageSpan),
        id: FileId,
        spaces: &(impl AllSpaces<A> + ?Sized),
        done: &mut Collapsed,
    ) -> Result<(), Error> {
        let index = self.base().index(id)?;
        let sizes = self.sizes_for(area, &index);
        let Some(unit) = unit(area, sizes) else {
            done.add(Err(Hindrance::Area));
            return Ok(());
        };
        let mut at = part.start.align_up(unit.pages()).unwrap_or(part.end);
        while at < part.end {
            match target::<A>(area, PageSpan::new(at, part.end), sizes, index.file.pages()) {
                Some(target) => {
                    done.add(self.collapse_target(space, &index, target, spaces)?);
                    at = target.span.end;
                }
                None => at = at.add(unit.pages()),
            }
        }
        Ok(())
    }

    /// The orders that folios of a file may have in an area, as a set. None exceeds the preference
    /// of the area itself.
    fn sizes_for(&self, area: &Area, index: &Index<'_, A, H>) -> u32 {
        let bounds = self.base().file_policy.bounds(index.file.pages(), index.file.smallest());
        let own = area.flags.read_order();
        let code = if own.is_some() || area.prot.contains(Prot::EXEC) {
            self.files().preference_in(area).exec
        } else {
            0
        };
        let up_to = |order: Order| (2_u32 << order.get()) - 1;
        let most = own.unwrap_or(A::block_order()).min(A::block_order());
        (bounds.sizes | code) & up_to(most) & !up_to(bounds.smallest)
    }

    /// Makes one block one folio, and maps it.
    fn collapse_target(
        &self,
        space: &Space<A>,
        index: &Index<'_, A, H>,
        target: Target,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) -> Result<Result<Block, Hindrance>, Error> {
        let tables = self.base().view(space).tables();
        let is_one = |(entry, at): (Entry, FilePages)| {
            matches!(entry, Entry::Folio { .. }) && at.covers(target.pages)
        };
        let was_one = is_one(index.find(target.pages.start));
        if was_one && tables.survey(target.span, target.order) == Survey::Whole {
            return Ok(Ok(Block::Already));
        }
        if !was_one {
            self.bring_all(index, target.pages)?;
            if !is_one(index.find(target.pages.start))
                && let Err(why) = self.join_pages(index, target, spaces)?
            {
                return Ok(Err(why));
            }
        }
        self.files().with(index).show_again(target.pages, spaces);
        // Where the program has not accessed the block yet, it had no table.
        self.files().map_cached(space, target.span);
        let own = self.has_copies(space, index, target);
        Ok(if own { Err(Hindrance::Copied) } else { Ok(Block::Made) })
    }

    /// Checks that all pages of a file with a store are in memory.
    fn bring_all(&self, index: &Index<'_, A, H>, pages: FilePages) -> Result<(), Error> {
        if index.file.store() == Some(Store::Memory) {
            return Ok(());
        }
        let mut at = pages.start;
        while at < pages.end {
            let (entry, here) = index.find(at);
            let Entry::Folio { folio, .. } = entry else {
                self.files().with(index).take_read_error(entry, at)?;
                let bounds =
                    self.base().file_policy.bounds(index.file.pages(), index.file.smallest());
                let window = Window::exactly(pages, &bounds);
                return Err(Error::Unread(Reads::new(index.id, window, Some(at))));
            };
            let folios = self.base().folios();
            let cached = folios.cached(folio.head, identity(index.id, here.start));
            if cached.is_some_and(|cached| !cached.known().contains(FolioFlags::UPTODATE)) {
                return Err(Error::Busy(index.id));
            }
            at = here.end;
        }
        Ok(())
    }

    /// Replaces all folios in a block by one.
    fn join_pages(
        &self,
        index: &Index<'_, A, H>,
        target: Target,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) -> Result<Result<(), Hindrance>, Error> {
        let run = self.base().frames(target.order, true).inspect_err(|_| {
            self.base().count(Event::CollapseFailed, 1);
        })?;
        let _reshaping = index.file.reshaping();
        if target.pages.end > index.file.pages() {
            self.base().free(run);
            return Ok(Err(Hindrance::Empty));
        }
        if let Err(bound) = self.files().with(index).seclude(target.pages, spaces) {
            self.base().free(run);
            return Ok(Err(bound.into()));
        }
        let run = match self.copy_folios(index, target.pages, run) {
            Ok(run) => run,
            Err((run, why)) => {
                self.files().with(index).readmit(target.pages);
                self.base().free(run);
                return why;
            }
        };
        Ok(self.put_joined(index, target, run))
    }

    /// Replaces the secluded folios of a block by `run`, a copy of them.
    fn put_joined(
        &self,
        index: &Index<'_, A, H>,
        target: Target,
        run: FrameRun,
    ) -> Result<(), Hindrance> {
        let folios = self.base().folios();
        let owner = identity(index.id, target.pages.start);
        let folio = folios.adopt_cached(&run, target.order, owner, FolioFlags::UPTODATE);
        let mut before = 0;
        let joined =
            index.join(target.pages.start, folio, &|old| folios.is_secluded(old), &mut |old| {
                before += old.order.pages();
                if let Some(run) = folios.put(old) {
                    self.base().free(run);
                }
            });
        if !joined {
            self.files().with(index).readmit(target.pages);
            folios.unadopt(folio);
            self.base().free(run.dirtied());
            return Err(Hindrance::Held);
        }
        index.file.count_cached(target.pages.count() as i64 - before as i64);
        self.base().count(Event::CollapseAlloc, 1);
        Ok(())
    }

    /// Fills `run` with the secluded folios of `pages`, and with zeroes where a file in memory has
    /// no folio.
    #[expect(clippy::type_complexity, reason = "the run comes back with whatever it was")]
    fn copy_folios(
        &self,
        index: &Index<'_, A, H>,
        pages: FilePages,
        run: FrameRun,
    ) -> Result<FrameRun, (FrameRun, Result<Result<(), Hindrance>, Error>)> {
        let mut upto = pages.start;
        let zero = |from: u64, to: u64| {
            if from == to {
                return Ok(());
            }
            if index.file.store() != Some(Store::Memory) {
                // A folio has been dropped meanwhile.
                return Err(Ok(Err(Hindrance::Held)));
            }
            if !run.is_zeroed() {
                self.base().hw.clear(&run, from - pages.start..to - pages.start, Reuse::Later);
            }
            Ok(())
        };
        let copied = folios_within(index, pages).try_for_each(|(folio, at)| {
            zero(upto, at.start)?;
            upto = at.end;
            let copied = self.base().hw.copy(&run, at.start - pages.start, folio.span());
            copied.map_err(|poisoned| Err(poisoned.into()))
        });
        let done = copied.and_then(|()| match upto == pages.start {
            true => Err(Ok(Err(Hindrance::Empty))),
            false => zero(upto, pages.end),
        });
        match done {
            Ok(()) => Ok(run),
            Err(why) => Err((run, why)),
        }
    }

    /// Whether a space has private copies of pages of a block.
    fn has_copies(&self, space: &Space<A>, index: &Index<'_, A, H>, target: Target) -> bool {
        let folios = self.base().folios();
        let Entry::Folio { folio: whole, .. } = index.find(target.pages.start).0 else {
            return false;
        };
        let mut pieces = self.base().view(space).tables().pieces(target.span);
        pieces.any(|seen| match seen.what {
            Sight::Leaf { frame, .. } => {
                let frames = FrameSpan::new(frame, seen.pages.count());
                folios.each(frames, |folio, _| folio == whole) < frames.count
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
fn unit(area: &Area, sizes: u32) -> Option<Order> {
    let Backing::File { page: at, .. } = area.backing else { return None };
    let unit = Order::new(sizes.trailing_zeros() as u8);
    let differs = (area.span.start.get() ^ at) & (unit.pages() - 1) != 0;
    (sizes != 0 && !differs).then_some(unit)
}

/// The largest block of one of `sizes` at the beginning of `left`, a part of an area that maps a
/// file of `end` pages.
fn target<A: Arch>(area: &Area, left: PageSpan, sizes: u32, end: u64) -> Option<Target> {
    let Backing::File { page: at, .. } = area.backing_of(left.start) else { return None };
    let room = left.count().min(end.saturating_sub(at));
    let fits = |order: &Order| {
        let aligned = (left.start.get() | at) & (order.pages() - 1) == 0;
        sizes >> order.get() & 1 != 0 && aligned && order.pages() <= room
    };
    let order = (1..=A::block_order().get()).rev().map(Order::new).find(fits)?;
    let pages = FilePages::block(at, order);
    let span = PageSpan::new(left.start, Vpn::new(left.start.get() + order.pages()));
    Some(Target { pages, order, span })
}
