//! Atomics and locks that tell of each access (feature `lines`), so that a test can count the cache
//! lines that CPUs write in common. **Not for shipped code.**
//!
//! Each access goes to the one [watcher](watch) of the process. A store needs the cache line for
//! its CPU alone, and so does an exchange that fails. The guard of a lock tells of accesses to the
//! value behind it.

use core::ops::{Deref, DerefMut};
use core::panic::Location;
use core::sync::atomic::{self as plain, Ordering};
use std::sync::OnceLock;

use spin::mutex::{SpinMutex, SpinMutexGuard};

/// One access of the library to memory.
#[derive(Clone, Copy, Debug)]
pub struct Touch {
    /// The address of the first byte.
    pub start: usize,
    /// How many bytes.
    pub bytes: usize,
    /// Whether the CPU needs the cache line for itself.
    pub writes: bool,
    /// The place in the code.
    pub place: &'static Location<'static>,
}

static WATCHER: OnceLock<fn(Touch)> = OnceLock::new();

/// Lets `watcher` see every access from now on. Only the first call of a process counts.
pub fn watch(watcher: fn(Touch)) {
    let _ = WATCHER.set(watcher);
}

#[track_caller]
fn tell(start: usize, bytes: usize, writes: bool) {
    if let Some(watcher) = WATCHER.get() {
        watcher(Touch { start, bytes, writes, place: Location::caller() });
    }
}

/// Memory whose parts have names.
pub trait Named {
    /// Tells of each part: its room and field, address and length in bytes.
    fn named(&self, see: &mut dyn FnMut(&'static str, usize, usize));
}

impl<T: Named> Named for [T] {
    fn named(&self, see: &mut dyn FnMut(&'static str, usize, usize)) {
        self.iter().for_each(|part| part.named(see));
    }
}

macro_rules! methods {
    ($int:ty; $($writes:literal $name:ident($($word:ident: $kind:ty),*) $(-> $back:ty)?;)*) => {
        $(
            #[track_caller]
            pub(crate) fn $name(&self, $($word: $kind),*) $(-> $back)? {
                tell(&raw const self.0 as usize, size_of::<$int>(), $writes);
                self.0.$name($($word),*)
            }
        )*
    };
}

macro_rules! atomic {
    ($name:ident, $int:ty) => {
        /// The atomic of this name, telling.
        #[derive(Default, Debug)]
        #[repr(transparent)]
        pub(crate) struct $name(plain::$name);

        #[allow(dead_code, reason = "the library uses these of one type, those of another")]
        impl $name {
            pub(crate) const fn new(value: $int) -> Self {
                Self(plain::$name::new(value))
            }

            pub(crate) const fn into_inner(self) -> $int {
                self.0.into_inner()
            }

            pub(crate) fn get_mut(&mut self) -> &mut $int {
                self.0.get_mut()
            }

            #[track_caller]
            pub(crate) fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                change: impl FnMut($int) -> Option<$int>,
            ) -> Result<$int, $int> {
                tell(&raw const self.0 as usize, size_of::<$int>(), true);
                self.0.fetch_update(set, fetch, change)
            }

            methods! { $int;
                false load(order: Ordering) -> $int;
                true store(value: $int, order: Ordering);
                true swap(value: $int, order: Ordering) -> $int;
                true fetch_add(value: $int, order: Ordering) -> $int;
                true fetch_sub(value: $int, order: Ordering) -> $int;
                true fetch_and(value: $int, order: Ordering) -> $int;
                true fetch_or(value: $int, order: Ordering) -> $int;
                true fetch_min(value: $int, order: Ordering) -> $int;
                true compare_exchange(
                    current: $int, new: $int, set: Ordering, fetch: Ordering
                ) -> Result<$int, $int>;
                true compare_exchange_weak(
                    current: $int, new: $int, set: Ordering, fetch: Ordering
                ) -> Result<$int, $int>;
            }
        }
    };
}

atomic!(AtomicU32, u32);
atomic!(AtomicU64, u64);

/// A spin lock around a value.
#[derive(Default)]
pub(crate) struct Lock<T>(SpinMutex<T>);

impl<T> Lock<T> {
    /// An open lock around `value`.
    pub(crate) const fn new(value: T) -> Self {
        Self(SpinMutex::new(value))
    }

    /// Waits for the lock and holds it until the guard is dropped.
    #[track_caller]
    pub(crate) fn lock(&self) -> impl DerefMut<Target = T> + '_ {
        // The lock's own byte stands behind the value, whose alignment is larger.
        tell(&raw const self.0 as usize + size_of::<T>(), 1, true);
        Guard(self.0.lock())
    }
}

struct Guard<'a, T>(SpinMutexGuard<'a, T>);

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[track_caller]
    fn deref(&self) -> &T {
        tell(&raw const *self.0 as usize, size_of::<T>(), false);
        &self.0
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[track_caller]
    fn deref_mut(&mut self) -> &mut T {
        tell(&raw const *self.0 as usize, size_of::<T>(), true);
        &mut self.0
    }
}
