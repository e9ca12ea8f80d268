//! Waiting without threads: a caller that cannot go on registers as a waiter, and calls again when
//! woken.
//!
//! ```text
//!   a call finds nothing to read ──► waiters.add(me) ──► the thread is parked
//!   something is written ──► waiters.wake() ──► the thread makes its call anew, from the start
//! ```
//!
//! A wake promises nothing: the call looks again, and may register again.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use spin::mutex::SpinMutex;

use crate::{Errno, Result};

/// A waiter that can be woken: a thread of the kernel, or a test.
pub trait Wake: Send + Sync {
    /// Makes it look again. May be called at any time and any number of times.
    fn wake(&self);
}

/// The waiters for one thing.
#[derive(Default)]
pub struct Waiters(SpinMutex<Vec<Weak<dyn Wake>>>);

impl Waiters {
    /// No waiters.
    pub const fn new() -> Self {
        Self(SpinMutex::new(Vec::new()))
    }

    /// Registers a waiter: the next [`wake`](Self::wake) wakes `who`, once.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`]; nothing was noted then.
    pub fn add(&self, who: &Arc<dyn Wake>) -> Result<()> {
        let mut waiters = self.0.lock();
        let who = Arc::downgrade(who);
        if waiters.iter().any(|noted| noted.ptr_eq(&who)) {
            return Ok(());
        }
        waiters.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        waiters.push(who);
        Ok(())
    }

    /// Wakes all waiters, and forgets them.
    pub fn wake(&self) {
        let waiters = core::mem::take(&mut *self.0.lock());
        for who in waiters.iter().filter_map(Weak::upgrade) {
            who.wake();
        }
    }
}
