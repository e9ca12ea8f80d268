//! A change of an address space: one at a time, in steps that can fail and steps that cannot.
//!
//! ```text
//!   begin ── prepare ── change the areas ── take or protect ── settle
//!            │  may lack frames: nothing      └─ cannot fail: prepare split what reaches across
//!            │  has changed yet                   an end, and stocked the tree
//!            └─ faults wait from here to the end of the areas' change
//! ```
//!
//! A step *returns* what it lacks; `base` brings it and repeats the step. A section that is dropped
//! before the areas change has changed nothing that a program could see.

use quire_arch::{Arch, Attrs};
use quire_hw::{FrameRun, Hardware};
use quire_units::{FrameSpan, PageSpan, Vpn};

use super::tree::TreeWriter;
use super::{Area, View};
use crate::folio::Folio;
use crate::table::{Gather, Marks, Taking};

/// The lack of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// One frame, any content, for the area tree.
    Node,
    /// One zeroed frame, for a page table.
    Table,
    /// The gather is full: flush and free it.
    Settle,
}

/// The right to change a space's areas, and the frames and removed entries of the change.
pub struct Section<'a, A, H: Hardware> {
    pub(super) view: View<'a, A, H>,
    writer: TreeWriter<'a, H>,
    pub(super) table: Option<FrameRun>,
    pub(super) gather: Gather,
    pub(super) entries: u64,
    splits: u64,
    /// No page is mapped here, and no table is empty here: a table showed that under its lock when
    /// faults already waited, and later faults are refused.
    vacant: PageSpan,
}

impl<'a, A: Arch, H: Hardware> Section<'a, A, H> {
    /// Begins a change; waits while another is under way.
    #[inline]
    pub fn begin(view: View<'a, A, H>) -> Self {
        let writer = view.space.areas.writer(view.hw, view.meta);
        let vacant = PageSpan::new(Vpn::new(0), Vpn::new(0));
        Self { view, writer, table: None, gather: Gather::new(), entries: 0, splits: 0, vacant }
    }

    /// The areas.
    pub fn writer(&self) -> &TreeWriter<'a, H> {
        &self.writer
    }

    /// Entries zeroed or given other rights until now.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Prepares a change of `span` that inserts `insertions` areas at most: from now on it cannot
    /// fail, and faults wait.
    ///
    /// # Errors
    /// [`Need::Node`] or [`Need::Table`]: bring one and repeat.
    pub fn prepare(&mut self, span: PageSpan, insertions: usize) -> Result<(), Need> {
        if self.writer.lacks(insertions) > 0 {
            return Err(Need::Node);
        }
        self.writer.hold(span);
        // Beyond the span faults continue.
        self.vacant = self.isolate(span)?.intersect(span);
        Ok(())
    }

    /// Prepares a move of the pages of `from` to `to`, whatever is there: the same for both places.
    ///
    /// # Errors
    /// As for [`prepare`](Self::prepare).
    pub fn prepare_move(
        &mut self,
        from: PageSpan,
        to: PageSpan,
        insertions: usize,
    ) -> Result<(), Need> {
        if self.writer.lacks(insertions) > 0 {
            return Err(Need::Node);
        }
        self.writer.hold(PageSpan::new(from.start.min(to.start), from.end.max(to.end)));
        self.isolate(from)?;
        self.vacant = self.isolate(to)?.intersect(to);
        Ok(())
    }

    /// Splits every leaf that reaches across an end of `span`. Returns pages, of the span and
    /// beyond, that one absent entry covers.
    ///
    /// # Errors
    /// [`Need::Table`]: bring one and repeat.
    fn isolate(&mut self, span: PageSpan) -> Result<PageSpan, Need> {
        let tables = self.view.tables();
        let mut vacant = PageSpan::new(span.start, span.start);
        for page in [span.start, span.end] {
            // No leaf reaches across where none is present.
            if !vacant.is_empty() && page <= vacant.end {
                continue;
            }
            match tables.isolate(page, &mut self.table, &mut self.gather) {
                Ok((splits, around)) => {
                    self.splits += splits;
                    vacant = around;
                }
                Err(_) => return Err(Need::Table),
            }
        }
        Ok(vacant)
    }

    /// Prepares the tables for a move of the leaves of `from` to `to`; faults wait from now on.
    ///
    /// # Errors
    /// [`Need::Table`]: bring one and repeat.
    pub fn prepare_tables(&mut self, from: PageSpan, to: Vpn) -> Result<(), Need> {
        let tables = self.view.tables();
        match tables.prepare_move(from, to, &mut self.table, &mut self.gather) {
            Ok(()) => Ok(()),
            Err(_) => Err(Need::Table),
        }
    }

    /// Moves the leaves of `from` to `to`, whose tables are prepared.
    pub fn move_entries(&mut self, from: PageSpan, to: Vpn, hole: PageSpan) {
        let tables = self.view.tables();
        self.entries += tables.move_entries(from, to, &mut self.gather);
        tables.prune(from, hole, &mut self.gather);
    }

    /// Brings the frame that a [`Need`] asked for. An unwanted one is returned.
    pub fn bring(&mut self, need: Need, run: FrameRun) -> Result<(), FrameRun> {
        match need {
            Need::Node => self.writer.stock(run),
            Need::Table if self.table.is_none() => {
                self.table = Some(run);
                Ok(())
            }
            _ => Err(run),
        }
    }

    /// Makes faults in `pages` wait from now on: pages that are removed while their area stays must
    /// be flushed before others are mapped there, or two CPUs could see different memory.
    pub fn hold(&self, pages: PageSpan) {
        self.writer.hold(pages);
    }

    /// Lets faults continue: the areas have their new state.
    pub fn open(&self) {
        self.writer.release();
    }

    /// Makes the tables that guards in `span`, which is prepared, need.
    ///
    /// # Errors
    /// [`Need::Table`]: bring one and repeat.
    pub fn ready_to_guard(&mut self, span: PageSpan) -> Result<(), Need> {
        let tables = self.view.tables();
        tables.ready_to_mark(span, &mut self.table).map_err(|_| Need::Table)
    }

    /// Puts guards into `span`, which is empty and has the tables for them.
    pub fn guard(&mut self, span: PageSpan) {
        let tables = self.view.tables();
        let (mut left, mut marks) = (span, Marks::guards(span.start));
        let done = tables.mark(&mut left, &mut marks, &mut None);
        debug_assert!(done.is_ok(), "its tables are there, and nothing else is");
    }

    /// Removes the guards of `span`, which is prepared.
    pub fn unguard(&mut self, span: PageSpan) {
        self.entries += self.view.tables().unguard(span);
    }

    /// Removes the entries of `span` that `what` selects from the tables, and tables that became
    /// empty as well if they translate nothing outside `hole`, which is called only if there are
    /// any.
    ///
    /// # Errors
    /// [`Need::Settle`]: flush and free the gather, and repeat with the rest, which `span` is by
    /// then. [`Need::Table`] only where the span was not prepared.
    pub fn take(
        &mut self,
        span: &mut PageSpan,
        what: Taking,
        hole: &dyn Fn() -> PageSpan,
    ) -> Result<(), Need> {
        if self.vacant.covers(*span) {
            return Ok(());
        }
        let tables = self.view.tables();
        let took = tables.take_some(*span, what, &mut self.gather);
        self.entries += took.entries;
        if took.emptied {
            tables.prune(PageSpan::new(span.start, took.upto), hole(), &mut self.gather);
        }
        *span = PageSpan::new(took.upto, span.end);
        match (span.is_empty(), took.straddles) {
            (true, _) => Ok(()),
            (false, true) => self.isolate(*span).and(Err(Need::Settle)),
            (false, false) => Err(Need::Settle),
        }
    }

    /// Gives the leaves of each area in `span` its area's rights.
    pub fn protect(&mut self, area: &Area) {
        self.entries += self.view.tables().protect(area.span, area.prot, &mut self.gather);
    }

    /// Clears the flags `noted` in the leaves of `span`, which is prepared, for each piece of a
    /// folio for which `forgets` is true. `remark` changes markers.
    pub fn forget(
        &mut self,
        span: PageSpan,
        noted: Attrs,
        forgets: impl FnMut(Folio, FrameSpan, Attrs) -> bool,
        remark: impl Fn(Marks) -> Marks,
    ) {
        let tables = self.view.tables();
        self.entries += tables.forget(span, noted, &mut self.gather, forgets, remark);
    }

    /// Write-protects the leaves of `span` that map one of `frames`, until a fault grants the write
    /// again.
    pub fn withhold(&mut self, span: PageSpan, frames: FrameSpan) {
        self.entries += self.view.tables().withhold(span, frames, &mut self.gather);
    }

    /// Makes the leaves of `span` COW, except for pinned pages.
    pub fn lend(&mut self, span: PageSpan) {
        self.entries += self.view.tables().lend(span, &mut self.gather);
    }

    /// The removed entries, to be flushed and freed.
    pub fn gathered(&mut self) -> &mut Gather {
        &mut self.gather
    }

    /// Ends the change, whose gather is flushed; returns a spare frame and the number of split
    /// leaves. The next change may begin when this value is dropped.
    pub fn end(&mut self) -> Ended {
        self.writer.release();
        debug_assert!(self.gather.is_empty(), "the gather is flushed before the end");
        Ended { table: self.table.take(), splits: self.splits }
    }
}

/// The remains of a [`Section`].
#[must_use]
pub struct Ended {
    /// A table that was brought but not used.
    pub table: Option<FrameRun>,
    /// Leaves split.
    pub splits: u64,
}
