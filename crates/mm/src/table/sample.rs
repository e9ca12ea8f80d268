//! One leaf's word, from which others are read and made.
//!
//! Neighbouring leaves mostly differ in their frames alone. By the laws of the formats the word of
//! a leaf is that of frame 0 with the same attributes, plus a multiple of the frame:
//!
//! ```text
//!   word  =  base (attributes)  +  frame × step of the last level
//! ```
//!
//! So one decoded word gives the meaning of the next one, and a word is decoded flag by flag only
//! where the attributes change.

use quire_arch::{Arch, Attrs, Level};
use quire_units::Pfn;

/// The common part of the plain words of all leaves of one level with the same attributes.
#[derive(Clone, Copy)]
pub(super) struct Sample {
    attrs: Attrs,
    /// The word that frame 0 would have.
    base: u64,
    /// The bits that are equal in all of them.
    fixed: u64,
}

impl Sample {
    /// A sample of no leaf: only zero is like it.
    pub(super) const NONE: Self = Self { attrs: Attrs::empty(), base: 0, fixed: u64::MAX };

    /// Of `word`, the plain word of a leaf at `level` that maps `frame` with `attrs`.
    #[inline]
    pub(super) fn of<A: Arch>(word: u64, level: Level, frame: Pfn, attrs: Attrs) -> Self {
        let frames = (A::FRAMES - 1) << step_at::<A>();
        let base = word.wrapping_sub(frame.get() << step_at::<A>());
        Self { attrs, base, fixed: !(frames & A::step(level).wrapping_neg()) }
    }

    /// The frame and attributes of the leaf of `word`, which is not zero, if it is like this one.
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

#[cfg(all(test, not(loom)))]
mod tests {
    use quire_arch::{Arm4k, Arm64k, Entry, Sv48, X86_64};

    use super::*;

    /// All leaves of a level of `A` for some frames, as words with what they decode to.
    fn leaves<A: Arch>(level: Level) -> impl Iterator<Item = (u64, Pfn, Attrs)> {
        let block = A::order(level).pages();
        let frames = [0, 1, 5, A::FRAMES / block - 1].map(|at| Pfn::new(at * block));
        (0..=Attrs::all().bits()).flat_map(move |bits| {
            frames.into_iter().filter_map(move |frame| {
                let word = A::leaf(frame, level, Attrs::from_bits_retain(bits));
                match A::decode(word, level) {
                    Entry::Leaf { frame, attrs } => Some((word, frame, attrs)),
                    _ => None,
                }
            })
        })
    }

    fn samples_agree_with_the_format<A: Arch>() {
        for level in [Level::LAST, Level::LAST.parent()] {
            for (word, frame, attrs) in leaves::<A>(level).step_by(7) {
                let sample = Sample::of::<A>(word, level, frame, attrs);
                assert_eq!(sample.read::<A>(word), Some((frame, attrs)));
                let mut alike = 0;
                for (other, frame, flags) in leaves::<A>(level).filter(|&(word, ..)| word != 0) {
                    match sample.read::<A>(other) {
                        Some(read) => assert_eq!(read, (frame, flags), "{other:#x} by {word:#x}"),
                        None => assert_ne!(flags, attrs, "{other:#x} is like {word:#x}"),
                    }
                    if let Some(spelled) = sample.spell::<A>(frame, flags) {
                        assert_eq!(spelled, other, "by {word:#x}");
                        alike += 1;
                    }
                }
                assert!(alike > 0, "a sample is of some leaves");
            }
        }
    }

    #[test]
    fn a_sample_reads_and_spells_leaves_as_their_format_does() {
        samples_agree_with_the_format::<X86_64>();
        samples_agree_with_the_format::<Arm4k>();
        samples_agree_with_the_format::<Arm64k>();
        samples_agree_with_the_format::<Sv48>();
    }

    #[test]
    fn no_sample_reads_or_spells_nothing() {
        for (word, frame, attrs) in leaves::<X86_64>(Level::LAST) {
            assert_eq!(Sample::NONE.read::<X86_64>(word), None);
            assert_eq!(Sample::NONE.spell::<X86_64>(frame, attrs), None);
        }
    }
}
