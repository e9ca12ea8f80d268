//! Formats that break the law of folding, each in one way: mutants of arm64 and of riscv64, whose
//! folded words differ most.

use core::marker::PhantomData;

use quire_units::{Order, Pfn};

use crate::laws::{self, Law};
use crate::{Arch, Arm4k, Attrs, Entry, Level, LevelShape, Sv39, Transition};

/// Format `A` with defect number `FAULT` in its folding.
struct Misfolds<A, const FAULT: usize>(PhantomData<A>);

impl<A, const FAULT: usize> Clone for Misfolds<A, FAULT> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A, const FAULT: usize> Copy for Misfolds<A, FAULT> {}

const SOUND: usize = 0;
const NOTHING_IS_FOLDED: usize = 1;
const MARKERS_ARE_FOLDED: usize = 2;
const PLAIN_LEAVES_ARE_FOLDED: usize = 3;
const FOLDS_NOT_AT_ALL: usize = 4;
const FOLD_LOSES_DIRTY: usize = 5;
const FOLD_LOSES_COW: usize = 6;
const UNFOLD_FORGETS_PLACE: usize = 7;
const UNFOLD_LOSES_YOUNG: usize = 8;
const STEP_OF_ANOTHER_FORMAT: usize = 9;
const ORDER_OF_ONE_ENTRY: usize = 10;
const FOLDING_IS_FREE: usize = 11;
const FOLDING_ALWAYS_BREAKS: usize = 12;
const UNFOLDING_NEVER_BREAKS: usize = 13;
const FOLDED_LOSSES_ARE_FREE: usize = 14;
const FOLDED_AGEING_FLUSHES: usize = 15;
const FOLDED_MOVES_ARE_MISSED: usize = 16;
const UNMAPPING_A_FOLD_IS_FREE: usize = 17;
const MAPPING_A_FOLD_FLUSHES: usize = 18;

/// The bit of `flag` in the words of a block's first leaf.
fn bits_of<A: Arch>(attrs: Attrs, flag: Attrs) -> u64 {
    let word = |attrs| A::leaf(Pfn::new(0), Level::LAST, attrs);
    word(attrs | flag) ^ word(attrs - flag)
}

/// The word with `flag` as in a leaf that lacks it.
fn without<A: Arch>(word: u64, level: Level, flag: Attrs) -> u64 {
    match A::decode(word, level) {
        Entry::Leaf { attrs, .. } if attrs.contains(flag) => word ^ bits_of::<A>(attrs, flag),
        _ => word,
    }
}

impl<A: Arch, const FAULT: usize> Arch for Misfolds<A, FAULT> {
    const NAME: &'static str = "misfolds";
    const PAGE_SHIFT: u32 = A::PAGE_SHIFT;
    const LEVELS: &'static [LevelShape] = A::LEVELS;
    const USER_PAGES: u64 = A::USER_PAGES;
    const FRAMES: u64 = A::FRAMES;
    const ASID_BITS: u32 = A::ASID_BITS;

    fn table(frame: Pfn) -> u64 {
        A::table(frame)
    }

    fn leaf(frame: Pfn, level: Level, attrs: Attrs) -> u64 {
        A::leaf(frame, level, attrs)
    }

    fn step(level: Level) -> u64 {
        A::step(level)
    }

    fn marker(payload: u64) -> u64 {
        A::marker(payload)
    }

    fn decode(word: u64, level: Level) -> Entry {
        A::decode(word, level)
    }

    fn transition(old: u64, new: u64, level: Level, relaxed: bool) -> Transition {
        let demand = A::transition(old, new, level, relaxed);
        let (was, is) = (A::is_folded(old, level), A::is_folded(new, level));
        match FAULT {
            FOLDING_IS_FREE if !was && is => Transition::Nothing,
            FOLDING_ALWAYS_BREAKS if !was && is && old & 1 == 1 => Transition::BreakBeforeMake,
            UNFOLDING_NEVER_BREAKS if was && !is => demand.min(Transition::Flush),
            FOLDED_LOSSES_ARE_FREE if was && is && demand == Transition::Flush => {
                Transition::Nothing
            }
            FOLDED_AGEING_FLUSHES if was && is => demand.max(Transition::Flush),
            FOLDED_MOVES_ARE_MISSED if was && is => demand.min(Transition::Flush),
            UNMAPPING_A_FOLD_IS_FREE if was && new & 1 == 0 => Transition::Nothing,
            MAPPING_A_FOLD_FLUSHES if old == 0 && is => Transition::Flush,
            _ => demand,
        }
    }

    fn is_folded(word: u64, level: Level) -> bool {
        let folded = A::is_folded(word, level);
        match FAULT {
            NOTHING_IS_FOLDED => false,
            MARKERS_ARE_FOLDED => folded || A::is_folded(word | 3, level),
            PLAIN_LEAVES_ARE_FOLDED => folded || A::fold_order(level).is_some() && word & 1 == 1,
            _ => folded,
        }
    }

    fn fold(word: u64, level: Level) -> u64 {
        match FAULT {
            FOLDS_NOT_AT_ALL => word,
            FOLD_LOSES_DIRTY => A::fold(without::<A>(word, level, Attrs::DIRTY), level),
            FOLD_LOSES_COW => A::fold(without::<A>(word, level, Attrs::COW), level),
            _ => A::fold(word, level),
        }
    }

    fn unfold(word: u64, level: Level, index: usize) -> u64 {
        match FAULT {
            // Only riscv64 needs the place: on the others the word contains it.
            UNFOLD_FORGETS_PLACE => A::unfold(word, level, 0),
            UNFOLD_LOSES_YOUNG => without::<A>(A::unfold(word, level, index), level, Attrs::YOUNG),
            _ if A::is_folded(word, level) => A::unfold(word, level, index),
            _ => word,
        }
    }

    fn fold_step(level: Level) -> u64 {
        match (FAULT, A::fold_step(level)) {
            (STEP_OF_ANOTHER_FORMAT, 0) => A::step(level),
            (STEP_OF_ANOTHER_FORMAT, _) => 0,
            (_, step) => step,
        }
    }

    fn fold_order(level: Level) -> Option<Order> {
        if FAULT == ORDER_OF_ONE_ENTRY { Some(A::order(level)) } else { A::fold_order(level) }
    }
}

fn broken<const FAULT: usize>() -> [Option<Law>; 2] {
    fn law<A: Arch, const FAULT: usize>() -> Option<Law> {
        // Only the laws that folding can break.
        let geometry = laws::geometry::<Misfolds<A, FAULT>>();
        let found = geometry.and_then(|()| laws::folding::<Misfolds<A, FAULT>>());
        found.err().map(|broken| broken.law)
    }
    [law::<Arm4k, FAULT>(), law::<Sv39, FAULT>()]
}

const BOTH: [Option<Law>; 2] = [Some(Law::Fold); 2];

#[test]
fn c1_formats_that_fold_as_they_should_are_sound() {
    assert_eq!(broken::<SOUND>(), [None; 2]);
}

#[test]
fn c1_faults_of_folded_words_are_named() {
    assert_eq!(broken::<NOTHING_IS_FOLDED>(), BOTH);
    assert_eq!(broken::<MARKERS_ARE_FOLDED>(), BOTH);
    assert_eq!(broken::<PLAIN_LEAVES_ARE_FOLDED>(), BOTH);
    assert_eq!(broken::<FOLDS_NOT_AT_ALL>(), BOTH);
    assert_eq!(broken::<FOLD_LOSES_DIRTY>(), BOTH);
    assert_eq!(broken::<FOLD_LOSES_COW>(), BOTH);
    assert_eq!(broken::<UNFOLD_FORGETS_PLACE>(), [None, Some(Law::Fold)]);
    assert_eq!(broken::<UNFOLD_LOSES_YOUNG>(), BOTH);
    assert_eq!(broken::<STEP_OF_ANOTHER_FORMAT>(), BOTH);
    assert_eq!(broken::<ORDER_OF_ONE_ENTRY>(), [Some(Law::Geometry); 2]);
}

#[test]
fn c2_faults_in_the_demands_of_folded_words_are_named() {
    assert_eq!(broken::<FOLDING_IS_FREE>(), BOTH);
    // On arm64 only a relaxed CPU shows it.
    assert_eq!(broken::<FOLDING_ALWAYS_BREAKS>(), BOTH);
    assert_eq!(broken::<UNFOLDING_NEVER_BREAKS>(), BOTH);
    assert_eq!(broken::<FOLDED_LOSSES_ARE_FREE>(), BOTH);
    assert_eq!(broken::<FOLDED_AGEING_FLUSHES>(), BOTH);
    assert_eq!(broken::<FOLDED_MOVES_ARE_MISSED>(), BOTH);
    assert_eq!(broken::<UNMAPPING_A_FOLD_IS_FREE>(), BOTH);
    assert_eq!(broken::<MAPPING_A_FOLD_FLUSHES>(), BOTH);
}
