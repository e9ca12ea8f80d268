//! Putting tables, leaves and markers into empty entries.

use quire_arch::{Arch, Attrs, Entry, Level};
use quire_hw::{FrameRun, Hardware};
use quire_units::{Order, PageSpan, Pfn, Vpn};

use super::visit::Step;
use super::word::FOREIGN;
use super::{Locked, MarkKind, Marks, Place, Run, Tables, What};

/// The lack that stopped a change of the tables. All before it stays done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lack {
    /// One zeroed frame, to become a table.
    Table,
    /// Room: this page has an entry already.
    Room(Vpn),
}

impl<'a, A: Arch, H: Hardware> Tables<'a, A, H> {
    /// Makes the tables down to `level` that translate `page`. Returns the frame of the lowest.
    pub(super) fn reach_down(
        &self,
        page: Vpn,
        level: Level,
        spare: &mut Option<FrameRun>,
    ) -> Result<Pfn, Lack> {
        loop {
            let place = self.walk(page, level);
            if place.level == level {
                return Ok(place.frame);
            }
            if let Entry::Leaf { .. } = A::decode(place.word, place.level) {
                return Err(Lack::Room(page));
            }
            let run = spare.take().ok_or(Lack::Table)?;
            let frame = run.start();
            match self.link(place, page, run) {
                Ok(()) if place.level.child() == Some(level) => return Ok(frame),
                Ok(()) => {}
                Err(run) => *spare = Some(run),
            }
        }
    }

    /// Makes `run` the lower table that translates `page` below `place`, which a walk returned.
    ///
    /// # Errors
    /// The run, when something else is at that place by now; walk again.
    pub fn link(&self, place: Place, page: Vpn, run: FrameRun) -> Result<(), FrameRun> {
        self.link_if(place, page, run, || true)
    }

    /// The same, if `still` returns true with the upper table locked. A table that is linked where
    /// no area is any more could stand in the place of one that is not flushed yet.
    ///
    /// # Errors
    /// The run, as for [`link`](Self::link), or when `still` says no.
    pub fn link_if(
        &self,
        place: Place,
        page: Vpn,
        run: FrameRun,
        still: impl FnOnce() -> bool,
    ) -> Result<(), FrameRun> {
        let Some(lower) = place.level.child() else { return Err(run) };
        let Some(locked) = self.lock(place.frame, place.level, page) else { return Err(run) };
        let index = locked.index(page);
        if locked.word(index) != 0 || !still() {
            return Err(run);
        }
        let frame = self.adopt(run, lower, Self::base(page, lower));
        locked.make(index, A::table(frame));
        Ok(())
    }

    /// Maps the pages of `span` to as many frames from `frame` on, in leaves as large as both
    /// numbers' alignment allows, [`block_order`](Arch::block_order) at most: no fact says that a
    /// CPU has larger ones. The leaves are foreign: of device memory, or of RAM that the embedder
    /// owns. Mapped pages of a folio that it lends are the caller's to count.
    ///
    /// `span` shrinks from below by the pages that are mapped. After an error, repeat the call with
    /// the missing table in `spare`.
    ///
    /// # Errors
    /// [`Lack::Table`] when a lower table is needed and `spare` is empty; [`Lack::Room`] when a
    /// page of the span is mapped already.
    pub fn map(
        &self,
        span: &mut PageSpan,
        frame: &mut Pfn,
        attrs: Attrs,
        spare: &mut Option<FrameRun>,
    ) -> Result<(), Lack> {
        while !span.is_empty() {
            let level = self.fitting(*span, *frame, A::block_order());
            let done = self.occupy(span, level, spare, |locked, run| {
                locked.put_any(run.index, run.count, *frame, attrs | FOREIGN);
            })?;
            *frame = frame.add(done);
        }
        Ok(())
    }

    /// Calls `put` with absent entries that translate the first pages of `span`, all in one table
    /// of `level`, or a lower one that is there already. `span` shrinks by their pages. Returns how
    /// many these are.
    fn occupy(
        &self,
        span: &mut PageSpan,
        level: Level,
        spare: &mut Option<FrameRun>,
        put: impl FnOnce(&Locked<'_, A, H>, &Run),
    ) -> Result<u64, Lack> {
        self.reach_down(span.start, level, spare)?;
        let locked = self.lock_lowest(span.start, Level::LAST);
        let end = span.end.min(locked.reach().end).align_down(locked.unit().pages());
        let (run, end) = locked.run_in(span.start, end);
        if run.what != What::Absent {
            return Err(Lack::Room(span.start));
        }
        put(&locked, &run);
        let done = end.offset_from(span.start);
        span.start = end;
        Ok(done)
    }

    /// The level of the largest leaf, of order `most` at most, that `span` and `frame` can begin
    /// with.
    fn fitting(&self, span: PageSpan, frame: Pfn, most: Order) -> Level {
        let aligned = (span.start.get() | frame.get()).trailing_zeros().min(63) as u8;
        let longest = Order::fitting(span.count()).unwrap_or_default();
        A::leaf_level(Order::new(aligned.min(longest.get())).min(most))
    }

    /// Puts markers into all entries in `span`, none of which may be in use. Ascending markers go
    /// into entries as large as alignment allows, where there is no lower table; others into those
    /// of the last level. `span` shrinks as for [`map`](Self::map), and `marks` goes on with it.
    ///
    /// # Errors
    /// As for [`map`](Self::map).
    pub fn mark(
        &self,
        span: &mut PageSpan,
        marks: &mut Marks,
        spare: &mut Option<FrameRun>,
    ) -> Result<(), Lack> {
        while !span.is_empty() {
            let level = match marks.ascending {
                true => self.fitting(*span, Pfn::new(span.start.get()), Order::new(63)),
                false => Level::LAST,
            };
            let done = self.occupy(span, level, spare, |locked, run| {
                locked.mark(run.index, run.count, *marks);
            })?;
            marks.first += if marks.ascending { done } else { 0 };
        }
        Ok(())
    }

    /// Makes the tables that [`mark`](Self::mark) needs for ascending markers in `span`, if leaves
    /// and markers end where it begins and ends.
    ///
    /// # Errors
    /// [`Lack::Table`] when one is needed and `spare` is empty: repeat with one.
    pub(crate) fn ready_to_mark(
        &self,
        span: PageSpan,
        spare: &mut Option<FrameRun>,
    ) -> Result<(), Lack> {
        // Between the ends there are whole blocks, first ever larger ones and then ever smaller
        // ones. Each of their tables also translates a page at an end.
        let last = Vpn::new(span.end.get() - 1);
        for (edge, page) in [(span.start, span.start), (span.end, last)] {
            let aligned = Order::new(edge.get().trailing_zeros().min(63) as u8);
            match self.reach_down(page, A::leaf_level(aligned), spare) {
                Ok(_) | Err(Lack::Room(_)) => {}
                Err(Lack::Table) => return Err(Lack::Table),
            }
        }
        Ok(())
    }

    /// Takes the guards of `span` away. None of them may reach across an end of it. Returns how
    /// many entries they had.
    pub(crate) fn unguard(&self, span: PageSpan) -> u64 {
        let mut entries = 0;
        self.runs(span, |found| -> Step<()> {
            if let What::Marker(marks) = found.run.what
                && marks.kind() == Some(MarkKind::Guard)
            {
                debug_assert!(!found.is_cut(), "the caller has split what reaches beyond the span");
                found.table.clear(found.run.index, found.run.count);
                entries += found.run.count as u64;
            }
            Step::Next
        });
        entries
    }

    /// Calls `hear` with each run of leaves or markers in `span`, and its pages, under the lock of
    /// its table. Of a leaf that reaches across an end of the span, it hears the part within.
    pub fn tell(&self, span: PageSpan, mut hear: impl FnMut(PageSpan, Level, What)) {
        self.runs(span, |found| -> Step<()> {
            let what = match found.run.what {
                What::Leaf { frame, attrs, settled } => {
                    What::Leaf { frame: found.frame_within(frame), attrs, settled }
                }
                what => what,
            };
            hear(found.pages, found.table.level(), what);
            Step::Next
        });
    }
}

impl<A: Arch, H: Hardware> Locked<'_, A, H> {
    /// Puts `marks` into `count` entries from `index` on, which are zero.
    pub(super) fn mark(&self, index: usize, count: usize, marks: Marks) {
        self.overwrite(index, count, marks);
        self.add(count as i64, 0);
    }

    /// Takes a run of markers away; other runs stay.
    #[cfg(feature = "files")]
    pub(crate) fn clear_marks(&self, run: &Run) {
        if let What::Marker(_) = run.what {
            self.clear(run.index, run.count);
        }
    }

    /// Takes the watcher's markers in `pages` away, where nothing else is; whether that is so.
    pub(crate) fn take_watched(&self, pages: PageSpan) -> bool {
        let each = |act: &mut dyn FnMut(&Run) -> bool| {
            let mut at = pages.start;
            while at < pages.end {
                let (run, end) = self.run_in(at, pages.end);
                if !act(&run) {
                    return false;
                }
                at = end;
            }
            true
        };
        let alone = each(&mut |run| match run.what {
            What::Absent => true,
            What::Marker(marks) => marks.kind() == Some(MarkKind::Watched),
            What::Leaf { .. } | What::Table(_) => false,
        });
        alone
            && each(&mut |run| {
                if run.what != What::Absent {
                    self.clear(run.index, run.count);
                }
                true
            })
    }
}
