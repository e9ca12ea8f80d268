//! The source of the pool's memory: the embedder lends it page by page.

use core::num::NonZeroU32;

/// A page that the embedder lends, by a number of its choice: a frame's number, or an index into
/// a table of its own. Zero is no page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageId(NonZeroU32);

impl PageId {
    /// The page with this number; `None` for zero.
    pub const fn new(number: u32) -> Option<Self> {
        match NonZeroU32::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Its number, as the embedder gave it.
    pub const fn number(self) -> u32 {
        self.0.get()
    }
}

/// A lender of pages, implemented by the embedder.
///
/// A pool takes pages in [`Pool::store`](crate::Pool::store) only. Loading, freeing, compaction and
/// the search for cold units never take any. So a lender needs no reserve for them; for stores that
/// must not fail it may keep [`Pool::store_pages_max`](crate::Pool::store_pages_max) pages.
pub trait Lender {
    /// Lends one page with any contents; `None` when there is none to spare. May fail at any time.
    fn take(&mut self) -> Option<PageId>;

    /// Takes back a page that `take` lent. The pool never accesses it again.
    fn give(&mut self, page: PageId);

    /// The bytes of a lent page: always one base page long, always the same memory.
    ///
    /// The pool asks for a page that is not lent only after other code wrote into its memory.
    /// Return an empty slice then: the damage becomes an error of the unit that it hit.
    fn bytes(&self, page: PageId) -> &[u8];

    /// The bytes of a lent page, to write them. As `bytes` otherwise.
    fn bytes_mut(&mut self, page: PageId) -> &mut [u8];
}
