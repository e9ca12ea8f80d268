//! Areas that show frames by number: registers of a device, and RAM that the embedder owns.
//!
//! ```text
//!   ForeignFrames   no RAM of the library      map them, as often as wanted, for ever
//!   LentFrames      a run that was taken out   map them; each mapped page counts; take them back
//!                                              when none is left, or release them to the last one
//! ```
//!
//! Such an area has all its leaves from the beginning, and keeps them: a leaf *is* the right to its
//! frame, which a fault could not show again. A fork copies the leaves, a move moves them, other
//! rights change them, and unmapping takes them. Nothing ages, copies, pages out or collapses them.

use core::ops::Range;

use quire_arch::{Arch, Attrs};
use quire_hw::{ForeignFrames, FrameRun, Hardware, TypedBy};
use quire_units::{FrameSpan, MemoryType, Order, PageSpan, Prot};

use super::Spaces;
use crate::base::{Change, Error};
use crate::folio::Folio;
use crate::limits::ORDER_MAX;
use crate::space::{Area, AreaFlags, At, Backing, Request, Space};
use crate::table::Taking;

/// A run of RAM that the embedder took out of the library and lends to areas: a ring that it shares
/// with a program or a device.
///
/// It counts the pages that areas map. So [`take_back`](Spaces::take_back) returns the run only
/// when no CPU can reach it through a space any more.
#[derive(Debug)]
#[must_use = "take the frames back, or release them to the last area that maps them"]
pub struct LentFrames {
    folio: Folio,
}

impl LentFrames {
    /// Which frames.
    pub fn span(&self) -> FrameSpan {
        self.folio.span()
    }
}

/// The right to the frames that an area is to show.
#[derive(Debug)]
#[non_exhaustive]
pub enum FrameSource<'a> {
    /// Frames that are none of the library's.
    Foreign(ForeignFrames),
    /// Those of a lent run with these numbers, counted from its first. Their memory type is the
    /// usual one, as that of all RAM that the library handles.
    Lent(&'a LentFrames, Range<u64>),
}

impl From<ForeignFrames> for FrameSource<'_> {
    fn from(frames: ForeignFrames) -> Self {
        Self::Foreign(frames)
    }
}

impl<'a> From<&'a LentFrames> for FrameSource<'a> {
    fn from(lent: &'a LentFrames) -> Self {
        Self::Lent(lent, 0..lent.span().count)
    }
}

/// The flags that an area of frames cannot have.
const UNFIT: AreaFlags = AreaFlags::GROWS_DOWN
    .union(AreaFlags::WIPEONFORK)
    .union(AreaFlags::TRACKED)
    .union(AreaFlags::WATCH)
    .union(AreaFlags::SEALED)
    .union(AreaFlags::DROPPABLE)
    .union(AreaFlags::READ_ORDER);

impl<A: Arch, H: Hardware> Spaces<'_, A, H> {
    /// Maps an area that shows `frames`, and returns its pages. All of them are mapped at once, by
    /// leaves and contiguous blocks as large as the alignment of page and frame allows
    /// ([`Arch::block_order`] at most); without a fixed place, the place is aligned for that.
    ///
    /// `request` has as many pages as there are frames, and no backing of its own. The area is
    /// shared ([`AreaFlags::SHARED`]): a child maps the same frames. Registers and combining memory
    /// are never executable, so [`max_prot`](Request::max_prot) loses that right for them. The area
    /// may be protected, split, moved, made smaller, sealed and unmapped. Its pages count as
    /// written where writes are tracked. [`discard`](crate::Mm::discard), [`guard`](Self::guard),
    /// lazy freeing, pins, collapse, and growth are errors, mostly [`Error::Invalid`]. Reclaim,
    /// aging and swap pass it, and no group pays for it.
    ///
    /// ```
    /// # use quire::{Error, LentFrames, Mm, arch::Arch, hw::{ForeignFrames, Hardware}};
    /// # use quire::space::{Request, Space};
    /// # use quire::units::{MemoryType, PageSpan};
    /// /// Shows a program the first page of a device, and a ring.
    /// fn show<A: Arch, H: Hardware>(
    ///     mm: &Mm<'_, A, H>,
    ///     space: &Space<A>,
    ///     clock: ForeignFrames,
    ///     ring: &LentFrames,
    /// ) -> Result<(PageSpan, PageSpan), Error> {
    ///     let page = clock.part(0..1).ok_or(Error::Invalid)?;
    ///     let clock = mm.spaces().map_frames(space, &Request::anon(1), page)?;
    ///     let ring = mm.spaces().map_frames(space, &Request::anon(ring.span().count), ring)?;
    ///     Ok((clock, ring))
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for another number of pages than frames, a backing, a flag that such an
    /// area cannot have, executable registers, or a fixed place that would cut a reserved folio;
    /// [`Error::NotForeign`] with the first frame that was added to the library (lend it instead),
    /// or that no entry can name; [`Error::NoMemoryType`] where the CPUs'
    /// [`Profile`](quire_hw::Profile) has nothing that gives the type. [`Error::Exists`],
    /// [`Error::NoRoom`], [`Error::Sealed`], [`Error::NoMemory`] as for [`map`](crate::Mm::map).
    /// Nothing has changed then, except that with [`At::Fixed`] the pages there may be unmapped.
    pub fn map_frames<'f>(
        &self,
        space: &Space<A>,
        request: &Request,
        frames: impl Into<FrameSource<'f>>,
    ) -> Result<PageSpan, Error> {
        let shown = self.shown(frames.into())?;
        let request = fitted(request, shown.span, shown.memory)?;
        let mut change = self.base.change(space);
        let span = self.base.view(space).place(&request, self.align(space, &request))?;
        space.note_frames(span.start);
        if matches!(request.at, At::Fixed(_)) {
            change.prepare(span, 2)?;
            self.clear_out(space, &mut change, span)?;
        } else {
            change.stock()?;
        }
        let attrs = Attrs::user(request.prot) | Attrs::YOUNG | Attrs::DIRTY | shown.type_flag;
        self.show_frames(space, &mut change, span, &shown, attrs)?;
        let Request { prot, max_prot, flags, backing, .. } = request;
        let set = change.writer().set(Area { span, prot, max_prot, flags, backing });
        debug_assert!(set.is_ok(), "the tree was stocked and the place is free");
        change.open();
        Ok(span)
    }

    /// The frames that a right shows, if it may.
    fn shown(&self, source: FrameSource<'_>) -> Result<Shown, Error> {
        let (span, memory, lent) = match source {
            FrameSource::Foreign(frames) => (frames.span(), frames.memory(), None),
            FrameSource::Lent(lent, Range { start, end }) => {
                let all = lent.span();
                let count = end.checked_sub(start).filter(|_| end <= all.count);
                let part = FrameSpan::new(all.start.add(start), count.ok_or(Error::Invalid)?);
                (part, MemoryType::Usual, Some(lent.folio))
            }
        };
        let end = span.start.get().checked_add(span.count);
        if end.is_none_or(|end| end > A::FRAMES) {
            return Err(Error::NotForeign(span.start));
        }
        if let (None, Some(frame)) = (lent, self.base.phys.first_managed(span)) {
            return Err(Error::NotForeign(frame));
        }
        let type_flag = match self.base.hw.profile().memory_types.of(memory) {
            TypedBy::Entry => Attrs::memory(memory),
            TypedBy::Platform => Attrs::empty(),
            TypedBy::Nothing => return Err(Error::NoMemoryType(memory)),
        };
        Ok(Shown { span, memory, type_flag, lent })
    }

    /// Maps the pages of `span`, where nothing is, to the frames shown; all or none.
    fn show_frames(
        &self,
        space: &Space<A>,
        change: &mut Change<'_, A, H>,
        span: PageSpan,
        shown: &Shown,
        attrs: Attrs,
    ) -> Result<(), Error> {
        let folios = self.base.folios();
        let full = |folio| !folios.share(folio, span.count() as u32, false);
        if shown.lent.is_some_and(full) {
            return Err(Error::NoMemory(Order::ZERO));
        }
        let (mut left, mut frame) = (span, shown.span.start);
        let done = change.complete(|section| section.map(&mut left, &mut frame, attrs));
        if done.is_err() {
            let made = PageSpan::new(span.start, left.start);
            let taken = change.take(made, Taking::All, &|| self.hole(space, span));
            debug_assert!(taken.is_ok(), "no leaf reaches across an end");
            if let Some(folio) = shown.lent {
                self.base.free(folios.unmap(folio, left.count() as u32));
            }
        }
        done
    }

    /// Lends a run of RAM that the embedder took out of the library to areas, for
    /// [`map_frames`](Self::map_frames). Its content stays as it is.
    ///
    /// # Errors
    /// The run, when it is not one naturally aligned block of at most
    /// [`ORDER_MAX`](crate::limits::ORDER_MAX), or not RAM that the library has slots for.
    pub fn lend(&self, run: FrameRun) -> Result<LentFrames, FrameRun> {
        let span = run.span();
        let order = Order::fitting(span.count).filter(|order| {
            let one_block = order.pages() == span.count && span.start.is_aligned(span.count);
            one_block && *order <= ORDER_MAX
        });
        match order {
            Some(order) if self.base.phys.meta().span().covers(span) => {
                Ok(LentFrames { folio: self.base.folios().adopt_lent(run.dirtied(), order) })
            }
            _ => Err(run),
        }
    }

    /// Ends the loan: the embedder has the run for itself again.
    ///
    /// # Errors
    /// The loan, as long as an area maps a page of it.
    pub fn take_back(&self, lent: LentFrames) -> Result<FrameRun, LentFrames> {
        self.base.folios().take_back(lent.folio).ok_or(lent)
    }

    /// Ends the loan without waiting for the areas: the frames become free when the last page of
    /// them is unmapped, or at once.
    pub fn release(&self, lent: LentFrames) {
        self.base.put(lent.folio);
    }
}

/// The frames that an area is to show.
struct Shown {
    span: FrameSpan,
    memory: MemoryType,
    /// The attribute that gives the leaves this type.
    type_flag: Attrs,
    /// The folio that counts the mapped pages.
    lent: Option<Folio>,
}

/// The request with what an area of frames has.
fn fitted(request: &Request, frames: FrameSpan, memory: MemoryType) -> Result<Request, Error> {
    let executes = memory != MemoryType::Usual && request.prot.contains(Prot::EXEC);
    let fits = request.pages == frames.count && request.backing == Backing::Anon;
    if !fits || executes || request.flags.intersects(UNFIT) {
        return Err(Error::Invalid);
    }
    let never = if memory == MemoryType::Usual { Prot::empty() } else { Prot::EXEC };
    Ok(Request {
        max_prot: request.max_prot - never,
        flags: request.flags | AreaFlags::SHARED,
        backing: Backing::Frames { first: frames.start, memory },
        ..*request
    })
}
