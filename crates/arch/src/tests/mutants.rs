//! Formats that break one law each. The suite must name that law: a check that cannot fail checks
//! nothing.

use quire_units::{Order, Pfn};

use crate::laws::{self, Law};
use crate::{Arch, Attrs, Entry, Level, LevelShape, Transition, X86_64};

/// Number `MUTANT` of the formats that are x86-64 with one defect.
#[derive(Clone, Copy)]
struct Mutant<const MUTANT: usize>;

const SOUND: usize = 0;
const ORDER_TOO_LARGE: usize = 1;
const CONTIGUOUS_BEYOND_TABLE: usize = 2;
const ZERO_IS_MARKER: usize = 3;
const TABLE_LOSES_HIGH_BIT: usize = 4;
const TABLE_AT_LAST_LEVEL: usize = 5;
const LEAF_LOSES_DIRTY: usize = 6;
const LEAF_GRANTS_EXEC: usize = 7;
const LEAF_AT_EVERY_LEVEL: usize = 8;
const MARKER_TOO_NARROW: usize = 9;
const STEP_TOO_SMALL: usize = 10;
const HIDDEN_IS_INVERTED: usize = 11;
const READS_STRAY_BITS: usize = 12;
const FLUSHES_ABSENT: usize = 13;
const FORGETS_LOST_WRITE: usize = 14;
const FORGETS_COHERENCE: usize = 15;
const FLUSHES_UPGRADES: usize = 16;
const BREAKS_UNMAPPING: usize = 17;
const RELAXED_IS_STRICTER: usize = 18;
const HIDDEN_LOSES_COW: usize = 19;
const FLUSHES_SHARING: usize = 20;
const FORGETS_LOST_WRITE_OF_SHARED: usize = 21;
const PREFERS_PAGES_FOR_CODE: usize = 22;
const PREFERS_TOO_MUCH_FOR_CODE: usize = 23;

/// The bit where x86-64 keeps `COW`.
const COW: u64 = 1 << 58;

const FOLDED: [LevelShape; 4] = {
    let shape = LevelShape { index_bits: 9, leaf: true, contiguous: 9 };
    let upper = LevelShape { index_bits: 9, leaf: false, contiguous: 0 };
    [shape, shape, shape, upper]
};

impl<const MUTANT: usize> Arch for Mutant<MUTANT> {
    const NAME: &'static str = "mutant";
    const PAGE_SHIFT: u32 = X86_64::PAGE_SHIFT;
    const LEVELS: &'static [LevelShape] =
        if MUTANT == CONTIGUOUS_BEYOND_TABLE { &FOLDED } else { X86_64::LEVELS };
    const USER_PAGES: u64 = X86_64::USER_PAGES;
    const FRAMES: u64 = X86_64::FRAMES;
    const ASID_BITS: u32 = X86_64::ASID_BITS;

    fn table(frame: Pfn) -> u64 {
        let word = X86_64::table(frame);
        if MUTANT == TABLE_LOSES_HIGH_BIT { word & !(1 << 51) } else { word }
    }

    fn leaf(frame: Pfn, level: Level, attrs: Attrs) -> u64 {
        let hidden = attrs.prot().is_empty();
        match MUTANT {
            LEAF_LOSES_DIRTY if hidden => X86_64::leaf(frame, level, attrs - Attrs::DIRTY),
            HIDDEN_LOSES_COW if hidden => X86_64::leaf(frame, level, attrs - Attrs::COW),
            LEAF_GRANTS_EXEC if !hidden => X86_64::leaf(frame, level, attrs | Attrs::EXEC),
            HIDDEN_IS_INVERTED if hidden => {
                let inverted = !frame.get() & (X86_64::FRAMES - 1);
                let block = Pfn::new(inverted).align_down(X86_64::order(level).pages());
                X86_64::leaf(block, level, attrs)
            }
            _ => X86_64::leaf(frame, level, attrs),
        }
    }

    fn step(level: Level) -> u64 {
        if MUTANT == STEP_TOO_SMALL { 1 << 12 } else { X86_64::step(level) }
    }

    fn marker(payload: u64) -> u64 {
        X86_64::marker(if MUTANT == MARKER_TOO_NARROW { payload & !(1 << 55) } else { payload })
    }

    fn decode(word: u64, level: Level) -> Entry {
        let entry = X86_64::decode(word, level);
        match (MUTANT, entry) {
            (ZERO_IS_MARKER, Entry::Absent) => Entry::Marker(0),
            (TABLE_AT_LAST_LEVEL, _) if level.is_last() && word == X86_64::table(Pfn::new(1)) => {
                Entry::Table(Pfn::new(1))
            }
            (LEAF_AT_EVERY_LEVEL, Entry::Malformed | Entry::Table(_)) if word & 0xfff == 0x25 => {
                Entry::Leaf { frame: Pfn::new(0), attrs: Attrs::READ }
            }
            (HIDDEN_IS_INVERTED, Entry::Leaf { frame, attrs }) if attrs.prot().is_empty() => {
                let inverted = !frame.get() & (X86_64::FRAMES - 1);
                let frame = Pfn::new(inverted).align_down(X86_64::order(level).pages());
                Entry::Leaf { frame, attrs }
            }
            (READS_STRAY_BITS, Entry::Malformed) if level.is_last() && word & 1 == 1 => {
                Entry::Leaf { frame: Pfn::new(word >> 12), attrs: Attrs::READ }
            }
            _ => entry,
        }
    }

    fn transition(old: u64, new: u64, level: Level, relaxed: bool) -> Transition {
        let demand = X86_64::transition(old, new, level, relaxed);
        match MUTANT {
            FLUSHES_ABSENT if old == 0 => Transition::Flush,
            FORGETS_LOST_WRITE if old & 3 == 3 && new == old & !2 => Transition::Nothing,
            FORGETS_COHERENCE => demand.min(Transition::Flush),
            FLUSHES_UPGRADES if old & 1 == 1 && new == old | 2 => Transition::Flush,
            FLUSHES_SHARING if old & 1 == 1 && new == old | COW => Transition::Flush,
            FORGETS_LOST_WRITE_OF_SHARED if old & (COW | 3) == 3 && new == old & !2 | COW => {
                Transition::Nothing
            }
            BREAKS_UNMAPPING if old & 1 == 1 && new == 0 => Transition::BreakBeforeMake,
            RELAXED_IS_STRICTER if relaxed => Transition::BreakBeforeMake,
            _ => demand,
        }
    }

    fn order(level: Level) -> Order {
        let order = X86_64::order(level);
        if MUTANT == ORDER_TOO_LARGE && !level.is_last() { order.up() } else { order }
    }

    fn exec_order() -> Option<Order> {
        match MUTANT {
            PREFERS_PAGES_FOR_CODE => Some(Order::ZERO),
            PREFERS_TOO_MUCH_FOR_CODE => Some(X86_64::block_order().up()),
            _ => X86_64::exec_order(),
        }
    }
}

fn broken<const MUTANT: usize>() -> Option<Law> {
    laws::check::<Mutant<MUTANT>>().err().map(|broken| broken.law)
}

#[test]
fn the_unchanged_format_is_sound() {
    assert_eq!(broken::<SOUND>(), None);
}

#[test]
fn faults_of_the_shape_are_named() {
    assert_eq!(broken::<ORDER_TOO_LARGE>(), Some(Law::Geometry));
    assert_eq!(broken::<CONTIGUOUS_BEYOND_TABLE>(), Some(Law::Geometry));
    assert_eq!(broken::<PREFERS_PAGES_FOR_CODE>(), Some(Law::Geometry));
    assert_eq!(broken::<PREFERS_TOO_MUCH_FOR_CODE>(), Some(Law::Geometry));
}

#[test]
fn faults_of_the_words_are_named() {
    assert_eq!(broken::<ZERO_IS_MARKER>(), Some(Law::Zero));
    assert_eq!(broken::<TABLE_LOSES_HIGH_BIT>(), Some(Law::Table));
    assert_eq!(broken::<TABLE_AT_LAST_LEVEL>(), Some(Law::Table));
    assert_eq!(broken::<LEAF_LOSES_DIRTY>(), Some(Law::Leaf));
    assert_eq!(broken::<LEAF_GRANTS_EXEC>(), Some(Law::Leaf));
    assert_eq!(broken::<HIDDEN_LOSES_COW>(), Some(Law::Leaf));
    assert_eq!(broken::<LEAF_AT_EVERY_LEVEL>(), Some(Law::Leaf));
    assert_eq!(broken::<MARKER_TOO_NARROW>(), Some(Law::Marker));
    assert_eq!(broken::<STEP_TOO_SMALL>(), Some(Law::Run));
    assert_eq!(broken::<HIDDEN_IS_INVERTED>(), Some(Law::Run));
    assert_eq!(broken::<READS_STRAY_BITS>(), Some(Law::Stable));
}

#[test]
fn faults_of_the_transitions_are_named() {
    assert_eq!(broken::<FLUSHES_ABSENT>(), Some(Law::Unseen));
    assert_eq!(broken::<FORGETS_LOST_WRITE>(), Some(Law::TooWeak));
    assert_eq!(broken::<FORGETS_COHERENCE>(), Some(Law::TooWeak));
    assert_eq!(broken::<FORGETS_LOST_WRITE_OF_SHARED>(), Some(Law::TooWeak));
    assert_eq!(broken::<FLUSHES_SHARING>(), Some(Law::TooStrong));
    assert_eq!(broken::<FLUSHES_UPGRADES>(), Some(Law::TooStrong));
    assert_eq!(broken::<BREAKS_UNMAPPING>(), Some(Law::TooStrong));
    assert_eq!(broken::<RELAXED_IS_STRICTER>(), Some(Law::Relaxed));
}
