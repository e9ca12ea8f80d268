//! The table of backends by extent size.

use core::fmt;

use crate::Reuse;
use crate::extent::{Backend, CopyBackend};

/// Base-two logarithms of the smallest and largest extent in the table: 4 KiB and 1 GiB.
pub(crate) const LEAST: u32 = 12;
pub(crate) const MOST: u32 = 30;
pub(crate) const CLASSES: usize = (MOST - LEAST + 1) as usize;

/// The backend for one extent size and one [`Reuse`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The backend.
    pub backend: Backend,
    /// Extent bytes per time, in 10⁶ bytes per second: of the clear for [`Reuse::Later`], of clear
    /// and later use together for [`Reuse::Soon`]. Zero where not measured.
    pub mb_per_s: u32,
    /// The same of the cold clear alone.
    pub clear_mb_per_s: u32,
}

/// How many backends of a kind are considered; no ISA has as many.
pub(crate) const BACKENDS_MAX: usize = 16;

/// The backend for each extent size and each value of [`Reuse`].
///
/// A class of the table is a power of two, from 4 KiB to 1 GiB. An extent belongs to the largest
/// class that is not larger than it; the first and the last class take what is outside.
///
/// Comes from CPU features alone ([`default_for_cpu`](Self::default_for_cpu)), or from measuring
/// ([`calibrate`](crate::calibrate)).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Chosen {
    pub(crate) later: [Choice; CLASSES],
    pub(crate) soon: [Choice; CLASSES],
    pub(crate) allocation_stops: Option<u64>,
    copy_later: [CopyBackend; CLASSES],
    copy_soon: [CopyBackend; CLASSES],
}

/// The class of an extent of `bytes`.
#[inline]
fn class(bytes: u64) -> usize {
    (bytes.max(1).ilog2().clamp(LEAST, MOST) - LEAST) as usize
}

/// How many bytes extents of class `at` have.
pub(crate) const fn class_bytes(at: usize) -> u64 {
    1 << (LEAST + at as u32)
}

impl Chosen {
    /// The choice by CPU features alone, without vector registers, so that a kernel may use it.
    /// Queries the CPU, which takes microseconds in a virtual machine: for set-up.
    pub fn default_for_cpu() -> Self {
        Self::by_features(false)
    }

    /// The choice by CPU features alone, vector registers included: for hosted programs.
    pub fn default_with_vectors() -> Self {
        Self::by_features(true)
    }

    fn by_features(vectors: bool) -> Self {
        let all = Backend::available().filter(|backend| vectors || !backend.needs_vectors());
        let mut few = [Backend::PORTABLE; BACKENDS_MAX];
        let count = few.iter_mut().zip(all).map(|(slot, backend)| *slot = backend).count();
        Self::among(&few[..count])
    }

    /// The choice by CPU features alone among `candidates`: for a caller that excludes some, or
    /// knows of more than [`Backend::available`] can find. Copies use vector registers where a
    /// candidate does.
    pub fn among(candidates: &[Backend]) -> Self {
        let usual =
            |reuse| move |at| unmeasured(Backend::usual(class_bytes(at), reuse, candidates));
        let vectors = candidates.iter().any(|backend| backend.needs_vectors());
        let all = CopyBackend::available().filter(|backend| vectors || !backend.needs_vectors());
        let mut few = [CopyBackend::PORTABLE; BACKENDS_MAX];
        let count = few.iter_mut().zip(all).map(|(slot, backend)| *slot = backend).count();
        let copy = |reuse| move |at| CopyBackend::usual(class_bytes(at), reuse, &few[..count]);
        Self {
            later: core::array::from_fn(usual(Reuse::Later)),
            soon: core::array::from_fn(usual(Reuse::Soon)),
            allocation_stops: None,
            copy_later: core::array::from_fn(copy(Reuse::Later)),
            copy_soon: core::array::from_fn(copy(Reuse::Soon)),
        }
    }

    /// `backend` clears everything: for comparisons, and where the choice is fixed. Queries the CPU
    /// for its ways to copy, which takes microseconds in a virtual machine: for set-up, not for
    /// each clear.
    pub fn always(backend: Backend) -> Self {
        Self::among(&[backend])
    }

    /// The backend for an extent of `bytes`.
    #[inline]
    pub fn backend(&self, bytes: u64, reuse: Reuse) -> Backend {
        self.choice(bytes, reuse).backend
    }

    /// The choice for an extent of `bytes`, with its measured speeds.
    #[inline]
    pub fn choice(&self, bytes: u64, reuse: Reuse) -> Choice {
        match reuse {
            Reuse::Soon => self.soon[class(bytes)],
            Reuse::Later => self.later[class(bytes)],
        }
    }

    /// The backend to copy an extent of `bytes`: chosen by CPU features, not by measurement.
    #[inline]
    pub fn copy_backend(&self, bytes: u64, reuse: Reuse) -> CopyBackend {
        match reuse {
            Reuse::Soon => self.copy_soon[class(bytes)],
            Reuse::Later => self.copy_later[class(bytes)],
        }
    }

    /// The extent size, in bytes, from which the string instruction was seen to stop allocating
    /// cache lines: a step in its bandwidth that holds for all larger extents. `None` where no
    /// such step was measured.
    pub fn allocation_stops(&self) -> Option<u64> {
        self.allocation_stops
    }

    /// The largest power of two of bytes that, cleared as one extent with either value of
    /// [`Reuse`], takes at most `budget_ns`; at least 4 KiB. `None` where nothing was measured.
    ///
    /// Extents larger than the largest measured one are taken to be as fast as that one.
    pub fn unit_bytes(&self, budget_ns: u64) -> Option<u64> {
        let fits = |log2: &u32| {
            [Reuse::Soon, Reuse::Later].into_iter().all(|reuse| {
                let speed = self.choice(1 << log2, reuse).clear_mb_per_s;
                nanoseconds(1 << log2, speed).is_some_and(|ns| ns <= u128::from(budget_ns))
            })
        };
        nanoseconds(1, self.later[0].clear_mb_per_s)?;
        let log2 = (LEAST..=40).rev().find(fits).unwrap_or(LEAST);
        Some(1 << log2)
    }
}

fn unmeasured(backend: Backend) -> Choice {
    Choice { backend, mb_per_s: 0, clear_mb_per_s: 0 }
}

/// How long `bytes` take; `None` where the speed is unknown.
fn nanoseconds(bytes: u64, mb_per_s: u32) -> Option<u128> {
    (u128::from(bytes) * 1000).checked_div(u128::from(mb_per_s))
}

impl fmt::Debug for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for at in 0..CLASSES {
            map.entry(&class_bytes(at), &(self.later[at].backend, self.soon[at].backend));
        }
        map.finish()
    }
}
