//! One file: the part of its state that does not grow with the pages in memory.

use quire_units::Order;

use super::word::Entry;
use crate::sync::{AtomicU32, AtomicU64, Lock, Ordering};

/// The source of a file's pages, and the destination of dirty ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Store {
    /// Nowhere: missing pages are zero, and written ones stay in memory (tmpfs, memfd, shared
    /// anonymous memory).
    Memory = 1,
    /// The embedder reads them, and nothing writes them back: shared areas cannot be written.
    ReadOnly = 2,
    /// The embedder reads them, and writes dirty ones back.
    ReadWrite = 3,
    /// The embedder reads them, and writes dirty ones: the slots of a swap device, which
    /// [`Paging::swap_on`](crate::Paging::swap_on) makes a file of. No area shows them.
    Swap = 4,
    /// Nowhere, as [`Memory`](Self::Memory); and its pages are in folios of one size out of a
    /// [pool](crate::Files::open_pool), which stay in memory (hugetlbfs).
    Reserved = 5,
}

impl Store {
    /// Whether missing pages are zero, and written ones are nowhere else.
    #[inline]
    pub(crate) fn is_memory(self) -> bool {
        matches!(self, Store::Memory | Store::Reserved)
    }
}

/// A file whose pages are in memory, or could be. The embedder lends an array of them;
/// [`Files::open`](crate::Files::open) takes one into use.
#[derive(Default)]
pub struct File {
    /// An [`Entry`](super::word::Entry): the folio at page 0, or the highest node.
    pub(super) root: AtomicU64,
    /// Held to change `root`.
    pub(super) changing: Lock<()>,
    /// Held all the while pages in memory move to other folios.
    reshaping: Lock<()>,
    /// Odd while pages in memory move to other folios.
    pub(super) shape: AtomicU64,
    /// 0: not in use.
    store: AtomicU32,
    smallest: AtomicU32,
    /// Whether an executable area has shown it; a hint.
    code: AtomicU32,
    pages: AtomicU64,
    /// How many pages of it are in memory.
    cached: AtomicU64,
    /// Where its faults were last; see `Readahead`.
    pub(crate) ahead: [AtomicU64; 2],
}

crate::sync::names!([] File, "cache.file" {
    root, changing, reshaping, shape, store, smallest, code, pages, cached, ahead
});

impl File {
    /// A file that is not in use.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            root: AtomicU64::new(0),
            changing: Lock::new(()),
            reshaping: Lock::new(()),
            shape: AtomicU64::new(0),
            store: AtomicU32::new(0),
            smallest: AtomicU32::new(0),
            code: AtomicU32::new(0),
            pages: AtomicU64::new(0),
            cached: AtomicU64::new(0),
            ahead: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }

    /// Takes it into use, if it is free.
    pub(crate) fn open(&self, store: Store, pages: u64, smallest: Order) -> bool {
        // Most are in use: a load is cheaper than an exchange.
        let (free, taken) = (Ordering::Relaxed, Ordering::Acquire);
        if self.store.load(free) != 0
            || self.store.compare_exchange(0, store as u32, taken, free).is_err()
        {
            return false;
        }
        self.smallest.store(smallest.get().into(), Ordering::Relaxed);
        self.code.store(0, Ordering::Relaxed);
        self.pages.store(pages, Ordering::Release);
        self.ahead.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        true
    }

    /// Frees it. Its index is empty.
    pub(crate) fn close(&self) {
        debug_assert_eq!(self.root.load(Ordering::Relaxed), 0);
        self.store.store(0, Ordering::Release);
    }

    /// The source of its pages; `None` if it is not in use.
    #[inline]
    pub fn store(&self) -> Option<Store> {
        match self.store.load(Ordering::Acquire) {
            1 => Some(Store::Memory),
            2 => Some(Store::ReadOnly),
            3 => Some(Store::ReadWrite),
            4 => Some(Store::Swap),
            5 => Some(Store::Reserved),
            _ => None,
        }
    }

    /// Whether missing pages are zero, and written ones are nowhere else.
    #[inline]
    pub(crate) fn is_memory(&self) -> bool {
        self.store().is_some_and(Store::is_memory)
    }

    /// The order of the pool's folios that its pages are in; `None` for a file without a pool.
    #[inline]
    pub(crate) fn whole(&self) -> Option<Order> {
        (self.store() == Some(Store::Reserved)).then(|| self.smallest())
    }

    /// The right to move its pages to other folios. A CPU that waits for it obeys flushes.
    pub(crate) fn reshaping(&self) -> impl core::ops::DerefMut<Target = ()> + '_ {
        self.reshaping.lock()
    }

    /// How many pages it has. Access beyond them fails.
    #[inline]
    pub fn pages(&self) -> u64 {
        self.pages.load(Ordering::Acquire)
    }

    pub(crate) fn set_pages(&self, pages: u64) {
        self.pages.store(pages, Ordering::SeqCst);
    }

    /// The smallest folio that its pages may be in: its file system's blocks demand it.
    pub fn smallest(&self) -> Order {
        Order::new(self.smallest.load(Ordering::Relaxed) as u8)
    }

    /// Notes that an executable area shows it.
    pub(crate) fn note_code(&self) {
        self.code.store(1, Ordering::Relaxed);
    }

    /// Whether an executable area has shown it since it was opened: it is a program or a library.
    pub fn holds_code(&self) -> bool {
        self.code.load(Ordering::Relaxed) != 0
    }

    /// Counts `more` pages in memory, or fewer.
    pub(crate) fn count_cached(&self, more: i64) {
        self.cached.fetch_add(more as u64, Ordering::Relaxed);
    }

    /// How many of its pages are in memory.
    pub fn cached(&self) -> u64 {
        self.cached.load(Ordering::Relaxed)
    }
}

/// The root of a file's index.
pub(crate) fn root_of(file: &File) -> Entry {
    Entry::of(file.root.load(Ordering::Acquire))
}
