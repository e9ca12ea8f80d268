//! Putting tables and leaves where nothing was.

use quire_arch::{Arch, Attrs, Entry, Level};
use quire_hw::{FrameRun, Hardware};
use quire_units::{Order, PageSpan, Pfn, Vpn};

use super::walk::Step;
use super::{Locked, Marks, Place, Tables, What};

/// Marks a leaf whose frames are not folios.
pub(crate) const FOREIGN: Attrs = Attrs::SOFT;

/// What stopped a change of the tables. What was done before it stays done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lack {
    /// One zeroed frame, to become a table.
    Table,
    /// An empty place: something is mapped at this page already.
    Room(Vpn),
}

impl<'a, A: Arch, H: Hardware> Tables<'a, A, H> {
    /// Makes `run` the lower table that translates `page` below `place`, which a walk returned.
    ///
    /// # Errors
    /// The run, when something else is at that place by now; walk again.
    pub fn link(&self, place: Place, page: Vpn, run: FrameRun) -> Result<(), FrameRun> {
        let Some(lower) = place.level.child() else { return Err(run) };
        let Some(locked) = self.lock(place.frame, place.level, page) else { return Err(run) };
        let index = locked.index(page);
        if locked.word(index) != 0 {
            return Err(run);
        }
        let frame = self.adopt(run, lower, Self::base(page, lower));
        locked.make(index, A::table(frame));
        Ok(())
    }

    /// Maps the pages of `span` to as many frames from `frame` on, in leaves as large as both
    /// numbers' alignment allows. The frames are foreign: not folios and not counted. Device
    /// memory, a guest's RAM, or whatever else the embedder owns by itself.
    ///
    /// `span` shrinks from below by what has been mapped, so that the call can be repeated with
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
            let level = self.fitting(*span, *frame);
            let place = self.walk(span.start, Level::LAST);
            if place.level.is_above(level) {
                if matches!(A::decode(place.word, place.level), Entry::Leaf { .. }) {
                    return Err(Lack::Room(span.start));
                }
                let run = spare.take().ok_or(Lack::Table)?;
                *spare = self.link(place, span.start, run).err();
                continue;
            }
            // Where a lower table is already, though it may be empty, its smaller leaves do.
            let Some(locked) = self.lock(place.frame, place.level, span.start) else { continue };
            let count = locked.extend(*span, *frame, attrs | FOREIGN)?;
            *span = PageSpan::new(span.start.add(count), span.end);
            *frame = frame.add(count);
        }
        Ok(())
    }

    /// The level of the largest leaf that `span` and `frame` can begin with.
    fn fitting(&self, span: PageSpan, frame: Pfn) -> Level {
        let aligned = (span.start.get() | frame.get()).trailing_zeros().min(63) as u8;
        let longest = Order::fitting(span.count()).unwrap_or_default();
        A::leaf_level(Order::new(aligned.min(longest.get())))
    }

    /// Puts markers into all entries of the last level in `span`, none of which may be in use:
    /// absent for the hardware, and not to be mapped over. `span` shrinks as for
    /// [`map`](Self::map), and `marks` goes on with it.
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
            self.reach_down(span.start, Level::LAST, spare)?;
            let locked = self.lock_lowest(span.start, Level::LAST);
            let (run, end) = locked.run_in(span.start, span.end.min(locked.reach().end));
            if run.what != What::Absent {
                return Err(Lack::Room(span.start));
            }
            locked.mark(run.index, run.count, *marks);
            marks.first += if marks.ascending { run.count as u64 } else { 0 };
            *span = PageSpan::new(end, span.end);
        }
        Ok(())
    }

    /// Everything mapped in `span`, run by run, each with its pages: what a table says under its
    /// lock, one table after the other. Absent stretches are not told; of a leaf that reaches
    /// across an end of the span, what lies within is.
    pub fn tell(&self, span: PageSpan, mut hear: impl FnMut(PageSpan, Level, What)) {
        self.each(span, |locked, part| -> Step<()> {
            let mut at = part.start;
            while at < part.end {
                let (run, end) = locked.run_in(at, part.end);
                match run.what {
                    What::Table(_) => return Step::To(at),
                    What::Absent => {}
                    What::Leaf { frame, attrs, settled } => {
                        let frame = frame.add(at.offset_from(locked.page(run.index)));
                        let what = What::Leaf { frame, attrs, settled };
                        hear(PageSpan::new(at, end), locked.level(), what);
                    }
                    what => hear(PageSpan::new(at, end), locked.level(), what),
                }
                at = end;
            }
            Step::To(at)
        });
    }
}

impl<A: Arch, H: Hardware> Locked<'_, A, H> {
    /// Maps as much of `span` to the frames from `frame` on as this table takes, in leaves of its
    /// level. How many pages that are.
    fn extend(&self, span: PageSpan, frame: Pfn, attrs: Attrs) -> Result<u64, Lack> {
        let index = self.index(span.start);
        let block = A::order(self.level());
        let within = span.intersect(self.reach()).count() >> block.get();
        let run = self.run(index, index + within as usize);
        match run.what {
            What::Absent => {}
            // A lower table has been put here since the walk: the caller walks again.
            What::Table(_) => return Ok(0),
            What::Leaf { .. } | What::Marker(_) => return Err(Lack::Room(self.page(index))),
        }
        self.put_any(index, run.count, frame, attrs);
        Ok((run.count as u64) << block.get())
    }

    /// Maps `count` entries from `index` on, which are zero, to the frames from `frame` on, which
    /// belong to folios of order `each`.
    #[inline]
    pub(crate) fn put(&self, index: usize, count: usize, frame: Pfn, attrs: Attrs, each: Order) {
        let folds = A::fold_order(self.level()).is_some_and(|block| each >= block);
        self.put_piece(index, count, frame, attrs, folds);
    }

    /// Puts `marks` into `count` entries from `index` on, which are zero.
    pub(super) fn mark(&self, index: usize, count: usize, marks: Marks) {
        let (first, step) = (A::marker(marks.first), marks.step::<A>());
        let last = marks.first + if marks.ascending { count as u64 - 1 } else { 0 };
        debug_assert_eq!(first.wrapping_add(step.wrapping_mul(count as u64 - 1)), A::marker(last));
        self.fill(index, count, first, step);
        self.add(count as i64, 0);
    }

    /// The run at `page`, and the page after it or `end`, whichever comes first.
    #[inline]
    pub fn run_in(&self, page: Vpn, end: Vpn) -> (super::Run, Vpn) {
        let entries = self.entries(PageSpan::new(page, end));
        let run = self.run(entries.start, entries.end);
        (run, self.page(run.index + run.count).min(end))
    }
}
