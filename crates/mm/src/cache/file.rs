//! One file: what of it does not depend on how many pages are in memory.

use quire_units::Order;

use super::word::Entry;
use crate::sync::{AtomicU32, AtomicU64, Lock, Ordering};

/// The number of a file: its place among the files that the embedder lent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(pub u32);

/// Where a file's pages come from, and what becomes of those that are written.
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
    /// [`Mm::swap_on`](crate::mm::Mm::swap_on) makes a file of. No area shows them.
    Swap = 4,
}

/// A file whose pages are in memory, or could be. The embedder lends an array of them; which are in
/// use, and for what, it says by [`Mm::open_file`](crate::mm::Mm::open_file).
pub struct File {
    /// An [`Entry`](super::word::Entry): the folio at page 0, or the highest node.
    pub(super) root: AtomicU64,
    /// Who changes `root` holds it.
    pub(super) changing: Lock<()>,
    /// Who gives pages that are in memory other folios holds it from the beginning to the end.
    reshaping: Lock<()>,
    /// Odd while words of the index become others for the same pages.
    pub(super) shape: AtomicU64,
    /// 0: nobody's.
    store: AtomicU32,
    smallest: AtomicU32,
    /// Whether an area has shown it as code; a hint.
    code: AtomicU32,
    pages: AtomicU64,
    /// How many pages of it are in memory.
    cached: AtomicU64,
    /// Where its faults were last; see `Readahead`.
    pub(crate) ahead: [AtomicU64; 2],
}

impl File {
    /// Nobody's file.
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

    /// Nobody's file.
    #[cfg(loom)]
    pub fn new() -> Self {
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

    /// Takes it into use, if it is nobody's.
    pub(crate) fn open(&self, store: Store, pages: u64, smallest: Order) -> bool {
        // Most are in use: a look is cheaper than an exchange.
        if self.store.load(Ordering::Relaxed) != 0 {
            return false;
        }
        let (free, taken) = (Ordering::Relaxed, Ordering::Acquire);
        if self.store.compare_exchange(0, store as u32, taken, free).is_err() {
            return false;
        }
        self.smallest.store(smallest.get().into(), Ordering::Relaxed);
        self.code.store(0, Ordering::Relaxed);
        self.pages.store(pages, Ordering::Release);
        self.ahead.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        true
    }

    /// It is nobody's from now on. Its index is empty.
    pub(crate) fn close(&self) {
        debug_assert_eq!(self.root.load(Ordering::Relaxed), 0);
        self.store.store(0, Ordering::Release);
    }

    /// Where its pages come from; `None` for nobody's file.
    #[inline]
    pub fn store(&self) -> Option<Store> {
        match self.store.load(Ordering::Acquire) {
            1 => Some(Store::Memory),
            2 => Some(Store::ReadOnly),
            3 => Some(Store::ReadWrite),
            4 => Some(Store::Swap),
            _ => None,
        }
    }

    /// Waits until nobody else gives its pages other folios, and keeps others from it until what is
    /// returned is dropped. Who waits for it obeys flushes.
    pub(crate) fn reshaping(&self) -> impl core::ops::DerefMut<Target = ()> + '_ {
        self.reshaping.lock()
    }

    /// How many pages it has. Those beyond are not to be had.
    #[inline]
    pub fn pages(&self) -> u64 {
        self.pages.load(Ordering::Acquire)
    }

    pub(crate) fn set_pages(&self, pages: u64) {
        self.pages.store(pages, Ordering::SeqCst);
    }

    /// The smallest folio that its pages may be in: what its blocks demand.
    pub fn smallest(&self) -> Order {
        Order::new(self.smallest.load(Ordering::Relaxed) as u8)
    }

    /// Notes that an area shows it whose pages may be executed.
    pub(crate) fn note_code(&self) {
        self.code.store(1, Ordering::Relaxed);
    }

    /// Whether an area has shown it, since it was opened, whose pages may be executed: it is a
    /// program or a library.
    pub fn holds_code(&self) -> bool {
        self.code.load(Ordering::Relaxed) != 0
    }

    /// Counts so many more pages in memory, or fewer.
    pub(crate) fn count_cached(&self, more: i64) {
        self.cached.fetch_add(more as u64, Ordering::Relaxed);
    }

    /// How many of its pages are in memory.
    pub fn cached(&self) -> u64 {
        self.cached.load(Ordering::Relaxed)
    }
}

/// What is at the top of a file's index.
pub(crate) fn root_of(file: &File) -> Entry {
    Entry::of(file.root.load(Ordering::Acquire))
}

impl Default for File {
    fn default() -> Self {
        Self::new()
    }
}
