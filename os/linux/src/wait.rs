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

    /// Registers a waiter: the next [`wake`](Self::wake) wakes `who`, once. Waiters that are gone
    /// are forgotten here, since a file that stays ready may never be woken.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`]; nothing was noted then.
    pub fn add(&self, who: &Arc<dyn Wake>) -> Result<()> {
        let mut waiters = self.0.lock();
        let who = Arc::downgrade(who);
        let mut is_noted = false;
        waiters.retain(|noted| {
            is_noted |= noted.ptr_eq(&who);
            noted.strong_count() > 0
        });
        if is_noted {
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

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[derive(Default)]
    struct Counted(AtomicU32);

    impl Wake for Counted {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_waiter_is_woken_once_and_one_that_is_gone_takes_no_room() {
        let (waiters, stays) = (Waiters::new(), Arc::new(Counted::default()));
        let who: Arc<dyn Wake> = stays.clone();
        for _ in 0..100 {
            let goes: Arc<dyn Wake> = Arc::new(Counted::default());
            waiters.add(&goes).unwrap();
            waiters.add(&who).unwrap();
        }
        assert_eq!(waiters.0.lock().len(), 2, "the one that stays, and the last that went");
        waiters.wake();
        waiters.wake();
        assert_eq!(stays.0.load(Ordering::Relaxed), 1);
    }
}
