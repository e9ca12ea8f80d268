//! The words of x86-64.

use quire_units::{Order, Pfn};

use crate::bits::{field, put, take};
use crate::rules::Rules;
use crate::slots::{memory, memory_slots, slot, types};
use crate::{Arch, Attrs, Entry, Level, LevelShape, Transition};

/// x86-64 with tables of `LEVELS` levels: 4 or 5.
///
/// `SLOTS` are the entries of the PAT, 0 to 3, that the embedder has given to the memory types,
/// from [`memory_slots`]: unless it says otherwise 0 (WB), 1 for the combining type (WC) and 3 for
/// devices (UC). After reset entry 1 is WT: an embedder that maps combining memory writes the PAT.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct X86<const LEVELS: usize, const SLOTS: u16 = { memory_slots(0, 1, 3) }>;

/// Four levels: 48-bit linear addresses, of which programs have the lower half.
pub type X86_64 = X86<4>;

/// Five levels (LA57): 57-bit linear addresses, of which programs have the lower half.
pub type X86_64La57 = X86<5>;

const PAGE_SHIFT: u32 = 12;
const INDEX_BITS: u32 = 9;

const PRESENT: u64 = 1 << 0;
const WRITE_AT: u32 = 1;
const USER_AT: u32 = 2;
/// PWT and PCD: the two low bits of the PAT's entry.
const MEMORY: u64 = 0b11 << MEMORY_AT;
const MEMORY_AT: u32 = 3;
const ACCESSED_AT: u32 = 5;
const DIRTY_AT: u32 = 6;
const LARGE: u64 = 1 << 7;
const GLOBAL_AT: u32 = 8;
const SOFT_AT: u32 = 9;
const SAVED_DIRTY_AT: u32 = 10;
const HIDDEN: u64 = 1 << 11;
const COW_AT: u32 = 58;
const NO_EXEC_AT: u32 = 63;

const ADDR: u64 = field(51, PAGE_SHIFT);
/// Present, writable, user, accessed.
const TABLE: u64 = PRESENT | 1 << WRITE_AT | 1 << USER_AT | 1 << ACCESSED_AT;
/// The bits that a hidden leaf shares with a visible one.
const COMMON: u64 = 1 << USER_AT
    | MEMORY
    | 1 << ACCESSED_AT
    | 1 << GLOBAL_AT
    | 1 << SOFT_AT
    | 1 << SAVED_DIRTY_AT
    | 1 << COW_AT;
const VISIBLE: u64 = COMMON | PRESENT | 1 << WRITE_AT | 1 << DIRTY_AT | 1 << NO_EXEC_AT;

/// Added to a hidden leaf's address, against L1TF: see the module's documentation.
const VEIL: u64 = 1 << 45 | 1 << 43;
/// The bits where a hidden leaf keeps the sum: one more than an address.
const VEILED: u64 = field(52, PAGE_SHIFT);

/// Tells a marker from a hidden leaf, which is never writable.
const MARKER: u64 = 1 << 1;
/// Set in every marker, against L1TF.
const MARKER_VEIL: u64 = field(45, 43);
const PAYLOAD_LOW_BITS: u32 = 41;
const PAYLOAD_LOW: u64 = field(42, 2);
const PAYLOAD_HIGH: u64 = field(60, 46);

const SHAPES: [LevelShape; 5] = [
    LevelShape { index_bits: 9, leaf: true, contiguous: 0 },
    LevelShape { index_bits: 9, leaf: true, contiguous: 0 },
    LevelShape { index_bits: 9, leaf: true, contiguous: 0 },
    LevelShape { index_bits: 9, leaf: false, contiguous: 0 },
    LevelShape { index_bits: 9, leaf: false, contiguous: 0 },
];

/// The highest level that may hold a leaf.
const LEAF_MOST: usize = 2;

const RULES: Rules = Rules { resize_breaks: true, move_breaks: false, global_breaks: false };

impl<const LEVELS: usize, const SLOTS: u16> Arch for X86<LEVELS, SLOTS> {
    const NAME: &'static str = match LEVELS {
        4 => "x86-64",
        5 => "x86-64-la57",
        _ => panic!("x86-64 has tables of 4 or 5 levels"),
    };
    const PAGE_SHIFT: u32 = PAGE_SHIFT;
    const LEVELS: &'static [LevelShape] = SHAPES.split_at(LEVELS).0;
    const USER_PAGES: u64 = 1 << (LEVELS as u32 * INDEX_BITS - 1);
    const FRAMES: u64 = 1 << (52 - PAGE_SHIFT);
    const ASID_BITS: u32 = 12;

    #[inline]
    fn table(frame: Pfn) -> u64 {
        debug_assert!(frame.get() < Self::FRAMES);
        frame.get() << PAGE_SHIFT | TABLE
    }

    #[inline(always)]
    fn leaf(frame: Pfn, level: Level, attrs: Attrs) -> u64 {
        debug_assert!(level.index() <= LEAF_MOST);
        debug_assert!(frame.get() < Self::FRAMES && frame.is_aligned(Self::order(level).pages()));
        let addr = frame.get() << PAGE_SHIFT;
        if attrs.intersects(Attrs::RIGHTS) {
            addr | PRESENT | large(level) | visible(attrs) | Self::memory(attrs)
        } else {
            (addr + VEIL) | HIDDEN | common(attrs) | Self::memory(attrs)
        }
    }

    #[inline]
    fn step(level: Level) -> u64 {
        1 << block_shift(level)
    }

    #[inline]
    fn marker(payload: u64) -> u64 {
        debug_assert!(payload >> 56 == 0);
        let low = payload << 2 & PAYLOAD_LOW;
        let high = payload >> PAYLOAD_LOW_BITS << 46 & PAYLOAD_HIGH;
        high | MARKER_VEIL | low | MARKER
    }

    // `always`: returning an `Entry` through memory costs several times what decoding it does.
    #[inline(always)]
    fn decode(word: u64, level: Level) -> Entry {
        if word & PRESENT == 0 {
            Self::decode_unseen(word, level)
        } else if !level.is_last() && word & LARGE == 0 {
            decode_table(word)
        } else {
            Self::decode_leaf(word, level)
        }
    }

    #[inline]
    fn transition(old: u64, new: u64, level: Level, relaxed: bool) -> Transition {
        if old & PRESENT == 0 || old == new {
            Transition::Nothing
        } else if new & PRESENT == 0 {
            Transition::Flush
        } else {
            RULES.between(Self::decode(old, level), Self::decode(new, level), relaxed)
        }
    }

    #[inline]
    fn order(level: Level) -> Order {
        Order::new((level.index() as u32 * INDEX_BITS) as u8)
    }
}

impl<const LEVELS: usize, const SLOTS: u16> X86<LEVELS, SLOTS> {
    const TYPES: u16 = {
        let low = SLOTS & 0xf < 4 && SLOTS >> 4 & 0xf < 4 && SLOTS >> 8 & 0xf < 4;
        assert!(low, "the PAT bit of a leaf stays zero: the types have slots 0 to 3");
        types(SLOTS)
    };

    /// The memory type of a leaf.
    #[inline(always)]
    const fn memory(attrs: Attrs) -> u64 {
        slot(SLOTS, attrs) << MEMORY_AT
    }

    /// The memory type of a leaf; `None` for an entry of the PAT that no type has.
    #[inline(always)]
    fn memory_of(word: u64) -> Option<Attrs> {
        let attrs = memory(Self::TYPES, (word & MEMORY) >> MEMORY_AT);
        (!attrs.contains(Attrs::MEMORY)).then_some(attrs)
    }

    #[inline(always)]
    fn decode_leaf(word: u64, level: Level) -> Entry {
        let strange = word & !(VISIBLE | large(level) | block_addr(level)) != 0;
        let (false, Some(memory)) = (strange || level.index() > LEAF_MOST, Self::memory_of(word))
        else {
            return Entry::Malformed;
        };
        let attrs = attrs_common(word)
            | memory
            | Attrs::READ
            | take(word, WRITE_AT, Attrs::WRITE)
            | take(word, DIRTY_AT, Attrs::DIRTY)
            | take(!word, NO_EXEC_AT, Attrs::EXEC);
        Entry::Leaf { frame: Pfn::new((word & ADDR) >> PAGE_SHIFT), attrs }
    }

    /// Decodes a word that the hardware takes for absent.
    #[inline]
    fn decode_unseen(word: u64, level: Level) -> Entry {
        if word == 0 {
            Entry::Absent
        } else if word & MARKER != 0 {
            decode_marker(word)
        } else {
            Self::decode_hidden(word, level)
        }
    }

    fn decode_hidden(word: u64, level: Level) -> Entry {
        let addr = (word & VEILED).wrapping_sub(VEIL);
        let ours = word & !(COMMON | VEILED) == HIDDEN && addr & !block_addr(level) == 0;
        match Self::memory_of(word) {
            Some(memory) if ours && level.index() <= LEAF_MOST => {
                let attrs = attrs_common(word) | memory;
                Entry::Leaf { frame: Pfn::new(addr >> PAGE_SHIFT), attrs }
            }
            _ => Entry::Malformed,
        }
    }
}

/// The base-two logarithm in bytes of one entry's block.
#[inline]
const fn block_shift(level: Level) -> u32 {
    PAGE_SHIFT + level.index() as u32 * INDEX_BITS
}

/// The address bits that a leaf of `level` may have set.
#[inline]
const fn block_addr(level: Level) -> u64 {
    ADDR & u64::MAX << block_shift(level)
}

/// The bit that tells a leaf from a table; at the last level its place means something else.
#[inline]
const fn large(level: Level) -> u64 {
    if level.is_last() { 0 } else { LARGE }
}

/// All but rights, dirty flag and memory type.
#[inline]
fn common(attrs: Attrs) -> u64 {
    // The two dirty bits are selected by shifts: faults call this, so it has no branches.
    put(attrs, Attrs::USER, USER_AT)
        | put(attrs, Attrs::YOUNG, ACCESSED_AT)
        | put(attrs, Attrs::GLOBAL, GLOBAL_AT)
        | put(attrs, Attrs::SOFT, SOFT_AT)
        | put(attrs, Attrs::COW, COW_AT)
        | (put(attrs, Attrs::DIRTY, SAVED_DIRTY_AT) & !put(attrs, Attrs::WRITE, SAVED_DIRTY_AT))
}

/// The attributes of a leaf that the hardware sees.
#[inline(always)]
fn visible(attrs: Attrs) -> u64 {
    common(attrs)
        | put(attrs, Attrs::WRITE, WRITE_AT)
        | (put(attrs, Attrs::DIRTY, DIRTY_AT) & put(attrs, Attrs::WRITE, DIRTY_AT))
        | put(attrs, Attrs::EXEC, NO_EXEC_AT) ^ 1 << NO_EXEC_AT
}

#[inline]
fn attrs_common(word: u64) -> Attrs {
    take(word, USER_AT, Attrs::USER)
        | take(word, ACCESSED_AT, Attrs::YOUNG)
        | take(word, GLOBAL_AT, Attrs::GLOBAL)
        | take(word, SOFT_AT, Attrs::SOFT)
        | take(word, COW_AT, Attrs::COW)
        | take(word, SAVED_DIRTY_AT, Attrs::DIRTY)
}

#[inline]
fn decode_table(word: u64) -> Entry {
    if word & !ADDR == TABLE {
        Entry::Table(Pfn::new((word & ADDR) >> PAGE_SHIFT))
    } else {
        Entry::Malformed
    }
}

fn decode_marker(word: u64) -> Entry {
    if word & !(PAYLOAD_HIGH | PAYLOAD_LOW) != MARKER_VEIL | MARKER {
        return Entry::Malformed;
    }
    let high = (word & PAYLOAD_HIGH) >> 46 << PAYLOAD_LOW_BITS;
    Entry::Marker(high | (word & PAYLOAD_LOW) >> 2)
}
