//! The locks and atomics of the library, named here and nowhere else, so that a model checker can
//! replace them: loom (`--cfg loom`) for small models in every order of their steps, shuttle
//! (`--cfg shuttle`) for the whole library in many orders.

#[cfg(not(any(loom, shuttle)))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(not(any(loom, shuttle)))]
pub(crate) use core::hint::spin_loop;
#[cfg(loom)]
pub(crate) use loom::hint::spin_loop;
#[cfg(shuttle)]
pub(crate) use shuttle::hint::spin_loop;

/// A number that is only reported, and decides nothing: model checkers need not track it.
pub(crate) use core::sync::atomic::AtomicU64 as Tally;

#[cfg(loom)]
use loom::sync::Mutex as Inner;
#[cfg(shuttle)]
use shuttle::sync::Mutex as Inner;
#[cfg(not(any(loom, shuttle)))]
use spin::mutex::SpinMutex as Inner;

/// A spin lock around a value.
#[derive(Default)]
pub(crate) struct Lock<T>(Inner<T>);

impl<T> Lock<T> {
    /// An open lock around `value`.
    #[cfg(not(loom))]
    pub(crate) const fn new(value: T) -> Self {
        Self(Inner::new(value))
    }

    /// An open lock around `value`.
    #[cfg(loom)]
    pub(crate) fn new(value: T) -> Self {
        Self(Inner::new(value))
    }

    /// Waits for the lock and holds it until the guard is dropped.
    #[cfg(not(any(loom, shuttle)))]
    #[inline]
    pub(crate) fn lock(&self) -> impl core::ops::DerefMut<Target = T> + '_ {
        self.0.lock()
    }

    /// Waits for the lock and holds it until the guard is dropped.
    #[cfg(any(loom, shuttle))]
    pub(crate) fn lock(&self) -> impl core::ops::DerefMut<Target = T> + '_ {
        self.0.lock().expect("a model never panics while it holds a lock")
    }
}
