//! A change of an address space: one at a time, in steps that can fail and steps that cannot.
//!
//! ```text
//!   begin ── prepare ── change the areas ── take or protect ── settle
//!            │  may lack frames: nothing      └─ cannot fail: prepare split what reaches across
//!            │  has changed yet                   an end, and stocked the tree
//!            └─ faults wait from here to the end of the areas' change
//! ```
//!
//! A step *returns* its [`SectionLack`]; the caller [`bring`](Section::bring)s it and repeats the
//! step. A program sees no effect of a section that is dropped before the areas change.

use quire_arch::{Arch, Attrs};
use quire_hw::{FrameRun, Hardware};
use quire_units::{FrameSpan, PageSpan, Pfn, Prot, Vpn};

use super::View;
use super::tree::TreeWriter;
use crate::folio::Folio;
use crate::table::{ForkLack, Gather, Heritage, Inherit, Isolated, Lack, Marks, Place, Taking};

/// A step lacks this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SectionLack {
    /// One frame, any content, for the area tree.
    Node,
    /// One zeroed frame, for a page table.
    Table,
    /// The gather is full: flush and free it.
    Settle,
}

/// The right to change a space's areas, with the frames and leaves that the change holds.
pub struct Section<'a, A, H: Hardware> {
    view: View<'a, A, H>,
    writer: TreeWriter<'a, H>,
    table: Option<FrameRun>,
    gather: Gather,
    entries: u64,
    splits: u64,
    /// The way to the table of the prepared span's first page.
    from: Option<Place>,
    /// No page is mapped here, and no table is empty here. A table said so, locked while faults
    /// waited; later faults find the areas changed.
    vacant: PageSpan,
}

impl<'a, A: Arch, H: Hardware> Section<'a, A, H> {
    /// Begins a change; waits while another is under way.
    #[inline]
    pub fn begin(view: View<'a, A, H>) -> Self {
        let writer = view.space.areas.writer(view.hw, view.meta);
        let vacant = PageSpan::new(Vpn::new(0), Vpn::new(0));
        let gather = Gather::new();
        Self { view, writer, table: None, gather, entries: 0, splits: 0, from: None, vacant }
    }

    /// The areas.
    pub fn writer(&self) -> &TreeWriter<'a, H> {
        &self.writer
    }

    /// How many entries were zeroed or got other rights so far.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Whether the tree has frames for `insertions` more areas.
    pub fn stocked(&self, insertions: usize) -> Result<(), SectionLack> {
        if self.writer.lacks(insertions) > 0 { Err(SectionLack::Node) } else { Ok(()) }
    }

    /// Prepares a change of `span` that inserts at most `insertions` areas: from now on it cannot
    /// fail, and faults wait.
    pub fn prepare(&mut self, span: PageSpan, insertions: usize) -> Result<(), SectionLack> {
        self.stocked(insertions)?;
        self.writer.hold(span);
        self.isolate(span)
    }

    /// Prepares both places for moving the pages of `from` to `to`, which may be mapped.
    pub fn prepare_move(
        &mut self,
        from: PageSpan,
        to: PageSpan,
        insertions: usize,
    ) -> Result<(), SectionLack> {
        self.stocked(insertions)?;
        self.writer.hold(PageSpan::new(from.start.min(to.start), from.end.max(to.end)));
        self.isolate(from)?;
        self.isolate(to)
    }

    /// Splits every leaf that reaches across an end of `span`.
    #[inline]
    fn isolate(&mut self, span: PageSpan) -> Result<(), SectionLack> {
        let start = self.isolate_at(span.start, span.end)?;
        (self.from, self.vacant) = (Some(start.place), start.vacant);
        if start.whole < span.end {
            self.isolate_at(span.end, span.end)?;
        }
        Ok(())
    }

    #[inline]
    fn isolate_at(&mut self, page: Vpn, end: Vpn) -> Result<Isolated, SectionLack> {
        let tables = self.view.tables();
        let isolated = tables.isolate(page, end, &mut self.table, self.gather.due());
        let isolated = isolated.map_err(|_| SectionLack::Table)?;
        self.splits += isolated.splits;
        Ok(isolated)
    }

    /// Prepares the tables for a move of what is mapped from page `from` on to `to`; faults wait
    /// already. `left`, at first all that moves, becomes the rest.
    pub fn prepare_tables(
        &mut self,
        left: &mut PageSpan,
        from: Vpn,
        to: Vpn,
    ) -> Result<(), SectionLack> {
        let tables = self.view.tables();
        let prepared = tables.prepare_move(left, from, to, &mut self.table, &mut self.gather);
        prepared.map_err(|_| SectionLack::Table)
    }

    /// Moves the leaves of `from` to `to`, whose tables are prepared.
    pub fn move_entries(&mut self, from: PageSpan, to: Vpn, hole: PageSpan) {
        let tables = self.view.tables();
        self.entries += tables.move_entries(from, to, &mut self.gather);
        tables.prune(from, hole, &mut self.gather);
    }

    /// Brings the frame that [`SectionLack`] asked for. An unwanted frame comes back.
    pub fn bring(&mut self, need: SectionLack, run: FrameRun) -> Result<(), FrameRun> {
        match need {
            SectionLack::Node => self.writer.stock(run),
            SectionLack::Table => self.table.replace(run).map_or(Ok(()), Err),
            SectionLack::Settle => Err(run),
        }
    }

    /// Maps the pages of `span`, where no area and no leaf is, to the frames from `frame` on, with
    /// the attributes `attrs`. Both move on by the part that is done.
    pub fn map(
        &mut self,
        span: &mut PageSpan,
        frame: &mut Pfn,
        attrs: Attrs,
    ) -> Result<(), SectionLack> {
        match self.view.tables().map(span, frame, attrs, &mut self.table) {
            Err(Lack::Table) => Err(SectionLack::Table),
            done => {
                debug_assert!(done.is_ok(), "no leaf is where no area is");
                Ok(())
            }
        }
    }

    /// Makes faults in `pages` wait from now on. Leaves that are taken out of an area that stays
    /// must be flushed before a fault maps other memory there, lest two CPUs see different memory.
    pub fn hold(&self, pages: PageSpan) {
        self.writer.hold(pages);
    }

    /// Lets faults go on, now that the areas have changed.
    pub fn open(&self) {
        self.writer.release();
    }

    /// Makes the tables for guards in `span`, which is prepared.
    pub fn ready_to_guard(&mut self, span: PageSpan) -> Result<(), SectionLack> {
        self.view.tables().ready_to_mark(span, &mut self.table).map_err(|_| SectionLack::Table)
    }

    /// Puts guards into `span`, which is empty and has the tables for them.
    pub fn guard(&mut self, span: PageSpan) {
        let (mut left, mut marks) = (span, Marks::guards(span.start));
        let done = self.view.tables().mark(&mut left, &mut marks, &mut None);
        debug_assert!(done.is_ok(), "its tables are there, and nothing else is");
    }

    /// Removes the guards of `span`, which is prepared.
    pub fn unguard(&mut self, span: PageSpan) {
        self.entries += self.view.tables().unguard(span);
    }

    /// Makes the leaves and swap entries of `span`, which is prepared, wait for a watcher before
    /// they are written; pages that are neither get the markers that `absent` says. The tables for
    /// those are there.
    #[cfg(feature = "watch")]
    pub fn shield(
        &mut self,
        span: PageSpan,
        absent: Option<fn(Vpn) -> Marks>,
        remark: impl Fn(Marks) -> Marks,
    ) {
        let tables = self.view.tables();
        self.entries += tables.shield(span, remark, &mut self.gather);
        let mut at = span.start;
        while let Some(marks) = absent.filter(|_| at < span.end) {
            let seen = tables.look(PageSpan::new(at, span.end));
            let (gap, next) =
                seen.map_or((span.end, span.end), |seen| (seen.pages.start, seen.pages.end));
            let (mut left, mut marks) = (PageSpan::new(at, gap), marks(at));
            let done = tables.mark(&mut left, &mut marks, &mut None);
            debug_assert!(done.is_ok(), "its tables are there, and nothing else is");
            at = next;
        }
    }

    /// Ends that for `span`, whose areas have the rights `prot`.
    #[cfg(feature = "watch")]
    pub fn unshield(&mut self, span: PageSpan, prot: Prot, remark: impl Fn(Marks) -> Marks) {
        self.entries += self.view.tables().unshield(span, prot, remark);
    }

    /// Removes the watcher's markers of `span`, which is prepared: the pages are absent then.
    #[cfg(feature = "watch")]
    pub fn unmark_watched(&mut self, span: PageSpan) {
        self.view.tables().unmark_watched(span);
    }

    /// Makes the pages from `at` to `end`, which are absent and prepared, fail: `at` moves on.
    #[cfg(feature = "watch")]
    pub fn poison(&mut self, at: &mut Vpn, end: Vpn) -> Result<(), SectionLack> {
        let mut left = PageSpan::new(*at, end);
        let tables = self.view.tables();
        let done = tables.mark(&mut left, &mut Marks::lost(), &mut self.table);
        *at = left.start;
        match done {
            Err(Lack::Table) => Err(SectionLack::Table),
            done => {
                debug_assert!(done.is_ok(), "its pages are absent");
                Ok(())
            }
        }
    }

    /// Whether no page of `span`, which is prepared, is mapped or marked: there is nothing to
    /// [`take`](Self::take) or [`protect`](Self::protect).
    #[inline]
    pub fn is_vacant(&self, span: PageSpan) -> bool {
        self.vacant.covers(span)
    }

    /// Takes the pages of `span` that `what` selects out of the tables, and empty tables that lie
    /// within `hole` with them; `hole` is called only if there is an empty table. `span` becomes
    /// the rest. [`SectionLack::Table`] only where it was not prepared.
    pub fn take(
        &mut self,
        span: &mut PageSpan,
        what: Taking,
        hole: &dyn Fn() -> PageSpan,
    ) -> Result<(), SectionLack> {
        let tables = self.view.tables();
        let took = tables.take_from(self.from.take(), *span, what, &mut self.gather);
        self.entries += took.entries;
        if took.emptied {
            tables.prune(PageSpan::new(span.start, took.upto), hole(), &mut self.gather);
        }
        span.start = took.upto;
        if span.is_empty() {
            return Ok(());
        }
        if took.straddles {
            self.isolate(*span)?;
        }
        Err(SectionLack::Settle)
    }

    /// Gives the leaves of `span`, which is prepared, the rights `prot`.
    pub fn protect(&mut self, span: PageSpan, prot: Prot) {
        let tables = self.view.tables();
        self.entries += tables.protect_from(self.from.take(), span, prot, &mut self.gather);
    }

    /// Clears the flags `noted` in the leaves of `span`, which is prepared, for each piece of a
    /// folio for which `forgets` is true. `remark` changes the markers.
    pub fn forget(
        &mut self,
        span: PageSpan,
        noted: Attrs,
        forgets: impl FnMut(Folio, FrameSpan, Attrs) -> bool,
        remark: impl Fn(Marks) -> Marks,
    ) {
        self.entries += self.view.tables().forget(span, noted, &mut self.gather, forgets, remark);
    }

    /// Write-protects the leaves of `span` that map one of `frames`: the next write faults.
    pub fn withhold(&mut self, span: PageSpan, frames: FrameSpan) {
        self.entries += self.view.tables().withhold(span, frames, &mut self.gather);
    }

    /// Maps the pages of `span` in `child`, too, which has the areas already and runs on no CPU.
    /// `span` shrinks from below by the part that is done. Faults wait until the change ends: the
    /// child must not see later writes of the parent. `lend_marks` gets each run of markers and
    /// returns the markers that both have.
    ///
    /// Returns the copy that the child needs where the parent's pages are pinned: for these pages,
    /// of the frames from this one on, with these attributes. Make it and continue behind them.
    pub fn fork(
        &mut self,
        child: &View<'_, A, H>,
        span: &mut PageSpan,
        how: Inherit,
        lend_marks: &dyn Fn(Marks, u64) -> Marks,
    ) -> Result<Option<(PageSpan, Pfn, Attrs)>, SectionLack> {
        let (spare, gather, done) = (&mut self.table, &mut self.gather, &mut self.entries);
        let mut with = Heritage { how, spare, gather, done, lend_marks };
        match self.view.tables().fork(&child.tables(), span, &mut with) {
            Ok(()) => Ok(None),
            Err(ForkLack::Copy(pages, frame, attrs)) => Ok(Some((pages, frame, attrs))),
            Err(ForkLack::Table) => Err(SectionLack::Table),
        }
    }

    /// Makes the leaves of `span` COW, but for pinned pages.
    pub fn lend(&mut self, span: PageSpan) {
        self.entries += self.view.tables().lend(span, &mut self.gather);
    }

    /// The leaves that were taken out, to be settled.
    pub fn gathered(&mut self) -> &mut Gather {
        &mut self.gather
    }

    /// Ends the change, whose gather is flushed; returns a spare frame and the number of split
    /// leaves. The next change may begin when this value is dropped.
    pub fn end(&mut self) -> Ended {
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
