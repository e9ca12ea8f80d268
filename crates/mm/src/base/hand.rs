//! Where a walk over all spaces goes on.

use crate::sync::{AtomicU64, Ordering};

/// A place in all spaces: the root of one, and a page in it. The last write wins.
pub(crate) struct Hand {
    root: AtomicU64,
    page: AtomicU64,
}

impl Hand {
    pub(crate) fn new() -> Self {
        Self { root: AtomicU64::new(0), page: AtomicU64::new(0) }
    }

    pub(crate) fn load(&self) -> (u64, u64) {
        (self.root.load(Ordering::Relaxed), self.page.load(Ordering::Relaxed))
    }

    pub(crate) fn store(&self, root: u64, page: u64) {
        self.root.store(root, Ordering::Relaxed);
        self.page.store(page, Ordering::Relaxed);
    }
}
