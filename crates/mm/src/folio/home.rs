//! Where a folio is mapped.

use quire_units::{PageSpan, Pfn, Vpn};

/// Where a folio is mapped, or was mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Home {
    /// The number of the space: the low bits of its root's frame.
    pub(crate) space: u32,
    /// The page at which the folio's first page is.
    pub(crate) page: Vpn,
}

const HOME_PAGE_BITS: u32 = 44;

impl Home {
    /// The place is not known.
    pub(crate) const UNKNOWN: Self = Self { space: 0, page: Vpn::new((1 << HOME_PAGE_BITS) - 1) };

    /// `page` of the space under `root`.
    #[inline]
    pub(crate) const fn new(root: Pfn, page: Vpn) -> Self {
        Self { space: root.get() as u32 & ((1 << (64 - HOME_PAGE_BITS)) - 1), page }
    }

    /// The home of the page that is `pages` further. The first page of a folio or file that is
    /// mapped in part may lie before page 0, below which numbers wrap.
    #[inline]
    pub(crate) const fn ahead(self, pages: u64) -> Self {
        Self { page: Vpn::new(self.page.get().wrapping_add(pages)), ..self }
    }

    /// The `pages` from it on, among the pages of `all`: none of an unknown one.
    pub(crate) fn span(self, pages: u64, all: PageSpan) -> PageSpan {
        let end = self.page.get().saturating_add(pages);
        PageSpan::new(self.page, Vpn::new(end)).intersect(all)
    }

    #[inline]
    pub(super) const fn word(self) -> u64 {
        (self.space as u64) << HOME_PAGE_BITS | self.page.get() & ((1 << HOME_PAGE_BITS) - 1)
    }

    pub(super) const fn of(word: u64) -> Self {
        let page = Vpn::new(word & ((1 << HOME_PAGE_BITS) - 1));
        Self { space: (word >> HOME_PAGE_BITS) as u32, page }
    }
}
