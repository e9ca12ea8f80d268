//! Taking leaves and tables out of a tree.

use quire_arch::{Arch, Level};
use quire_hw::Hardware;
use quire_units::{FrameSpan, PageSpan, Pfn, Vpn};

use super::visit::{Found, Step};
use super::word::{WATCHED, is_foreign};
use super::{Gather, Locked, Marks, Place, Run, Tables, What};
use crate::folio::{Folio, FolioFlags, Folios};

/// How far a [`take`](Tables::take) came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Took {
    /// All before this page is taken. If it is not the span's end, settle the gather and go on from
    /// here.
    pub upto: Vpn,
    /// Entries that were zeroed.
    pub entries: u64,
    /// A leaf reaches across the end of the span, or across this page: [`isolate`](Tables::isolate)
    /// first.
    pub straddles: bool,
    /// A table became empty, so that [`prune`](Tables::prune) finds it.
    pub emptied: bool,
}

/// The entries that are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taking {
    /// All of them: the area ends.
    All,
    /// Leaves and swap entries: the area stays, and its guards do.
    Content,
}

impl<A: Arch, H: Hardware> Tables<'_, A, H> {
    /// Takes every leaf and marker of `span` out of the tree and into `gather`, up to one that
    /// reaches across an end of the span.
    pub fn take(&self, span: PageSpan, gather: &mut Gather) -> Took {
        self.take_from(None, span, Taking::All, gather)
    }

    /// The same for the entries that `what` names, where an earlier walk for the first page has
    /// ended at `from`.
    pub fn take_from(
        &self,
        from: Option<Place>,
        span: PageSpan,
        what: Taking,
        gather: &mut Gather,
    ) -> Took {
        let mut took = Took { upto: span.end, entries: 0, straddles: false, emptied: false };
        let stopped = self.each(from, span, |table, part| {
            // An empty table need not be looked at to its end.
            let mut step = Step::Next;
            if table.present() > 0 {
                step = table.runs(part, |found| match found.take(what, gather, &mut took) {
                    Step::Next | Step::To(_) if table.present() == 0 => Step::To(part.end),
                    step => step,
                });
            }
            took.emptied |= table.present() == 0;
            step
        });
        took.upto = stopped.unwrap_or(span.end);
        took
    }

    /// Takes the leaves of `span` that map folios which are `such` out of the tree, and into
    /// `gather`. Leaves that reach beyond the span stay. Returns where it stopped if the gather is
    /// full: settle it and go on from there.
    pub(crate) fn detach(
        &self,
        span: PageSpan,
        gather: &mut Gather,
        such: &impl Fn(Folio) -> bool,
    ) -> Option<Vpn> {
        self.runs(span, |found| match found.run.what {
            What::Leaf { frame, attrs, .. } if !is_foreign(attrs) && !found.is_cut() => {
                let taken = found.table.take_folios(found.run, frame, gather, such);
                #[cfg(feature = "watch")]
                if attrs.contains(WATCHED) {
                    found.keep_shield(found.pages);
                }
                // Frames that are no folio are passed.
                let done = taken == found.pages.count() || !gather.is_full();
                if done { Step::Next } else { Step::Stop(found.pages.start.add(taken)) }
            }
            _ => Step::Next,
        })
    }

    /// Takes out of the tree, and into `gather`, every empty table that translates a page of
    /// `span` and nothing outside `hole`, which is at least as large.
    pub fn prune(&self, span: PageSpan, hole: PageSpan, gather: &mut Gather) {
        self.prune_below(A::ROOT, span, hole, gather);
    }

    /// The same for tables of the levels below `level`.
    pub(super) fn prune_below(
        &self,
        level: Level,
        span: PageSpan,
        hole: PageSpan,
        gather: &mut Gather,
    ) {
        let mut lower = Level::LAST;
        while lower != level {
            let upper = lower.parent();
            let mut at = span.start;
            while at < span.end {
                let place = self.walk(at, upper);
                if place.level != upper {
                    at = self.beyond(place, at);
                } else if let Some(locked) = self.lock(place.frame, upper, at) {
                    let part = PageSpan::new(at, locked.reach().end.min(span.end));
                    locked.prune(part, hole, gather);
                    at = part.end;
                }
            }
            lower = upper;
        }
    }

    /// Whether the root leads to no table and no leaf.
    pub(crate) fn is_bare(&self) -> bool {
        self.lock(self.root(), A::ROOT, Vpn::new(0)).is_none_or(|locked| locked.present() == 0)
    }

    /// Ends the tree, which is empty: no CPU uses it any more. Its root goes into `gather`.
    pub fn free_root(self, gather: &mut Gather) {
        if let Some(locked) = self.lock(self.root(), A::ROOT, Vpn::new(0)) {
            debug_assert_eq!(locked.present(), 0);
            // The embedder's half of the root may hold words.
            gather.table(self.meta, locked.into_stray(), false);
        }
    }
}

impl<A: Arch, H: Hardware> Found<'_, '_, A, H> {
    /// Takes the run, unless it stays, an end of the span cuts it, or the gather is full.
    #[inline(always)]
    fn take(&self, what: Taking, gather: &mut Gather, took: &mut Took) -> Step<Vpn> {
        let (table, run, pages) = (self.table, &*self.run, self.pages);
        let stays = |marks: Marks| what == Taking::Content && marks.stay();
        let taken = match run.what {
            What::Marker(marks) if stays(marks) => return Step::Next,
            _ if self.is_cut() => {
                took.straddles = true;
                0
            }
            What::Leaf { frame, attrs, .. } if is_foreign(attrs) => {
                table.take_foreign(run, frame, gather)
            }
            What::Leaf { frame, attrs, .. } => {
                let shielded = cfg!(feature = "watch") && attrs.contains(WATCHED);
                if shielded && what == Taking::Content {
                    return self.take_shielded(frame, gather, took);
                }
                let lone = match run.count {
                    1 => table.take_scattered(run, self.end, gather),
                    _ => 0,
                };
                if lone > 0 {
                    took.entries += lone as u64;
                    return Step::To(pages.start.add((lone as u64) << table.unit().get()));
                }
                let taken = table.take_folios(run, frame, gather, |_| true);
                debug_assert!(taken == pages.count() || gather.is_full(), "leaves map folios");
                taken
            }
            What::Marker(marks) if gather.mark(marks, pages.count()) => {
                table.clear(run.index, run.count);
                pages.count()
            }
            _ => 0,
        };
        took.entries += taken >> table.unit().get();
        if taken < pages.count() { Step::Stop(pages.start.add(taken)) } else { Step::Next }
    }

    /// Takes the first leaves that wait for a watcher. Where their content is a file's it stays,
    /// and so does their protection, as markers. Pages of both kinds may be one run.
    #[cold]
    #[inline(never)]
    fn take_shielded(&self, frame: Pfn, gather: &mut Gather, took: &mut Took) -> Step<Vpn> {
        let (table, run, pages) = (self.table, &*self.run, self.pages);
        let folios = Folios::new(table.tables.meta);
        let is_file = |folio| folios.known(folio).0.contains(FolioFlags::CACHED);
        let stay = folios.of(frame).is_some_and(is_file);
        let frames = table.frames(frame, run.count);
        let alike = folios.each(frames, |folio, _| is_file(folio) == stay);
        let run = &table.run(run.index, run.index + (alike >> table.unit().get()) as usize);
        let taken = table.take_folios(run, frame, gather, |_| true);
        #[cfg(feature = "watch")]
        if stay {
            self.keep_shield(PageSpan::new(pages.start, pages.start.add(taken)));
        }
        took.entries += taken >> table.unit().get();
        match taken {
            0 if gather.is_full() => Step::Stop(pages.start),
            taken => Step::To(pages.start.add(taken)),
        }
    }

    /// Those of `pages` that were taken wait for their watcher as before: markers say so.
    #[cfg(feature = "watch")]
    fn keep_shield(&self, pages: PageSpan) {
        let (table, mut at) = (self.table, pages.start);
        while at < pages.end {
            let (run, end) = table.run_in(at, pages.end);
            if run.what == What::Absent {
                let entries = table.entries(PageSpan::new(at, end));
                table.mark(entries.start, entries.len(), Marks::watched(at, true));
            }
            at = end;
        }
    }
}

impl<A: Arch, H: Hardware> Locked<'_, A, H> {
    /// Unlinks the empty tables that the entries of `part` lead to and that lie within `hole`.
    fn prune(&self, part: PageSpan, hole: PageSpan, gather: &mut Gather) {
        let (Some(lower), unit) = (self.level().child(), self.unit()) else { return };
        let mut at = part.start;
        while at < part.end {
            let (run, end) = self.run_in(at, part.end);
            let block = PageSpan::block(at, unit);
            if let What::Table(frame) = run.what
                && hole.covers(block)
                && let Some(child) = self.tables.lock(frame, lower, block.start)
                && child.present() == 0
            {
                self.clear(run.index, 1);
                // A flush of any page of its reach drops the cached pointer to it.
                gather.flush_tables(block.intersect(part), unit);
                gather.table(self.tables.meta, child.into_stray(), true);
            }
            at = end;
        }
    }

    /// Takes those of a run of leaves whose folios are `such`, up to one for which the gather has
    /// no room. Returns how many pages it has passed.
    #[inline(always)]
    fn take_folios(
        &self,
        run: &Run,
        frame: Pfn,
        gather: &mut Gather,
        such: impl Fn(Folio) -> bool,
    ) -> u64 {
        let (meta, unit) = (self.tables.meta, self.unit().get());
        let entry = |pages: u64| run.index + (pages >> unit) as usize;
        let mut from = run.index;
        let passed = Folios::new(meta).each(self.frames(frame, run.count), |folio, piece| {
            if !such(folio) {
                let ahead = piece.start.offset_from(frame);
                self.clear_leaves(from, entry(ahead) - from, gather);
                from = entry(ahead + piece.count);
                return true;
            }
            let room = !gather.is_full();
            if room {
                gather.mapping(meta, folio, piece);
            }
            room
        });
        self.clear_leaves(from, entry(passed) - from, gather);
        passed
    }

    /// If the run is one leaf, takes it and the leaves after it that are like it, wherever their
    /// frames lie, up to one for which the gather has no room. Returns how many.
    #[inline(never)]
    fn take_scattered(&self, run: &Run, end: usize, gather: &mut Gather) -> usize {
        let (folios, pages) = (Folios::new(self.tables.meta), self.unit().pages());
        let take = |frame, _: &mut u64| match folios.of(frame) {
            Some(folio) if !gather.is_full() => {
                gather.mapping_of(self.tables.meta, folio, FrameSpan::new(frame, pages));
                true
            }
            _ => false,
        };
        let count = self.scattered(run, end, take, |_, _| {});
        self.clear_leaves(run.index, count, gather);
        count
    }

    /// Takes a run of foreign leaves, up to a folio for whose mapping the gather has no room.
    /// Returns how many pages it has passed.
    fn take_foreign(&self, run: &Run, frame: Pfn, gather: &mut Gather) -> u64 {
        let meta = self.tables.meta;
        let passed = Folios::new(meta).each_lent(self.frames(frame, run.count), |folio, piece| {
            let room = !gather.is_full();
            if room {
                gather.mapping_of(meta, folio, piece);
            }
            room
        });
        self.clear_leaves(run.index, (passed >> self.unit().get()) as usize, gather);
        passed
    }

    /// Zeroes `count` leaves from `index` on, which cut no folio, and notes their flush.
    #[inline(always)]
    fn clear_leaves(&self, index: usize, count: usize, gather: &mut Gather) {
        if count > 0 {
            self.part(index, count);
            self.clear(index, count);
            gather.flush(self.span(index, count), self.unit());
        }
    }
}
