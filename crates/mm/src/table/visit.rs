//! The one walk over runs: what reads or changes a span is a body of it.
//!
//! ```text
//!   span       |.......................................|
//!   tables     |  table A          |  table B          |     each: one locked after the other
//!   runs       | leaves | – | mark | leaves            |     runs: the body is called with these
//! ```
//!
//! The body gets each run of leaves or markers with its table locked, acts on it through
//! [`Found`], and answers how the walk goes on. All of it is generic, so that each body compiles to
//! a loop of its own.

use quire_arch::{Arch, Level};
use quire_hw::Hardware;
use quire_units::{PageSpan, Pfn, Vpn};

use super::{Locked, Place, Run, Tables, What};

/// How a walk goes on.
pub enum Step<R> {
    /// With what follows.
    Next,
    /// With this page.
    To(Vpn),
    /// Not at all.
    Stop(R),
}

/// A run that a walk has found, in its locked table.
pub struct Found<'t, 'a, A, H> {
    /// The table.
    pub(super) table: &'t Locked<'a, A, H>,
    /// The run: leaves or markers. It is the walk's own, since a copy of it costs as much as some
    /// bodies do.
    pub(super) run: &'t mut Run,
    /// Its pages, as far as they lie in the walk's span.
    pub(super) pages: PageSpan,
    /// The walk's entries of this table end before this one.
    pub(super) end: usize,
}

impl<A: Arch, H: Hardware> Found<'_, '_, A, H> {
    /// All pages of its entries.
    #[inline]
    pub(super) fn all_pages(&self) -> PageSpan {
        self.table.pages(self.run)
    }

    /// Whether an end of the walk's span cuts an entry of it.
    #[inline]
    pub(super) fn is_cut(&self) -> bool {
        self.all_pages() != self.pages
    }

    /// The frame of the first page in the walk's span, where the run's first is `frame`.
    #[inline]
    pub(super) fn frame_within(&self, frame: Pfn) -> Pfn {
        frame.add(self.pages.start.offset_from(self.table.page(self.run.index)))
    }
}

impl<'a, A: Arch, H: Hardware> Tables<'a, A, H> {
    /// Calls `visit` with each run of leaves or markers in `span`, ascending; ends where `visit`
    /// stops.
    #[inline]
    pub(super) fn runs<R>(
        &self,
        span: PageSpan,
        visit: impl FnMut(Found<'_, 'a, A, H>) -> Step<R>,
    ) -> Option<R> {
        self.runs_from(None, span, visit)
    }

    /// The same, where an earlier walk for the first page has ended at `from`.
    #[inline]
    pub(super) fn runs_from<R>(
        &self,
        from: Option<Place>,
        span: PageSpan,
        mut visit: impl FnMut(Found<'_, 'a, A, H>) -> Step<R>,
    ) -> Option<R> {
        self.each(from, span, |table, part| table.runs(part, &mut visit))
    }

    /// Calls `act` with each lowest table that translates a part of `span`, locked, and with that
    /// part. For an entry that leads to a lower table, it answers with the page, and that table
    /// comes next. The way to the first table begins at `from`, where an earlier walk has ended.
    #[inline]
    pub(super) fn each<R>(
        &self,
        mut from: Option<Place>,
        span: PageSpan,
        mut act: impl FnMut(&Locked<'a, A, H>, PageSpan) -> Step<R>,
    ) -> Option<R> {
        let mut at = span.start;
        while at < span.end {
            let table = match from.take() {
                Some(place) => self.lock_lowest_from(place, at),
                None => self.lock_lowest(at, Level::LAST),
            };
            let part = PageSpan::new(at, span.end).intersect(table.reach());
            match act(&table, part) {
                Step::Next => at = part.end,
                Step::To(page) => at = page,
                Step::Stop(result) => return Some(result),
            }
        }
        None
    }
}

impl<'a, A: Arch, H: Hardware> Locked<'a, A, H> {
    /// Calls `visit` with each run of leaves or markers in `part`, which this table translates, up
    /// to an entry that leads to a lower table.
    #[inline]
    pub(super) fn runs<R>(
        &self,
        part: PageSpan,
        visit: impl FnMut(Found<'_, 'a, A, H>) -> Step<R>,
    ) -> Step<R> {
        self.runs_within(part, |_| part.end, visit)
    }

    /// The same in pieces: the one that begins at a page ends at the page that `limit` says.
    #[inline]
    pub(super) fn runs_within<R>(
        &self,
        part: PageSpan,
        limit: impl Fn(Vpn) -> Vpn,
        mut visit: impl FnMut(Found<'_, 'a, A, H>) -> Step<R>,
    ) -> Step<R> {
        let mut at = part.start;
        while at < part.end {
            let upto = limit(at).min(part.end);
            let entries = self.entries(PageSpan::new(at, upto));
            let mut run = self.run(entries.start, entries.end);
            let end = self.page(run.index + run.count).min(upto);
            at = match run.what {
                What::Table(_) => return Step::To(at),
                What::Absent if upto < part.end => self.run_in(at, part.end).1,
                What::Absent => end,
                What::Leaf { .. } | What::Marker(_) => {
                    let pages = PageSpan::new(at, end);
                    match visit(Found { table: self, run: &mut run, pages, end: entries.end }) {
                        Step::Next => end,
                        Step::To(page) => page,
                        Step::Stop(result) => return Step::Stop(result),
                    }
                }
            }
        }
        Step::To(at)
    }

    /// The run at `page`, and the page after it or `end`, whichever comes first.
    #[inline]
    pub fn run_in(&self, page: Vpn, end: Vpn) -> (Run, Vpn) {
        let entries = self.entries(PageSpan::new(page, end));
        let run = self.run(entries.start, entries.end);
        (run, self.page(run.index + run.count).min(end))
    }
}
