//! The locks and atomics of the library, named here and nowhere else, so that a model checker can
//! replace them: loom (`--cfg loom`) for small models in every order of their steps, shuttle
//! (`--cfg shuttle`) for the whole library in many orders. With the feature `lines` they tell which
//! memory they touch.

#[cfg(all(feature = "lines", not(any(loom, shuttle))))]
pub mod lines;

#[cfg(all(feature = "lines", not(any(loom, shuttle))))]
pub(crate) use {
    core::sync::atomic::{Ordering, fence},
    lines::{AtomicU32, AtomicU64, AtomicU64 as Tally, Lock},
};

#[cfg(not(any(loom, shuttle, feature = "lines")))]
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
#[cfg(any(loom, shuttle, not(feature = "lines")))]
pub(crate) use core::sync::atomic::AtomicU64 as Tally;

#[cfg(loom)]
use loom::sync::Mutex as Inner;
#[cfg(shuttle)]
use shuttle::sync::Mutex as Inner;
#[cfg(not(any(loom, shuttle, feature = "lines")))]
use spin::mutex::SpinMutex as Inner;

/// A spin lock around a value.
#[cfg(any(loom, shuttle, not(feature = "lines")))]
#[derive(Default)]
pub(crate) struct Lock<T>(Inner<T>);

#[cfg(any(loom, shuttle, not(feature = "lines")))]
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

/// Gives the fields of a type names, `prefix.field`, for `lines`; parts behind `+` have their own.
macro_rules! names {
    ([$($generic:tt)*] $type:ty, $prefix:literal { $($field:ident),* } $(+ $part:ident)*) => {
        #[cfg(all(feature = "lines", not(any(loom, shuttle))))]
        impl<$($generic)*> $crate::sync::lines::Named for $type {
            fn named(&self, see: &mut dyn FnMut(&'static str, usize, usize)) {
                $(
                    let name = concat!($prefix, ".", stringify!($field));
                    see(name, &raw const self.$field as usize, size_of_val(&self.$field));
                )*
                $(self.$part.named(see);)*
            }
        }
    };
}
pub(crate) use names;
