//! Fork: a child gets what its parent has mapped, run by run.
//!
//! ```text
//!   parent's table            child's table, not in use yet
//!   | A+0 c w |               |         |      1. count: the folio gains as many mapped pages
//!   | A+1 c w |    ──►        |         |      2. parent: not writable, COW; in place, still folded
//!   |  ...    |               |   ...   |      3. child: the parent's words as they are now
//! ```
//!
//! Each step is one for a whole run: one addition, one fill, one fill. A run holds a contiguous
//! block whole or not at all; its words are copied as they are, and no step unfolds them. (A block
//! is cut only at an end of the fork, where the next area is not inherited alike.)

use quire_arch::rules::must_flush;
use quire_arch::{Arch, Attrs, Entry, Level};
use quire_hw::{FrameRun, Hardware};
use quire_units::{FrameSpan, PageSpan, Pfn, Vpn};

use super::grant::Regrant;
use super::run::Stretch;
use super::word::{is_cow, is_foreign, is_settled};
use super::{Gather, Locked, Marks, Run, Tables, What};
use crate::folio::Folios;

/// How a child gets the pages of its parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inherit {
    /// Each side sees its own writes only: both map the same frames until one writes.
    Private,
    /// Both sides see all writes.
    Shared,
}

/// The lack that stopped a fork. All before it stays done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ForkLack {
    /// One zeroed frame, to become a table of the child.
    Table,
    /// A copy of these frames for these pages of the child, with these attributes: the
    /// folio is pinned, and a device goes on reading and writing the parent's frames.
    Copy(PageSpan, Pfn, Attrs),
}

/// The things that a fork works with besides the two trees.
pub struct Heritage<'a> {
    /// How the child gets the pages.
    pub how: Inherit,
    /// A frame for a table of the child.
    pub spare: &'a mut Option<FrameRun>,
    /// The flush of the parent.
    pub gather: &'a mut Gather,
    /// How many entries the child got.
    pub done: &'a mut u64,
    /// Called with each run of markers, and how many pages it stands for; returns the markers that
    /// both sides have afterwards.
    pub lend_marks: &'a dyn Fn(Marks, u64) -> Marks,
}

/// How far the leaves of a run can be shared.
struct Shared {
    /// How many entries.
    entries: usize,
    /// Some of the folios are large enough for contiguous blocks.
    folds: bool,
}

impl<A: Arch, H: Hardware> Tables<'_, A, H> {
    /// Gives `child`, which no CPU uses, what is mapped here in `span`, none of it mapped there.
    /// `with.gather` takes the flush of this tree.
    ///
    /// `span` shrinks from below by the pages that are done. After an error, repeat the call with
    /// a table in `with.spare`, or with the copy made and `span` moved on beyond it.
    ///
    /// # Errors
    /// `ForkLack`. `with.done` counts the entries also then.
    pub fn fork(
        &self,
        child: &Self,
        span: &mut PageSpan,
        with: &mut Heritage<'_>,
    ) -> Result<(), ForkLack> {
        while !span.is_empty() {
            let place = self.walk(span.start, Level::LAST);
            if A::decode(place.word, place.level) == Entry::Absent && !place.level.is_last() {
                *span = PageSpan::new(self.beyond(place, span.start).min(span.end), span.end);
                continue;
            }
            let heir = child.reach_down(span.start, place.level, with.spare);
            let heir = heir.map_err(|_| ForkLack::Table)?;
            let Some(locked) = self.lock(place.frame, place.level, span.start) else { continue };
            let Some(heir) = child.lock(heir, place.level, span.start) else { continue };
            let part = span.intersect(locked.reach());
            let (upto, result) = locked.fork_part(&heir, part, with);
            *span = PageSpan::new(upto, span.end);
            result?;
        }
        Ok(())
    }
}

impl<A: Arch, H: Hardware> Locked<'_, A, H> {
    /// Gives `heir`, the child's table for the same pages, what is mapped here in `part`. Returns
    /// the page before which all is done.
    fn fork_part(
        &self,
        heir: &Self,
        part: PageSpan,
        with: &mut Heritage<'_>,
    ) -> (Vpn, Result<(), ForkLack>) {
        let entries = self.entries(part);
        let mut at = entries.start;
        while at < entries.end {
            // The child has nothing that its parent has not: with as many entries, it has all.
            if heir.present() == self.present() {
                return (part.end, Ok(()));
            }
            let run = self.run_to_fork(at, entries.end);
            match run.what {
                What::Absent => {}
                What::Table(_) => return (self.page(at).max(part.start), Ok(())),
                What::Marker(marks) => {
                    let lent = (with.lend_marks)(marks, self.pages(&run).count());
                    if lent != marks {
                        self.overwrite(run.index, run.count, lent);
                    }
                    heir.mark(run.index, run.count, lent);
                    *with.done += run.count as u64;
                }
                What::Leaf { frame, attrs, .. } => {
                    let lone = match run.count {
                        1 if self.level().is_last() => {
                            self.fork_scattered(heir, &run, entries.end, with)
                        }
                        _ => 0,
                    };
                    if lone > 0 {
                        *with.done += lone as u64;
                        at += lone;
                        continue;
                    }
                    let shared = self.fork_run(heir, run, frame, attrs, with.how, with.gather);
                    *with.done += shared as u64;
                    if shared < run.count {
                        let end = self.page(at + run.count).min(part.end);
                        let rest = PageSpan::new(self.page(at + shared), end);
                        let from = self.frames(frame, shared).end();
                        return (rest.start, Err(self.must_copy(rest, from, attrs)));
                    }
                }
            }
            at += run.count;
        }
        (self.page(at).min(part.end), Ok(()))
    }

    /// The first stretch of the run at entry `index`, since its words are simpler to change; but
    /// the whole run if the stretch would cut a contiguous block.
    #[inline(always)]
    fn run_to_fork(&self, index: usize, end: usize) -> Run {
        let raw = self.raw(index);
        if let Entry::Leaf { frame, attrs } = self.meaning(raw, index) {
            let s = self.stretch(index, end, raw);
            let whole = (s.index | s.count) & (self.width() - 1) == 0;
            if whole || !self.is_folded(raw) {
                let what = What::Leaf { frame, attrs, settled: is_settled(attrs) };
                return Run { index, count: s.count, what, raw, uniform: true };
            }
        }
        self.run(index, end)
    }

    /// The part of `rest` that belongs to the folio at `frame`, which cannot be shared.
    fn must_copy(&self, rest: PageSpan, frame: Pfn, attrs: Attrs) -> ForkLack {
        let frames = FrameSpan::new(frame, rest.count());
        let folio = Folios::new(self.tables.meta).of(frame);
        let count = folio.map_or(frames, |folio| folio.part_of(frames)).count;
        ForkLack::Copy(PageSpan::new(rest.start, rest.start.add(count)), frame, attrs)
    }

    /// Shares a run, up to a folio that cannot be shared. Returns how many of its entries.
    #[inline(always)]
    fn fork_run(
        &self,
        heir: &Self,
        mut run: Run,
        frame: Pfn,
        attrs: Attrs,
        how: Inherit,
        gather: &mut Gather,
    ) -> usize {
        let splits = how == Inherit::Private && !is_foreign(attrs);
        let exclusive = splits && !is_cow(attrs);
        let Shared { entries, folds } = match is_foreign(attrs) {
            true => self.share_foreign(frame, run.count),
            false => self.share(frame, run.count, exclusive),
        };
        if entries == 0 {
            return 0;
        }
        if let Some(s) = self.plain_stretch(&run, entries, folds) {
            let raw = if exclusive { self.lend(&s, frame, attrs, gather) } else { s.raw };
            heir.take_over(&Stretch { raw, ..s });
            return entries;
        }
        if exclusive {
            self.part_run(&mut run);
            if self.regrant(&run, entries, gather.flushes_space(), Regrant::LENT) {
                gather.flush_space();
            }
            if folds {
                self.refold_ends(run.index, entries);
            }
        }
        heir.copy_from(self, &run, entries, folds);
        entries
    }

    /// If the run is one page, shares it and the leaves after it that are like it, wherever their
    /// frames lie, up to one that cannot be shared so. Returns how many.
    #[inline(never)]
    fn fork_scattered(&self, heir: &Self, run: &Run, end: usize, with: &mut Heritage<'_>) -> usize {
        let What::Leaf { frame, attrs, settled: true } = run.what else { return 0 };
        let exclusive = with.how == Inherit::Private && !is_cow(attrs);
        let now = if exclusive { Regrant::LENT.of(attrs) } else { attrs };
        let (folios, more) = (Folios::new(self.tables.meta), self.change_of(run.raw, frame, now));
        let share = |frame, word: &mut u64| {
            *word = word.wrapping_add(more);
            folios.share_page(frame, exclusive)
        };
        let count = self.scattered(run, end, share, |at, words| {
            if more != 0 {
                self.store_batch(at, words);
            }
            heir.store_batch(at, words);
        });
        if count > 0 {
            heir.add(count as i64, 0);
            if must_flush(attrs, now) {
                with.gather.flush_space();
            }
            self.refold_ends(run.index, count);
            heir.refold_ends(run.index, count);
        }
        count
    }

    /// The first `count` entries of a run as one stretch, if the hardware cannot change it, and no
    /// contiguous block is cut, or could be.
    #[inline]
    fn plain_stretch(&self, run: &Run, count: usize, folds: bool) -> Option<Stretch> {
        let whole = (run.index | count) & (self.width() - 1) == 0;
        let uncut = whole || !folds && !self.is_folded(run.raw);
        let simple = run.uniform && run.is_settled() && uncut;
        simple.then_some(Stretch { index: run.index, count, raw: run.raw })
    }

    /// Takes the right to write, and makes the leaves COW. Returns their first word.
    #[inline(always)]
    fn lend(&self, s: &Stretch, frame: Pfn, attrs: Attrs, gather: &mut Gather) -> u64 {
        let lent = Regrant::LENT.of(attrs);
        let raw = self.respelled(s.raw, frame, lent);
        self.fill_stretch(&Stretch { raw, ..*s });
        if !gather.flushes_space() && must_flush(attrs, lent) {
            gather.flush_space();
        }
        raw
    }

    /// Takes over the words of a stretch of another table, where nothing is.
    #[inline]
    fn take_over(&self, s: &Stretch) {
        self.fill_stretch(s);
        let blocks = if self.is_folded(s.raw) { s.count / self.width() } else { 0 };
        self.add(s.count as i64, blocks as i64);
    }

    /// Counts one more mapping of each frame, from `frame` on. A pinned folio of the parent's own
    /// is not shared: a device uses it, and the parent must go on seeing that.
    #[inline]
    fn share(&self, frame: Pfn, count: usize, exclusive: bool) -> Shared {
        let folios = Folios::new(self.tables.meta);
        let (pages, largest) = folios.share_all(self.frames(frame, count), exclusive);
        let entries = (pages >> self.unit().get()) as usize;
        Shared { entries, folds: self.may_fold_in(largest) }
    }

    /// Counts one more mapping of those frames, from `frame` on, that the embedder lends.
    fn share_foreign(&self, frame: Pfn, count: usize) -> Shared {
        let folios = Folios::new(self.tables.meta);
        let share = |folio, piece: FrameSpan| folios.share(folio, piece.count as u32, false);
        let pages = folios.each_lent(self.frames(frame, count), share);
        Shared { entries: (pages >> self.unit().get()) as usize, folds: true }
    }

    /// Takes over the words of the first `count` entries of a run of `other`, where nothing is.
    fn copy_from(&self, other: &Self, run: &Run, count: usize, folds: bool) {
        let width = self.width();
        // A block at an end may have just become foldable, and the words of the run differ then.
        let ends = folds && (run.index | count) & (width - 1) != 0;
        let run = Run { uniform: run.uniform && !ends && run.is_settled(), ..*run };
        for s in other.stretches(&run, count) {
            let whole = (s.index | s.count) & (width - 1) == 0;
            let folded = self.is_folded(s.raw);
            if folded && !whole {
                // The child's block becomes foldable with its last part.
                if let Some((frame, attrs)) = other.leaf_at(s.index) {
                    self.put_any(s.index, s.count, frame, attrs);
                }
                continue;
            }
            self.take_over(&s);
            if folds && !folded {
                self.refold_ends(s.index, s.count);
            }
        }
    }
}
