//! Where a folio is mapped.

use quire_units::{Pfn, Vpn};

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

    /// The home of the page that is `pages` further.
    #[inline]
    pub(crate) const fn ahead(self, pages: u64) -> Self {
        Self { page: self.page.add(pages), ..self }
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
