//! Changes of a watched space, which its watcher is told of while the program waits.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use super::ask::Range;
use crate::files::Object;
use crate::{Result, Waiters, Wake};

/// A change of a watched space.
pub enum Change {
    /// It has a child, which the watcher gets as a file of its own.
    Fork(Arc<dyn Object>),
    /// Pages have moved.
    Remap {
        /// From the byte at this address,
        from: u64,
        /// to this one.
        to: u64,
        /// How many bytes.
        bytes: u64,
    },
    /// The content of pages goes.
    Remove(Range),
    /// Pages are mapped no more.
    Unmap(Range),
}

impl Change {
    /// Its number in messages, and up to three words. `file` makes the number of a child's file.
    ///
    /// # Errors
    /// Those of `file`.
    pub(super) fn words(
        &self,
        file: &mut dyn FnMut(&Arc<dyn Object>) -> Result<u32>,
    ) -> Result<(u8, [u64; 3])> {
        Ok(match self {
            Self::Fork(child) => (0x13, [file(child)?.into(), 0, 0]),
            Self::Remap { from, to, bytes } => (0x14, [*from, *to, *bytes]),
            Self::Remove(range) => (0x15, [range.start, range.end, 0]),
            Self::Unmap(range) => (0x16, [range.start, range.end, 0]),
        })
    }
}

/// A change that a watcher is told of, and whether it has been.
pub struct Notice {
    pub(super) change: Change,
    is_known: AtomicBool,
    waiters: Waiters,
}

impl Notice {
    pub(super) const fn new(change: Change) -> Self {
        Self { change, is_known: AtomicBool::new(false), waiters: Waiters::new() }
    }

    /// Registers a waiter, and returns whether the watcher knows already, or has ended.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`](crate::Errno::ENOMEM).
    pub fn wait(&self, who: &Arc<dyn Wake>) -> Result<bool> {
        self.waiters.add(who)?;
        Ok(self.is_known.load(Ordering::SeqCst))
    }

    pub(super) fn is_over(&self) {
        self.is_known.store(true, Ordering::SeqCst);
        self.waiters.wake();
    }
}
