//! Frames that are not the library's, and the right to map them.
#![allow(unsafe_code)]

use core::fmt;
use core::ops::Range;

use quire_units::{FrameSpan, MemoryType};

use crate::FrameRun;

/// The right to map frames that are no RAM of the library: device registers, a frame buffer, RAM
/// that the embedder kept for itself at boot.
///
/// It is `Copy`: as many areas as the embedder likes may map such frames, for ever. So nothing
/// takes them back, and nothing frees them. Frames that the embedder has taken out of the library,
/// and that shall go back one day, are lent instead (`Mm::lend`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ForeignFrames {
    span: FrameSpan,
    memory: MemoryType,
}

impl ForeignFrames {
    /// The right to map `span` as memory of type `memory`.
    ///
    /// # Safety
    /// 1. No [`FrameRun`] or [`TableFrame`](crate::TableFrame) names a frame of
    ///    `span`, now or later, and no Rust object that is not made for it (of atomic words, say)
    ///    lies there.
    /// 2. No access that a program may make to these frames breaks a promise of Rust: a device
    ///    whose registers let a program write any memory (by DMA without an IOMMU) is not one to
    ///    map.
    ///
    /// # Correctness
    /// All other mappings of the frames, the kernel's included, have the same memory type. No
    /// unsafe code may depend on it, but where it is false, CPUs may see different contents.
    #[inline]
    pub const unsafe fn new(span: FrameSpan, memory: MemoryType) -> Self {
        Self { span, memory }
    }

    /// The right to map the frames of `run`, which never go back: RAM that the embedder keeps for
    /// this for ever. `memory` as for [`new`](Self::new).
    #[inline]
    pub const fn keep(run: FrameRun, memory: MemoryType) -> Self {
        // The run ends here, and no other names its frames.
        Self { span: run.span(), memory }
    }

    /// Which frames.
    #[inline]
    pub const fn span(&self) -> FrameSpan {
        self.span
    }

    /// The memory type of all their mappings.
    #[inline]
    pub const fn memory(&self) -> MemoryType {
        self.memory
    }

    /// The right to a part: the frames with these numbers, counted from the first. `None` where
    /// there are not as many.
    #[must_use]
    pub fn part(&self, frames: Range<u64>) -> Option<Self> {
        let count = frames.end.checked_sub(frames.start)?;
        let fits = frames.end <= self.span.count;
        fits.then(|| Self {
            span: FrameSpan::new(self.span.start.add(frames.start), count),
            ..*self
        })
    }
}

impl fmt::Debug for ForeignFrames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "foreign {:?} ({:?})", self.span, self.memory)
    }
}
