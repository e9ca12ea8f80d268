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

use quire_arch::{Arch, Attrs};
use quire_hw::{FrameRun, Hardware, Poisoned, Reuse};
use quire_units::{FrameSpan, Order, PageSpan, Prot, Vpn};

use super::Reclaim;
use crate::base::{Change, Errno, Error};
use crate::space::{Advice, Area, OptOut, Section, Space, View};
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

    pub(crate) fn add(&mut self, done: Result<Block, Hindrance>) {
        match done {
            Ok(Block::Made) => self.made += 1,
            Ok(Block::Already) => self.already += 1,
            Err(why) => {
                self.refused += 1;
                self.why = Some(why);
            }
        }
    }
}

/// The fate of a block.
pub(crate) enum Block {
    /// It is one folio now.
    Made,
    /// It was one before.
    Already,
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
        let first = span.start.get().next_multiple_of(order.pages());
        let mut block = PageSpan::block(Vpn::new(first), order);
        while block.end <= span.end {
            let mut change = self.base().change(space);
            change.hold(block);
            done.add(self.collapse_block(space, &mut change, block, (order, true))?);
            block = PageSpan::new(block.end, block.end.add(order.pages()));
        }
        Ok(done)
    }

    /// The same for one block, which is held. With `hard` the folio is allocated as hard as a page.
    pub(crate) fn collapse_block(
        &self,
        space: &Space<A>,
        section: &mut Change<'_, A, H>,
        block: PageSpan,
        (order, hard): (Order, bool),
    ) -> Result<Result<Block, Hindrance>, Error> {
        let view = self.base().view(space);
        let area = match collapsible(&view, block) {
            Ok(area) => area,
            Err(why) => return Ok(Err(why)),
        };
        match hindrance(view.tables().survey(block, order)) {
            Ok(None) => {}
            Ok(Some(done)) => return Ok(Ok(done)),
            Err(why) => return Ok(Err(why)),
        }
        let fills = order.pages() - mapped_in(&view, block);
        self.base().groups.charge(space, fills)?;
        let run = match self.base().frames(order, hard) {
            Ok(run) => run,
            Err(error) => {
                self.base().count(Event::CollapseFailed, 1);
                return Err(error);
            }
        };
        self.regrant(space, section, block, area.prot, Prot::empty());
        let stopped = match hindrance(view.tables().survey(block, order)) {
            Err(why) => Some(Ok(Err(why))),
            Ok(_) => self.copy_pieces(&view, &run, block).err().map(|error| Err(error.into())),
        };
        if let Some(stopped) = stopped {
            self.regrant(space, section, block, Prot::empty(), area.prot);
            self.base().free(run);
            return stopped;
        }
        // The table of a whole block goes as well; the table of a part of one stays.
        let hole = if order == A::block_order() { block.end } else { block.start };
        let hole = PageSpan::new(block.start, hole);
        let taken = section.take(block, Taking::All, &|| hole);
        if let Err(error) = taken {
            debug_assert!(false, "no leaf reaches across the ends of what is made of parts");
            self.base().free(run);
            return Err(error);
        }
        self.base().settle(space, section.gathered());
        self.put_folio(space, block, run, order, area.prot);
        self.base().groups.draw(space, fills);
        Ok(Ok(Block::Made))
    }

    /// Gives the leaves of `block` the rights `to`, and flushes.
    fn regrant(
        &self,
        space: &Space<A>,
        section: &mut Section<'_, A, H>,
        block: PageSpan,
        from: Prot,
        to: Prot,
    ) {
        if from == to {
            return;
        }
        let gather = section.gathered();
        self.base().view(space).tables().protect(block, to, gather);
        self.base().settle(space, gather);
    }

    /// Fills `run` with the pages mapped at `block`, and with zeroes where there are none.
    fn copy_pieces(
        &self,
        view: &View<'_, A, H>,
        run: &FrameRun,
        block: PageSpan,
    ) -> Result<(), Poisoned> {
        let zero = |from: Vpn, to: Vpn| {
            if from < to && !run.is_zeroed() {
                let pages = from.offset_from(block.start)..to.offset_from(block.start);
                self.base().hw.clear(run, pages, Reuse::Later);
            }
        };
        let mut upto = block.start;
        for seen in view.tables().pieces(block) {
            let Sight::Leaf { frame, .. } = seen.what else { continue };
            zero(upto, seen.pages.start);
            let frames = FrameSpan::new(frame, seen.pages.count());
            self.base().hw.copy(run, seen.pages.start.offset_from(block.start), frames)?;
            upto = seen.pages.end;
        }
        zero(upto, block.end);
        Ok(())
    }

    /// Maps `run` at `block`, which is empty except perhaps for a table that a fault has made.
    fn put_folio(
        &self,
        space: &Space<A>,
        block: PageSpan,
        run: FrameRun,
        order: Order,
        prot: Prot,
    ) {
        let tables = self.base().view(space).tables();
        let attrs = Attrs::user(prot) | Attrs::YOUNG | Attrs::DIRTY;
        let mut left = Some(run.dirtied());
        while let Some(run) = left.take() {
            left = tables.put_folio(block, run, order, attrs).err();
            if left.is_some() {
                let mut gather = Gather::new();
                tables.prune(block, block, &mut gather);
                self.base().settle(space, &mut gather);
            }
        }
        self.base().count(Event::CollapseAlloc, 1);
    }
}

/// How many pages of `block` are mapped.
fn mapped_in<A: Arch, H: Hardware>(view: &View<'_, A, H>, block: PageSpan) -> u64 {
    let leaves = view.tables().pieces(block).filter(|seen| matches!(seen.what, Sight::Leaf { .. }));
    leaves.map(|seen| seen.pages.count()).sum()
}

/// The area of `block`, if its pages may become one folio.
fn collapsible<A: Arch, H: Hardware>(
    view: &View<'_, A, H>,
    block: PageSpan,
) -> Result<Area, Hindrance> {
    let area = view.areas().lookup(block.start).0;
    let area = area.filter(|area| area.span.covers(block) && area.is_private_anon());
    let area = area.ok_or(Hindrance::Area)?;
    let refused = Advice::of(area.flags) == Advice::NoHuge || view.space.opt_out() == OptOut::All;
    if refused { Err(Hindrance::Advice) } else { Ok(area) }
}

/// The meaning of a survey: `None` to continue, a finished block, or the reason against it.
fn hindrance(survey: Survey) -> Result<Option<Block>, Hindrance> {
    match survey {
        Survey::Parts => Ok(None),
        Survey::Whole => Ok(Some(Block::Already)),
        Survey::Empty => Err(Hindrance::Empty),
        Survey::Foreign => Err(Hindrance::Foreign),
        Survey::Pinned => Err(Hindrance::Pinned),
    }
}
