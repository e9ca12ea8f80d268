//! Entries: areas and summaries as nodes hold them.

use crate::space::area::{Area, SHOWS, TERMS};

/// One entry of a node, in words: an area (see [`Area::pack`]), or first page, end, frame and
/// largest inner gap of a child. An area is cut, compared and joined in this form: to unpack it and
/// to pack it again costs more than all of that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::space) struct Entry(pub(super) [u64; 4]);

impl Entry {
    /// A part without pages.
    pub(super) const EMPTY: Self = Self([0; 4]);

    /// The entry of an area.
    #[inline]
    pub(in crate::space) fn of(area: &Area) -> Self {
        Self(area.pack())
    }

    /// Its area; `None` if it is none.
    #[inline]
    pub(super) fn area(self) -> Option<Area> {
        Area::unpack(self.0)
    }

    /// Its first page.
    #[inline]
    pub(super) fn start(&self) -> u64 {
        self.0[0]
    }

    /// The page after its last.
    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.0[1]
    }

    /// An area that goes on up to `end`.
    #[inline]
    pub(super) fn up_to(self, end: u64) -> Self {
        let [start, _, terms, shown] = self.0;
        Self([start, end, terms, shown])
    }

    /// Whether it is a part without pages.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.start() >= self.end()
    }

    /// The part of an area before `page`.
    #[inline]
    pub(super) fn before(self, page: u64) -> Self {
        let [start, end, terms, shown] = self.0;
        Self([start, end.min(page), terms, shown])
    }

    /// The part of an area from `page` on.
    #[inline]
    pub(super) fn from(self, page: u64) -> Self {
        let [start, end, terms, _] = self.0;
        let start = start.max(page);
        Self([start, end, terms, self.shown_at(start)])
    }

    /// The fourth word of an area that is cut at `page`.
    #[inline]
    fn shown_at(&self, page: u64) -> u64 {
        let [start, _, terms, shown] = self.0;
        if terms & SHOWS == 0 { shown } else { shown.wrapping_add(page - start) }
    }

    /// Whether two areas are one cut in two; see [`Area::can_merge`].
    #[inline]
    pub(super) fn continues_in(&self, next: &Self) -> bool {
        let [start, _, terms, shown] = next.0;
        self.end() == start && self.0[TERMS] == terms && self.shown_at(start) == shown
    }
}
