//! One leaf's word, from which others are read and made.
//!
//! Neighbouring leaves mostly differ in their frames alone. By the laws of the formats the word of
//! a leaf is that of frame 0 with the same attributes, plus so many steps:
//!
//! ```text
//!   word  =  base (attributes)  +  frame × step of the last level
//! ```
//!
//! So what one word was found to say tells what the next one says, and a word is taken apart flag
//! by flag only where the attributes change.

use quire_arch::{Arch, Attrs, Level};
use quire_units::Pfn;

/// What the plain words of all leaves of one level with the same attributes have in common.
#[derive(Clone, Copy)]
pub(super) struct Sample {
    attrs: Attrs,
    /// The word that frame 0 would have.
    base: u64,
    /// The bits that only other attributes change.
    fixed: u64,
}

impl Sample {
    /// Of no leaf: only zero is like it.
    pub(super) const NONE: Self = Self { attrs: Attrs::empty(), base: 0, fixed: u64::MAX };

    /// Of `word`, the plain word of a leaf at `level` that maps `frame` with `attrs`.
    #[inline]
    pub(super) fn of<A: Arch>(word: u64, level: Level, frame: Pfn, attrs: Attrs) -> Self {
        let frames = (A::FRAMES - 1) << step_at::<A>();
        let base = word.wrapping_sub(frame.get() << step_at::<A>());
        Self { attrs, base, fixed: !(frames & A::step(level).wrapping_neg()) }
    }

    /// What the leaf of `word`, which is not zero, maps, if it is like this one.
    #[inline(always)]
    pub(super) fn read<A: Arch>(&self, word: u64) -> Option<(Pfn, Attrs)> {
        let beyond = word.wrapping_sub(self.base);
        (beyond & self.fixed == 0).then(|| (Pfn::new(beyond >> step_at::<A>()), self.attrs))
    }

    /// The word of a leaf like this one that maps `frame`, if these are its attributes.
    #[inline(always)]
    pub(super) fn spell<A: Arch>(&self, frame: Pfn, attrs: Attrs) -> Option<u64> {
        let word = self.base.wrapping_add(frame.get() << step_at::<A>());
        (self.attrs == attrs && self.base != 0).then_some(word)
    }
}

/// How far up a frame's number stands in a word.
#[inline(always)]
fn step_at<A: Arch>() -> u32 {
    A::step(Level::LAST).trailing_zeros()
}
