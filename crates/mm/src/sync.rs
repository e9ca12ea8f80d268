//! The locks and atomics of the library, named here and nowhere else, so that a model checker can
//! take their place (`--cfg loom`).

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(not(loom))]
pub(crate) use core::hint::spin_loop;
#[cfg(loom)]
pub(crate) use loom::hint::spin_loop;

/// A spin lock around a value.
pub(crate) struct Lock<T> {
    #[cfg(not(loom))]
    inner: spin::mutex::SpinMutex<T>,
    #[cfg(loom)]
    inner: loom::sync::Mutex<T>,
}

impl<T> Lock<T> {
    /// An open lock around `value`.
    #[cfg(not(loom))]
    pub(crate) const fn new(value: T) -> Self {
        Self { inner: spin::mutex::SpinMutex::new(value) }
    }

    /// An open lock around `value`.
    #[cfg(loom)]
    pub(crate) fn new(value: T) -> Self {
        Self { inner: loom::sync::Mutex::new(value) }
    }

    /// Waits for the lock and holds it until the guard is dropped.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn lock(&self) -> impl core::ops::DerefMut<Target = T> + '_ {
        self.inner.lock()
    }

    /// Waits for the lock and holds it until the guard is dropped.
    #[cfg(loom)]
    pub(crate) fn lock(&self) -> impl core::ops::DerefMut<Target = T> + '_ {
        self.inner.lock().expect("a model never panics while it holds a lock")
    }
}
