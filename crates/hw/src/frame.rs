//! Capabilities: proof that the library owns the frames it names.
#![allow(unsafe_code)]

use core::fmt;

use quire_units::{FrameSpan, Pfn};

/// Consecutive frames that no other value owns.
///
/// Neither `Clone` nor `Copy`: the value *is* the right to the frames, so a frame cannot be freed
/// twice, nor cleared while another value owns it. Dropping the value loses the frames, which is
/// safe but a leak; free it instead.
#[must_use = "dropping a FrameRun leaks its frames; free it"]
pub struct FrameRun {
    span: FrameSpan,
    zeroed: bool,
}

impl FrameRun {
    /// The right to `span`.
    ///
    /// # Safety
    /// 1. No other `FrameRun` or [`TableFrame`] names a frame of `span`, and none will while this
    ///    one, or one made from it, lives.
    /// 2. The frames are RAM that the [`Hardware`](crate::Hardware) in use may read and write, and
    ///    hold no Rust object.
    ///
    /// # Correctness
    /// When `zeroed` is set, every byte of them is zero. No unsafe code may depend on it, but a
    /// false claim shows one program the data of another.
    #[inline]
    pub const unsafe fn mint(span: FrameSpan, zeroed: bool) -> Self {
        Self { span, zeroed }
    }

    /// Which frames.
    #[inline]
    pub const fn span(&self) -> FrameSpan {
        self.span
    }

    /// The first frame.
    #[inline]
    pub const fn start(&self) -> Pfn {
        self.span.start
    }

    /// How many frames.
    #[inline]
    pub const fn count(&self) -> u64 {
        self.span.count
    }

    /// Whether every byte is known to be zero, so that clearing would be wasted.
    #[inline]
    pub const fn is_zeroed(&self) -> bool {
        self.zeroed
    }

    /// The same frames, no longer known to be zero: for a caller that is about to write them.
    #[inline]
    pub const fn dirtied(self) -> Self {
        Self { span: self.span, zeroed: false }
    }

    /// The first `count` frames, and the rest.
    ///
    /// # Panics
    /// When `count` exceeds the run.
    #[inline]
    pub const fn split_at(self, count: u64) -> (Self, Self) {
        assert!(count <= self.span.count);
        let head = FrameSpan::new(self.span.start, count);
        let tail = FrameSpan::new(self.span.start.add(count), self.span.count - count);
        (Self { span: head, zeroed: self.zeroed }, Self { span: tail, zeroed: self.zeroed })
    }

    /// One run out of two where `next` begins at the end of `self`; otherwise both again.
    #[inline]
    pub fn join(self, next: Self) -> Result<Self, (Self, Self)> {
        if self.span.end() == next.span.start {
            let span = FrameSpan::new(self.span.start, self.span.count + next.span.count);
            Ok(Self { span, zeroed: self.zeroed && next.zeroed })
        } else {
            Err((self, next))
        }
    }
}

impl fmt::Debug for FrameRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{}", self.span, if self.zeroed { " zeroed" } else { "" })
    }
}

/// One frame that holds the library's own words: a page table, or a node of the area tree.
///
/// Holding a reference to one is the right to *write* its words; reading needs none.
#[derive(PartialEq, Eq)]
pub struct TableFrame {
    frame: Pfn,
}

impl TableFrame {
    /// The right to write the words of `frame`.
    ///
    /// # Safety
    /// 1. The frame was taken out of a [`FrameRun`] that is not used any more, or the frame's lock
    ///    is held and the frame was found to be a table under it.
    /// 2. The value does not outlive that ownership or that lock.
    #[inline]
    pub const unsafe fn mint(frame: Pfn) -> Self {
        Self { frame }
    }

    /// Which frame.
    #[inline]
    pub const fn frame(&self) -> Pfn {
        self.frame
    }
}

impl fmt::Debug for TableFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table in {:?}", self.frame)
    }
}
