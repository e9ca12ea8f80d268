//! The words of riscv64.

use quire_units::{Order, Pfn};

use crate::bits::{field, put, take};
use crate::rules::Rules;
use crate::{Arch, Attrs, Entry, Level, LevelShape, Transition};

/// riscv64 with tables of `LEVELS` levels: 3, 4 or 5.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Riscv64<const LEVELS: usize>;

/// Three levels: 39-bit virtual addresses, of which programs have the lower half.
pub type Sv39 = Riscv64<3>;

/// Four levels: 48-bit virtual addresses, of which programs have the lower half.
pub type Sv48 = Riscv64<4>;

/// Five levels: 57-bit virtual addresses, of which programs have the lower half.
pub type Sv57 = Riscv64<5>;

const PAGE_SHIFT: u32 = 12;
const INDEX_BITS: u32 = 9;

const VALID: u64 = 1 << 0;
const READ_AT: u32 = 1;
const WRITE_AT: u32 = 2;
const EXEC_AT: u32 = 3;
const USER_AT: u32 = 4;
const GLOBAL_AT: u32 = 5;
const ACCESSED_AT: u32 = 6;
const DIRTY_AT: u32 = 7;
const SOFT_AT: u32 = 8;
const COW_AT: u32 = 9;
const FRAME_AT: u32 = 10;
const FRAME: u64 = field(53, FRAME_AT);
/// `COMBINING` is PBMT = 1 (NC), which sets this bit alone.
const NC_AT: u32 = 61;
/// `DEVICE` is PBMT = 2 (IO), which sets this bit alone.
const IO_AT: u32 = 62;
const PBMT: u64 = 1 << NC_AT | 1 << IO_AT;
const NAPOT: u64 = 1 << 63;

const READ_WRITE_EXEC: u64 = 1 << READ_AT | 1 << WRITE_AT | 1 << EXEC_AT;
/// The bits that vary in a hidden leaf, but for its address.
const COMMON: u64 = 1 << USER_AT
    | 1 << GLOBAL_AT
    | 1 << ACCESSED_AT
    | 1 << DIRTY_AT
    | 1 << SOFT_AT
    | 1 << COW_AT
    | PBMT;

/// Marks a hidden leaf, together with a clear [`VALID`]. It uses the place of a right, since both
/// bits for software are taken.
const HIDDEN: u64 = 1 << 3;
/// Tells a marker from a hidden leaf.
const MARKER: u64 = 1 << 1;
const PAYLOAD_AT: u32 = 8;

/// The base-two logarithm of how many leaves a folded word stands for.
const NAPOT_BITS: u32 = 4;
/// The frame bits that a folded word does not keep.
const NAPOT_FRAME: u64 = field(FRAME_AT + NAPOT_BITS - 1, FRAME_AT);
/// The value of those bits in a folded word: the position of the lowest one encodes the block's
/// size.
const NAPOT_SIZE: u64 = 1 << (FRAME_AT + NAPOT_BITS - 1);

const fn shape(contiguous: u8) -> LevelShape {
    LevelShape { index_bits: 9, leaf: true, contiguous }
}

const SHAPES: [LevelShape; 5] = [shape(NAPOT_BITS as u8), shape(0), shape(0), shape(0), shape(0)];

const RULES: Rules = Rules { resize_breaks: false, move_breaks: false, global_breaks: false };

impl<const LEVELS: usize> Arch for Riscv64<LEVELS> {
    const NAME: &'static str = match LEVELS {
        3 => "riscv64-sv39",
        4 => "riscv64-sv48",
        5 => "riscv64-sv57",
        _ => panic!("riscv64 has tables of 3, 4 or 5 levels"),
    };
    const PAGE_SHIFT: u32 = PAGE_SHIFT;
    const LEVELS: &'static [LevelShape] = SHAPES.split_at(LEVELS).0;
    const USER_PAGES: u64 = 1 << (LEVELS as u32 * INDEX_BITS - 1);
    const FRAMES: u64 = 1 << 44;
    const ASID_BITS: u32 = 16;

    #[inline]
    fn table(frame: Pfn) -> u64 {
        debug_assert!(frame.get() < Self::FRAMES);
        frame.get() << FRAME_AT | VALID
    }

    #[inline(always)]
    fn leaf(frame: Pfn, level: Level, attrs: Attrs) -> u64 {
        debug_assert!(frame.get() < Self::FRAMES && frame.is_aligned(Self::order(level).pages()));
        let kind = if attrs.intersects(Attrs::RIGHTS) { VALID } else { HIDDEN };
        frame.get() << FRAME_AT | kind | common(attrs) | rights(attrs)
    }

    #[inline]
    fn step(level: Level) -> u64 {
        1 << block_shift(level)
    }

    #[inline]
    fn marker(payload: u64) -> u64 {
        debug_assert!(payload >> 56 == 0);
        payload << PAYLOAD_AT | MARKER
    }

    #[inline]
    fn decode(word: u64, level: Level) -> Entry {
        if word & VALID == 0 {
            decode_unseen(word, level)
        } else if word & READ_WRITE_EXEC == 0 {
            decode_table(word, level)
        } else {
            decode_leaf(word, level)
        }
    }

    #[inline]
    fn transition(old: u64, new: u64, level: Level, relaxed: bool) -> Transition {
        if old & VALID == 0 || old == new {
            Transition::Nothing
        } else if new & VALID == 0 {
            Transition::Flush
        } else if (old | new) & NAPOT == 0 {
            RULES.between(Self::decode(old, level), Self::decode(new, level), relaxed)
        } else {
            transition_of_blocks::<LEVELS>(old, new, level, relaxed)
        }
    }

    #[inline]
    fn is_folded(word: u64, level: Level) -> bool {
        level.is_last() && word & (NAPOT | NAPOT_FRAME | VALID) == NAPOT | NAPOT_SIZE | VALID
    }

    #[inline]
    fn fold(word: u64, level: Level) -> u64 {
        debug_assert!(level.is_last() && word & (NAPOT | VALID) == VALID);
        word & !NAPOT_FRAME | NAPOT | NAPOT_SIZE
    }

    #[inline]
    fn unfold(word: u64, level: Level, index: usize) -> u64 {
        debug_assert!(Self::is_folded(word, level));
        word & !(NAPOT | NAPOT_FRAME) | (index as u64) << FRAME_AT & NAPOT_FRAME
    }

    #[inline]
    fn fold_step(_level: Level) -> u64 {
        0
    }

    #[inline]
    fn order(level: Level) -> Order {
        Order::new((level.index() as u32 * INDEX_BITS) as u8)
    }
}

/// The demand where at least one of the words is folded. Such a word lacks the low bits of its
/// frame: they are taken from the other word, or, where that lacks them too, agree in any case.
fn transition_of_blocks<const LEVELS: usize>(
    old: u64,
    new: u64,
    level: Level,
    relaxed: bool,
) -> Transition {
    let plain = |word: u64, other: u64| {
        let folded = Riscv64::<LEVELS>::is_folded(word, level);
        let index = if other & NAPOT == 0 { (other & NAPOT_FRAME) >> FRAME_AT } else { 0 };
        if folded { Riscv64::<LEVELS>::unfold(word, level, index as usize) } else { word }
    };
    let from = Riscv64::<LEVELS>::decode(plain(old, new), level);
    let to = Riscv64::<LEVELS>::decode(plain(new, old), level);
    let demand = RULES.between(from, to, relaxed);
    let regrouped = (old ^ new) & NAPOT != 0;
    if regrouped { demand.max(RULES.resized(relaxed)) } else { demand }
}

/// The lowest bit of a word that tells one block of `level` from the next.
#[inline]
const fn block_shift(level: Level) -> u32 {
    FRAME_AT + level.index() as u32 * INDEX_BITS
}

/// The frame bits that a leaf of `level` may have set.
#[inline]
const fn block_frame(level: Level) -> u64 {
    FRAME & u64::MAX << block_shift(level)
}

#[inline]
const fn frame(word: u64) -> Pfn {
    Pfn::new((word & FRAME) >> FRAME_AT)
}

/// All but the rights.
#[inline]
fn common(attrs: Attrs) -> u64 {
    put(attrs, Attrs::USER, USER_AT)
        | put(attrs, Attrs::GLOBAL, GLOBAL_AT)
        | put(attrs, Attrs::YOUNG, ACCESSED_AT)
        | put(attrs, Attrs::DIRTY, DIRTY_AT)
        | put(attrs, Attrs::SOFT, SOFT_AT)
        | put(attrs, Attrs::COW, COW_AT)
        | put(attrs, Attrs::DEVICE, IO_AT)
        | (put(attrs, Attrs::COMBINING, NC_AT) & !put(attrs, Attrs::DEVICE, NC_AT))
}

#[inline]
fn rights(attrs: Attrs) -> u64 {
    put(attrs, Attrs::READ, READ_AT)
        | put(attrs, Attrs::WRITE, READ_AT)
        | put(attrs, Attrs::WRITE, WRITE_AT)
        | put(attrs, Attrs::EXEC, EXEC_AT)
}

#[inline]
fn attrs_common(word: u64) -> Attrs {
    take(word, USER_AT, Attrs::USER)
        | take(word, GLOBAL_AT, Attrs::GLOBAL)
        | take(word, ACCESSED_AT, Attrs::YOUNG)
        | take(word, DIRTY_AT, Attrs::DIRTY)
        | take(word, SOFT_AT, Attrs::SOFT)
        | take(word, COW_AT, Attrs::COW)
        | take(word, IO_AT, Attrs::DEVICE)
        | take(word, NC_AT, Attrs::COMBINING)
}

#[inline]
fn decode_table(word: u64, level: Level) -> Entry {
    if word & !FRAME == VALID && !level.is_last() {
        Entry::Table(frame(word))
    } else {
        Entry::Malformed
    }
}

#[inline]
fn decode_leaf(word: u64, level: Level) -> Entry {
    let ours = word & !(COMMON | READ_WRITE_EXEC | block_frame(level)) == VALID;
    let reserved = word & (1 << READ_AT | 1 << WRITE_AT) == 1 << WRITE_AT;
    if !ours || reserved || word & PBMT == PBMT {
        return Entry::Malformed;
    }
    let attrs = attrs_common(word)
        | take(word, READ_AT, Attrs::READ)
        | take(word, WRITE_AT, Attrs::WRITE)
        | take(word, EXEC_AT, Attrs::EXEC);
    Entry::Leaf { frame: frame(word), attrs }
}

/// Decodes a word that the hardware takes for absent.
#[inline]
fn decode_unseen(word: u64, level: Level) -> Entry {
    if word == 0 {
        Entry::Absent
    } else if word & field(PAYLOAD_AT - 1, 0) == MARKER {
        Entry::Marker(word >> PAYLOAD_AT)
    } else if word & !(COMMON | block_frame(level)) == HIDDEN && word & PBMT != PBMT {
        Entry::Leaf { frame: frame(word), attrs: attrs_common(word) }
    } else {
        Entry::Malformed
    }
}
