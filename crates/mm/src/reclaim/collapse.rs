//! Making one folio of many (`MADV_COLLAPSE`), of any size: anonymous memory. Files: see
//! `collapse_file`.
//!
//! ```text
//!   hold ─ survey ─ allocate ─ take rights, flush ─ survey ─ copy ─ unmap, flush ─ map
//!            │          │ no memory                  │ pinned  │ poisoned
//!            ▼          ▼                            '─────────┴──► give the rights back
//!            empty, whole, pinned, foreign: all as before
//! ```
//!
//! Faults wait from the first step to the last. The pages lose all rights before they are copied,
//! so that no program writes the old memory afterwards, and no new pin can appear: a pin checks the
//! rights under the table's lock. Pages shared with other spaces are copied as well; those spaces
//! keep the old memory.

use core::ops::Range;

use quire_arch::{Arch, Attrs};
use quire_hw::{FrameRun, Hardware, Poisoned, Reuse};
use quire_units::{FrameSpan, Order, PageSpan, Prot, Vpn};

use super::Reclaim;
use crate::base::{Change, Errno, Error, Stop};
use crate::space::{Advice, Area, AreaFlags, OptOut, Space, View};
use crate::stats::Event;
use crate::table::{Gather, Sight, Survey, Taking};

/// The result of [`Reclaim::collapse`], in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Collapsed {
    /// Blocks that are one folio now.
    pub made: u64,
    /// Blocks that were one folio before.
    pub already: u64,
    /// Blocks that could not be collapsed.
    pub refused: u64,
    /// The reason for the last of them.
    pub why: Option<Hindrance>,
}

/// The reason why a block is not collapsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Hindrance {
    /// It does not lie in one area that is private and anonymous; or, for
    /// [`collapse_file`](Reclaim::collapse_file), in one that maps a file.
    Area,
    /// The area, or the process, was advised not to have large folios.
    Advice,
    /// Nothing is mapped in it.
    Empty,
    /// A frame in it belongs to no folio, or a page of it is marked.
    Foreign,
    /// A part of it is pinned. That may change.
    Pinned,
    /// Of a file: a page has another reference, or is being read or written. That may change.
    Held,
    /// Of a file: an area maps it where writes are tracked.
    Tracked,
    /// Of a file: it is in one folio now, but the area has private copies of some pages.
    Copied,
}

impl Collapsed {
    /// Linux's error for it; `None` if no block failed.
    pub fn errno(&self) -> Option<Errno> {
        self.why.map(|why| match why {
            Hindrance::Pinned | Hindrance::Held => Errno::EAGAIN,
            _ => Errno::EINVAL,
        })
    }

    /// The sum of two.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            made: self.made + other.made,
            already: self.already + other.already,
            refused: self.refused + other.refused,
            why: other.why.or(self.why),
        }
    }

    pub(super) fn add<E>(&mut self, done: Result<Block, NotMade<E>>) -> Result<(), E> {
        match done {
            Ok(Block::Made) => self.made += 1,
            Ok(Block::Already) => self.already += 1,
            Err(NotMade::Refused(why)) => {
                self.refused += 1;
                self.why = Some(why);
            }
            Err(NotMade::Failed(error)) => return Err(error),
        }
        Ok(())
    }
}

/// The fate of a block.
pub(super) enum Block {
    /// It is one folio now.
    Made,
    /// It was one before.
    Already,
}

/// The reason why a block is as before.
pub(super) enum NotMade<E = Error> {
    /// It may not become one folio.
    Refused(Hindrance),
    /// There was no memory, or a page cannot be copied.
    Failed(E),
}

impl<E> From<Hindrance> for NotMade<E> {
    fn from(why: Hindrance) -> Self {
        Self::Refused(why)
    }
}

impl From<Stop> for NotMade<Stop> {
    fn from(stop: Stop) -> Self {
        Self::Failed(stop)
    }
}

impl<E: From<Error>> From<Error> for NotMade<E> {
    fn from(error: Error) -> Self {
        Self::Failed(error.into())
    }
}

impl<E: From<Poisoned>> From<Poisoned> for NotMade<E> {
    fn from(poisoned: Poisoned) -> Self {
        Self::Failed(poisoned.into())
    }
}

impl<A: Arch, H: Hardware> Reclaim<'_, A, H> {
    /// Makes each aligned block of `order` that lies in `span` one folio: copies its pages, and
    /// fills the rest with zeroes. The policy does not matter here, but advice does. `order` is at
    /// least 1 and at most [`Arch::block_order`], which one entry maps.
    ///
    /// # Errors
    /// [`Error::Invalid`]: not the program's pages, or no such order. [`Error::NoMemory`]: no
    /// folio. [`Error::OverLimit`]: the space's group has no room for the zeroed pages.
    /// [`Error::Poisoned`]: a page cannot be copied. Blocks before the one that failed are done
    /// then, and it and those behind it are as before.
    pub fn collapse(
        &self,
        space: &Space<A>,
        span: PageSpan,
        order: Order,
    ) -> Result<Collapsed, Error> {
        let sized = order > Order::ZERO && order <= A::block_order();
        if !sized || !Space::<A>::may_map(span) {
            return Err(Error::Invalid);
        }
        let mut done = Collapsed::default();
        for block in blocks(span, order) {
            done.add(self.collapse_block(space, block, true))?;
        }
        Ok(done)
    }

    /// The same for one block. With `hard` the folio is allocated as hard as a page.
    pub(super) fn collapse_block(
        &self,
        space: &Space<A>,
        block: PageSpan,
        hard: bool,
    ) -> Result<Block, NotMade> {
        let order = Order::fitting(block.count()).unwrap_or_default();
        let collapse = Collapse { reclaim: self, view: self.base().view(space), block, order };
        let mut change = self.base().change(space);
        change.hold(block);
        collapse.run(&mut change, hard)
    }

    /// The frames for a folio that is made of others.
    pub(super) fn folio_frames(&self, order: Order, hard: bool) -> Result<FrameRun, Error> {
        let run = self.base().frames(order, hard);
        run.inspect_err(|_| self.base().count(Event::CollapseFailed, 1))
    }

    /// Fills `run` with copies of frames, each with the number of its first page there, and with
    /// zeroes between them.
    pub(super) fn fill(
        &self,
        run: &FrameRun,
        pieces: impl Iterator<Item = (u64, FrameSpan)>,
    ) -> Result<(), Poisoned> {
        let zero = |pages: Range<u64>| {
            if !pages.is_empty() && !run.is_zeroed() {
                self.base().hw.clear(run, pages, Reuse::Later);
            }
        };
        let mut upto = 0;
        for (at, frames) in pieces {
            zero(upto..at);
            self.base().hw.copy(run, at, frames)?;
            upto = at + frames.count;
        }
        zero(upto..run.count());
        Ok(())
    }
}

/// A block of a space that is made one folio, while faults wait.
struct Collapse<'a, A, H> {
    reclaim: &'a Reclaim<'a, A, H>,
    view: View<'a, A, H>,
    block: PageSpan,
    order: Order,
}

impl<A: Arch, H: Hardware> Collapse<'_, A, H> {
    fn run(&self, change: &mut Change<'_, A, H>, hard: bool) -> Result<Block, NotMade> {
        let &Self { reclaim, view, block, order } = self;
        let base = reclaim.base();
        let area = self.area()?;
        if self.survey()? == Survey::Whole {
            return Ok(Block::Already);
        }
        let fills = order.pages() - self.pieces().map(|(_, frames)| frames.count).sum::<u64>();
        base.groups.charge(view.space, fills)?;
        let run = reclaim.folio_frames(order, hard)?;
        let regrant = |change: &mut Change<'_, A, H>, prot| {
            if area.prot != Prot::empty() {
                view.tables().protect(block, prot, change.gathered());
                change.settle();
            }
        };
        regrant(change, Prot::empty());
        let survey = self.survey().map_err(NotMade::from);
        let filled = survey.and_then(|_| Ok(reclaim.fill(&run, self.pieces())?));
        let run = run.dirtied();
        if let Err(stop) = filled {
            regrant(change, area.prot);
            base.free(run);
            return Err(stop);
        }
        // The table of a whole block goes as well; the table of a part of one stays.
        let hole = if order == A::block_order() { block.end } else { block.start };
        let hole = PageSpan::new(block.start, hole);
        if let Err(error) = change.take(block, Taking::All, &|| hole) {
            debug_assert!(false, "no leaf reaches across the ends of what is made of parts");
            base.free(run);
            return Err(error.into());
        }
        change.settle();
        self.put(run, area.prot);
        base.groups.draw(view.space, fills);
        Ok(Block::Made)
    }

    /// The area of the block, if its pages may become one folio.
    fn area(&self) -> Result<Area, Hindrance> {
        let area = self.view.areas().lookup(self.block.start).0;
        let area = area.filter(|area| area.span.covers(self.block) && area.is_private_anon());
        let area = area.ok_or(Hindrance::Area)?;
        if is_refused(self.view.space, &area) { Err(Hindrance::Advice) } else { Ok(area) }
    }

    /// The make-up of the block, if its pages may become one folio.
    fn survey(&self) -> Result<Survey, Hindrance> {
        match self.view.tables().survey(self.block, self.order) {
            Survey::Empty => Err(Hindrance::Empty),
            Survey::Foreign => Err(Hindrance::Foreign),
            Survey::Pinned => Err(Hindrance::Pinned),
            sound => Ok(sound),
        }
    }

    /// The mapped frames, each run with its distance from the start of the block.
    fn pieces(&self) -> impl Iterator<Item = (u64, FrameSpan)> {
        self.view.tables().pieces(self.block).filter_map(|seen| {
            let Sight::Leaf { frame, .. } = seen.what else { return None };
            let at = seen.pages.start.offset_from(self.block.start);
            Some((at, FrameSpan::new(frame, seen.pages.count())))
        })
    }

    /// Maps `run` at the block, which is empty except perhaps for a table that a fault has made.
    fn put(&self, mut run: FrameRun, prot: Prot) {
        let (base, tables) = (self.reclaim.base(), self.view.tables());
        let attrs = Attrs::user(prot) | Attrs::YOUNG | Attrs::DIRTY;
        let mut gather = Gather::new();
        while let Err(back) = tables.put_folio(self.block, run, self.order, attrs) {
            run = back;
            tables.prune(self.block, self.block, &mut gather);
            base.settle(self.view.space, &mut gather);
        }
        base.count(Event::CollapseAlloc, 1);
    }
}

/// The aligned blocks of `order` that lie in `span`.
pub(super) fn blocks(span: PageSpan, order: Order) -> impl Iterator<Item = PageSpan> {
    let first = span.start.get().next_multiple_of(order.pages());
    let starts = (first..span.end.get()).step_by(order.pages() as usize);
    let blocks = starts.map(move |start| PageSpan::block(Vpn::new(start), order));
    blocks.take_while(move |block| block.end <= span.end)
}

/// Whether an area or its process was advised not to have large folios, or a watcher fills it.
pub(super) fn is_refused<A: Arch>(space: &Space<A>, area: &Area) -> bool {
    let is_watched = area.flags.intersects(AreaFlags::WATCH);
    Advice::of(area.flags) == Advice::NoHuge || is_watched || space.opt_out() == OptOut::All
}
