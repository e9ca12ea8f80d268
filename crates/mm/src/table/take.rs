//! Taking leaves and tables out of a tree.

use quire_arch::{Arch, Level};
use quire_hw::Hardware;
use quire_units::{FrameSpan, PageSpan, Pfn, Vpn};

use super::map::FOREIGN;
use super::walk::Step;
use super::{Gather, Locked, MarkKind, Tables, What};
use crate::folio::Folios;

/// How far a [`take`](Tables::take) came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Took {
    /// All before this page is taken. Short of the span's end, the gather is full: settle it and
    /// go on from here with another.
    pub upto: Vpn,
    /// Entries that were zeroed.
    pub entries: u64,
    /// Whether it stopped since a leaf reaches across the end of the span, or across this page:
    /// [`isolate`](Tables::isolate) first.
    pub straddles: bool,
    /// Whether a table became empty, so that [`prune`](Tables::prune) finds something.
    pub emptied: bool,
}

/// What is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taking {
    /// Everything: the pages are nobody's any more.
    All,
    /// What is in the pages: guards stay where they are.
    Content,
}

impl<A: Arch, H: Hardware> Tables<'_, A, H> {
    /// Takes every leaf and marker of `span` out of the tree and into `gather`, up to one that
    /// reaches across an end of the span.
    pub fn take(&self, span: PageSpan, gather: &mut Gather) -> Took {
        self.take_some(span, Taking::All, gather)
    }

    /// The same for what is to be taken.
    pub fn take_some(&self, span: PageSpan, what: Taking, gather: &mut Gather) -> Took {
        let mut took = Took { upto: span.end, entries: 0, straddles: false, emptied: false };
        let stopped = self.each(span, |locked, part| {
            let step = self.take_part(locked, part, (what, gather), &mut took);
            took.emptied |= locked.present() == 0;
            step
        });
        took.upto = stopped.unwrap_or(span.end);
        took
    }

    fn take_part(
        &self,
        locked: &Locked<'_, A, H>,
        part: PageSpan,
        (what, gather): (Taking, &mut Gather),
        took: &mut Took,
    ) -> Step<Vpn> {
        let mut at = part.start;
        // What is left of an empty table need not be looked at.
        while at < part.end && locked.present() > 0 {
            let (run, end) = locked.run_in(at, part.end);
            match run.what {
                What::Absent => {}
                What::Table(_) => return Step::To(at),
                What::Marker(marks)
                    if what == Taking::Content && marks.kind() == Some(MarkKind::Guard) => {}
                What::Marker(marks) => {
                    let pages = locked.pages(&run);
                    if pages != PageSpan::new(at, end) {
                        took.straddles = true;
                        return Step::Stop(at);
                    }
                    if !gather.take_run(marks, pages.count()) {
                        return Step::Stop(at);
                    }
                    locked.clear(run.index, run.count);
                    took.entries += run.count as u64;
                }
                What::Leaf { frame, attrs, .. } => {
                    let pages = locked.pages(&run);
                    if pages != PageSpan::new(at, end) {
                        took.straddles = true;
                        return Step::Stop(at);
                    }
                    locked.part(run.index, run.count);
                    let taken = if attrs.contains(FOREIGN) {
                        locked.clear(run.index, run.count);
                        pages.count()
                    } else {
                        self.take_folios(locked, pages, frame, gather)
                    };
                    gather.flush(PageSpan::new(at, at.add(taken)), A::order(locked.level()));
                    took.entries += taken >> A::order(locked.level()).get();
                    if taken < pages.count() {
                        return Step::Stop(at.add(taken));
                    }
                }
            }
            at = end;
        }
        Step::To(part.end)
    }

    /// Takes a run of leaves, folio by folio; how many pages until the gather was full.
    fn take_folios(
        &self,
        locked: &Locked<'_, A, H>,
        pages: PageSpan,
        frame: Pfn,
        gather: &mut Gather,
    ) -> u64 {
        let frames = FrameSpan::new(frame, pages.count());
        let taken = Folios::new(self.meta).each(frames, |folio, piece| {
            let room = !gather.is_full();
            if room {
                gather.mapping(self.meta, folio, piece);
            }
            room
        });
        debug_assert!(taken == frames.count || gather.is_full(), "leaves map folios");
        locked.clear(locked.index(pages.start), (taken >> A::order(locked.level()).get()) as usize);
        taken
    }

    /// Takes out of the tree, and into `gather`, every empty table that translates a page of
    /// `span` and nothing outside `hole`, which is at least as large.
    pub fn prune(&self, span: PageSpan, hole: PageSpan, gather: &mut Gather) {
        let mut lower = Level::LAST;
        while lower != A::ROOT {
            let upper = lower.parent();
            let mut at = span.start;
            while at < span.end {
                let place = self.walk(at, upper);
                if place.level != upper {
                    at = self.beyond(place, at);
                } else if let Some(locked) = self.lock(place.frame, upper, at) {
                    let end = locked.reach().end.min(span.end);
                    self.prune_part(&locked, PageSpan::new(at, end), hole, gather);
                    at = end;
                }
            }
            lower = upper;
        }
    }

    /// Unlinks the empty tables that the entries of `part` point at.
    fn prune_part(
        &self,
        locked: &Locked<'_, A, H>,
        part: PageSpan,
        hole: PageSpan,
        gather: &mut Gather,
    ) {
        let Some(lower) = locked.level().child() else { return };
        let order = A::order(locked.level());
        let mut at = part.start;
        while at < part.end {
            let (run, end) = locked.run_in(at, part.end);
            let block = PageSpan::block(at, order);
            if let What::Table(frame) = run.what
                && hole.covers(block)
                && let Some(child) = self.lock(frame, lower, block.start)
                && child.present() == 0
            {
                locked.clear(run.index, 1);
                // Whatever page of its reach is named, the pointer to it is forgotten.
                gather.flush_tables(block.intersect(part), order);
                let lock = child.into_stray();
                gather.table(self.meta, lock, true);
            }
            at = end;
        }
    }

    /// Ends the tree, which is empty: no CPU uses it any more. Its root goes into `gather`.
    pub fn fell(self, gather: &mut Gather) {
        if let Some(locked) = self.lock(self.root(), A::ROOT, Vpn::new(0)) {
            debug_assert_eq!(locked.present(), 0);
            let lock = locked.into_stray();
            // The embedder's half of the root may hold words.
            gather.table(self.meta, lock, false);
        }
    }
}
