//! A change of a space from its beginning to its flush.

use core::ops::{Deref, DerefMut};

use quire_arch::Arch;
use quire_hw::{Hardware, Pieces};
use quire_units::PageSpan;

use super::{Base, Error};
use crate::space::{Section, SectionLack, Space};
use crate::stats::Event;
use crate::table::{Gather, Taking, invalidations};

/// A change of a space under way. It ends when this value is dropped, also if a step failed.
///
/// The end flushes and frees the gather, and frees unused frames. The flush comes before the next
/// change may begin: the next change would not find the removed entries, and could return before
/// the flush that its own promise needs. And a free place must not be mapped again while a CPU
/// still reaches the old memory there.
#[must_use = "dropping it ends the change"]
pub(crate) struct Change<'a, A: Arch, H: Hardware> {
    base: &'a Base<'a, A, H>,
    space: &'a Space<A>,
    section: Section<'a, A, H>,
    /// The changed entries that a statistic has already.
    counted: u64,
}

impl<A: Arch, H: Hardware> Base<'_, A, H> {
    /// Begins a change of `space`; waits while another is under way.
    #[inline(always)]
    pub(crate) fn change<'a>(&'a self, space: &'a Space<A>) -> Change<'a, A, H> {
        Change { base: self, space, section: Section::begin(self.view(space)), counted: 0 }
    }

    /// Flushes, and frees the frames and slots that a caller took out without a change.
    ///
    /// A change under way may have moved these pages here, and CPUs still reach their frames at the
    /// old place: then all of the space is flushed.
    #[inline]
    pub(crate) fn settle(&self, space: &Space<A>, gather: &mut Gather) {
        if gather.due().is_some_and(|due| space.areas.is_held(due.span())) {
            gather.flush_space();
        }
        self.settle_all(space, gather);
    }

    /// Flushes the translations of `due`, if there are any.
    pub(crate) fn flush(&self, space: &Space<A>, due: Option<Pieces>) {
        if let Some(flush) = due.and_then(|pages| space.target().order(Some(pages), false)) {
            self.hw.flush(&flush);
            self.count(Event::Flush, 1);
            self.count(Event::Invalidations, invalidations(&flush));
        }
    }

    #[inline]
    fn settle_all(&self, space: &Space<A>, gather: &mut Gather) {
        if !gather.is_empty() {
            self.settle_some(space, gather);
        }
    }

    fn settle_some(&self, space: &Space<A>, gather: &mut Gather) {
        let settled = gather.settle(&self.phys, self.hw, space.target());
        self.count(Event::Flush, settled.flushes);
        self.count(Event::Invalidations, settled.invalidations);
        self.count(Event::FramesFreed, settled.frames);
        for (first, pages) in gather.take_marks() {
            self.release_marks(first, pages);
        }
    }
}

impl<'a, A: Arch, H: Hardware> Change<'a, A, H> {
    /// Repeats `step`, and brings the frames that it needs, until it is done or memory is out.
    pub(crate) fn complete(
        &mut self,
        mut step: impl FnMut(&mut Section<'a, A, H>) -> Result<(), SectionLack>,
    ) -> Result<(), Error> {
        while let Err(need) = step(&mut self.section) {
            self.bring(need)?;
        }
        Ok(())
    }

    /// Brings what a step lacks.
    #[cold]
    fn bring(&mut self, need: SectionLack) -> Result<(), Error> {
        let run = match need {
            SectionLack::Settle => {
                self.settle();
                return Ok(());
            }
            SectionLack::Node => self.base.frame_that_stays()?,
            SectionLack::Table => self.base.table_frame()?,
        };
        self.base.free(self.section.bring(need, run).err());
        Ok(())
    }

    /// Prepares a change of `span` that inserts at most `insertions` areas; see
    /// [`Section::prepare`].
    pub(crate) fn prepare(&mut self, span: PageSpan, insertions: usize) -> Result<(), Error> {
        self.complete(|section| section.prepare(span, insertions))
    }

    /// Brings the tree frames for one more area.
    pub(crate) fn stock(&mut self) -> Result<(), Error> {
        self.complete(|section| section.stocked(1))
    }

    /// Takes the pages of `span` that `what` selects out of the tables, and tables within `hole`
    /// that became empty.
    #[inline]
    pub(crate) fn take(
        &mut self,
        span: PageSpan,
        what: Taking,
        hole: &dyn Fn() -> PageSpan,
    ) -> Result<(), Error> {
        if self.is_vacant(span) { Ok(()) } else { self.take_mapped(span, what, hole) }
    }

    #[inline(never)]
    fn take_mapped(
        &mut self,
        span: PageSpan,
        what: Taking,
        hole: &dyn Fn() -> PageSpan,
    ) -> Result<(), Error> {
        let mut left = span;
        let done = self.complete(|section| section.take(&mut left, what, hole));
        self.count(Event::EntriesCleared);
        done
    }

    /// Flushes and frees the pages taken so far.
    pub(crate) fn settle(&mut self) {
        self.base.settle_all(self.space, self.section.gathered());
    }

    /// Counts the entries that changed since the last such call as `event`.
    pub(crate) fn count(&mut self, event: Event) {
        let entries = self.section.entries();
        self.base.count(event, entries - self.counted);
        self.counted = entries;
    }
}

impl<'a, A: Arch, H: Hardware> Deref for Change<'a, A, H> {
    type Target = Section<'a, A, H>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.section
    }
}

impl<A: Arch, H: Hardware> DerefMut for Change<'_, A, H> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.section
    }
}

impl<A: Arch, H: Hardware> Drop for Change<'_, A, H> {
    fn drop(&mut self) {
        // Another CPU may have taken leaves out and not flushed them yet. This change saw them as
        // absent, so it flushes the whole space: a child must not see its parent's later writes
        // through a stale TLB entry.
        if self.space.is_unflushed() {
            self.section.gathered().flush_space();
        }
        self.settle();
        let ended = self.section.end();
        self.base.free(ended.table);
        if ended.splits > 0 {
            self.base.count(Event::LeafSplit, ended.splits);
        }
    }
}
