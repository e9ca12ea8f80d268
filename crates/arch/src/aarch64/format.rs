//! The words of arm64.

use quire_units::{Order, Pfn};

use crate::bits::{field, put, take};
use crate::rules::Rules;
use crate::slots::{memory, memory_slots, slot, types};
use crate::{Arch, Attrs, Entry, Level, LevelShape, Transition};

/// arm64 with a granule of 2^`GRANULE` bytes: 12, 14 or 16.
///
/// `SLOTS` are the bytes of `MAIR_EL1`, 0 to 7, that the embedder has given to the memory types,
/// from [`memory_slots`]: unless it says otherwise 0 (`0xff`, write-back), 2 for the combining type
/// (`0x44`, Normal non-cacheable) and 1 for devices (`0x04`, Device-nGnRE; or `0x00`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Arm64<const GRANULE: u32, const SLOTS: u16 = { memory_slots(0, 2, 1) }>;

/// Base pages of 4 KiB.
pub type Arm4k = Arm64<12>;

/// Base pages of 16 KiB.
pub type Arm16k = Arm64<14>;

/// Base pages of 64 KiB.
pub type Arm64k = Arm64<16>;

const VALID: u64 = 1 << 0;
/// With [`VALID`]: a table, or a leaf of the last level.
const DEEP: u64 = 1 << 1;
/// AttrIndx, three bits.
const MEMORY_AT: u32 = 2;
const MEMORY: u64 = field(4, MEMORY_AT);
const USER_AT: u32 = 6;
const READ_ONLY_AT: u32 = 7;
const INNER_SHAREABLE: u64 = 0b11 << 8;
const ACCESSED_AT: u32 = 10;
const NOT_GLOBAL_AT: u32 = 11;
const WRITE_AT: u32 = 51;
const CONTIGUOUS: u64 = 1 << 52;
const KERNEL_NO_EXEC_AT: u32 = 53;
const USER_NO_EXEC_AT: u32 = 54;
const SAVED_DIRTY_AT: u32 = 55;
const SOFT_AT: u32 = 56;
const HIDDEN: u64 = 1 << 57;
const COW_AT: u32 = 58;

/// No CPU may write or execute.
const NO_RIGHTS: u64 = 1 << READ_ONLY_AT | 1 << KERNEL_NO_EXEC_AT | 1 << USER_NO_EXEC_AT;
/// The bits that vary in a hidden leaf, but for its address.
const COMMON: u64 = MEMORY
    | 1 << USER_AT
    | 1 << ACCESSED_AT
    | 1 << NOT_GLOBAL_AT
    | 1 << SAVED_DIRTY_AT
    | 1 << SOFT_AT
    | 1 << COW_AT;
/// The bits that vary in a leaf that the hardware sees, but for its address.
const VISIBLE: u64 = COMMON | NO_RIGHTS | 1 << WRITE_AT | CONTIGUOUS;

/// Tells a marker from a hidden leaf.
const MARKER: u64 = 1 << 1;
const PAYLOAD_AT: u32 = 8;

const fn shape(index_bits: u8, leaf: bool, contiguous: u8) -> LevelShape {
    LevelShape { index_bits, leaf, contiguous }
}

const SHAPES_4K: [LevelShape; 4] =
    [shape(9, true, 4), shape(9, true, 4), shape(9, true, 4), shape(9, false, 0)];
const SHAPES_16K: [LevelShape; 4] =
    [shape(11, true, 7), shape(11, true, 5), shape(11, false, 0), shape(1, false, 0)];
const SHAPES_64K: [LevelShape; 3] = [shape(13, true, 5), shape(13, true, 5), shape(6, false, 0)];

const RULES: Rules = Rules { resize_breaks: true, move_breaks: true, global_breaks: true };

impl<const GRANULE: u32, const SLOTS: u16> Arch for Arm64<GRANULE, SLOTS> {
    const NAME: &'static str = match GRANULE {
        12 => "arm64-4k",
        14 => "arm64-16k",
        16 => "arm64-64k",
        _ => panic!("arm64 has granules of 2^12, 2^14 and 2^16 bytes"),
    };
    const PAGE_SHIFT: u32 = GRANULE;
    const LEVELS: &'static [LevelShape] = match GRANULE {
        12 => &SHAPES_4K,
        14 => &SHAPES_16K,
        _ => &SHAPES_64K,
    };
    const USER_PAGES: u64 = 1 << (48 - GRANULE);
    const FRAMES: u64 = 1 << (48 - GRANULE);
    const ASID_BITS: u32 = 16;

    #[inline]
    fn table(frame: Pfn) -> u64 {
        debug_assert!(frame.get() < Self::FRAMES);
        frame.get() << GRANULE | DEEP | VALID
    }

    #[inline(always)]
    fn leaf(frame: Pfn, level: Level, attrs: Attrs) -> u64 {
        debug_assert!(level.index() <= Self::LEAF_MOST);
        debug_assert!(frame.get() < Self::FRAMES && frame.is_aligned(Self::order(level).pages()));
        let kind = if attrs.intersects(Attrs::RIGHTS) { kind(level) } else { HIDDEN };
        let memory = slot(SLOTS, attrs) << MEMORY_AT;
        frame.get() << GRANULE | INNER_SHAREABLE | kind | memory | common(attrs) | rights(attrs)
    }

    #[inline]
    fn step(level: Level) -> u64 {
        1 << Self::block_shift(level)
    }

    #[inline]
    fn marker(payload: u64) -> u64 {
        debug_assert!(payload >> 56 == 0);
        payload << PAYLOAD_AT | MARKER
    }

    // `always`: returning an `Entry` through memory costs several times what decoding it does.
    #[inline(always)]
    fn decode(word: u64, level: Level) -> Entry {
        if word & VALID == 0 {
            Self::decode_unseen(word, level)
        } else if !level.is_last() && word & DEEP != 0 {
            Self::decode_table(word)
        } else {
            Self::decode_leaf(word, level)
        }
    }

    #[inline]
    fn transition(old: u64, new: u64, level: Level, relaxed: bool) -> Transition {
        if old & VALID == 0 || old == new {
            return Transition::Nothing;
        }
        if new & VALID == 0 {
            return Transition::Flush;
        }
        let demand = RULES.between(Self::decode(old, level), Self::decode(new, level), relaxed);
        let regrouped = (old ^ new) & CONTIGUOUS != 0;
        if regrouped { demand.max(RULES.resized(relaxed)) } else { demand }
    }

    #[inline]
    fn is_folded(word: u64, level: Level) -> bool {
        word & (CONTIGUOUS | DEEP | VALID) == CONTIGUOUS | kind(level)
    }

    #[inline]
    fn fold(word: u64, level: Level) -> u64 {
        debug_assert!(word & (CONTIGUOUS | DEEP | VALID) == kind(level));
        debug_assert!(Self::fold_order(level).is_some());
        word | CONTIGUOUS
    }

    #[inline]
    fn unfold(word: u64, level: Level, _index: usize) -> u64 {
        debug_assert!(Self::is_folded(word, level));
        word & !CONTIGUOUS
    }

    #[inline]
    fn order(level: Level) -> Order {
        Order::new((level.index() as u32 * Self::INDEX_BITS) as u8)
    }
}

impl<const GRANULE: u32, const SLOTS: u16> Arm64<GRANULE, SLOTS> {
    /// A table is one granule of 8-byte words. Only the root may use fewer of them.
    const INDEX_BITS: u32 = GRANULE - 3;
    /// The highest level that may hold a leaf.
    const LEAF_MOST: usize = if GRANULE == 12 { 2 } else { 1 };
    const ADDR: u64 = field(47, GRANULE);
    const TYPES: u16 = types(SLOTS);

    /// The memory type of a leaf; both flags for a byte of `MAIR_EL1` that no type has.
    #[inline(always)]
    const fn memory_of(word: u64) -> Attrs {
        memory(Self::TYPES, (word & MEMORY) >> MEMORY_AT)
    }

    /// The base-two logarithm in bytes of one entry's block.
    #[inline]
    const fn block_shift(level: Level) -> u32 {
        GRANULE + level.index() as u32 * Self::INDEX_BITS
    }

    /// The address bits that a leaf of `level` may have set.
    #[inline]
    const fn block_addr(level: Level) -> u64 {
        Self::ADDR & u64::MAX << Self::block_shift(level)
    }

    #[inline]
    const fn frame(word: u64) -> Pfn {
        Pfn::new((word & Self::ADDR) >> GRANULE)
    }

    #[inline]
    fn decode_table(word: u64) -> Entry {
        if word & !(Self::ADDR | 1 << ACCESSED_AT) == DEEP | VALID {
            Entry::Table(Self::frame(word))
        } else {
            Entry::Malformed
        }
    }

    #[inline(always)]
    fn decode_leaf(word: u64, level: Level) -> Entry {
        let ours = word & !(VISIBLE | Self::block_addr(level)) == INNER_SHAREABLE | kind(level);
        let attrs = attrs_common(word) | Self::memory_of(word) | attrs_rights(word);
        // Rights that no attributes express: the kernel may execute pages that programs can reach,
        // or write pages that programs can only execute.
        let open = attrs.contains(Attrs::USER) && word >> KERNEL_NO_EXEC_AT & 1 == 0;
        let split = attrs.contains(Attrs::WRITE) && !attrs.contains(Attrs::READ);
        let strange = open || split || attrs.contains(Attrs::MEMORY);
        if !ours || strange || level.index() > Self::LEAF_MOST {
            return Entry::Malformed;
        }
        Entry::Leaf { frame: Self::frame(word), attrs }
    }

    /// Decodes a word that the hardware takes for absent.
    #[inline]
    fn decode_unseen(word: u64, level: Level) -> Entry {
        if word == 0 {
            return Entry::Absent;
        }
        if word & field(PAYLOAD_AT - 1, 0) == MARKER {
            return Entry::Marker(word >> PAYLOAD_AT);
        }
        let rest = word & !(COMMON | Self::block_addr(level));
        let attrs = attrs_common(word) | Self::memory_of(word) | take(word, USER_AT, Attrs::USER);
        let ours = rest == INNER_SHAREABLE | HIDDEN | NO_RIGHTS && !attrs.contains(Attrs::MEMORY);
        if !ours || level.index() > Self::LEAF_MOST {
            return Entry::Malformed;
        }
        Entry::Leaf { frame: Self::frame(word), attrs }
    }
}

/// The two lowest bits of a leaf that the hardware sees.
#[inline]
const fn kind(level: Level) -> u64 {
    if level.is_last() { DEEP | VALID } else { VALID }
}

/// All but rights, dirty state and memory type.
#[inline]
fn common(attrs: Attrs) -> u64 {
    put(attrs, Attrs::YOUNG, ACCESSED_AT)
        | (!attrs.contains(Attrs::GLOBAL) as u64) << NOT_GLOBAL_AT
        | put(attrs, Attrs::SOFT, SOFT_AT)
        | put(attrs, Attrs::COW, COW_AT)
}

/// Rights and dirty state.
#[inline]
fn rights(attrs: Attrs) -> u64 {
    let user = attrs.contains(Attrs::USER);
    let exec = attrs.contains(Attrs::EXEC);
    let write = attrs.contains(Attrs::WRITE);
    let dirty = attrs.contains(Attrs::DIRTY);
    let exec_only = attrs.intersection(Attrs::RIGHTS) == Attrs::EXEC;
    ((user && !exec_only) as u64) << USER_AT
        | (!(write && dirty) as u64) << READ_ONLY_AT
        | (write as u64) << WRITE_AT
        | ((user || !exec) as u64) << KERNEL_NO_EXEC_AT
        | (!(user && exec) as u64) << USER_NO_EXEC_AT
        | ((dirty && !write) as u64) << SAVED_DIRTY_AT
}

#[inline]
fn attrs_common(word: u64) -> Attrs {
    take(word, ACCESSED_AT, Attrs::YOUNG)
        | take(!word, NOT_GLOBAL_AT, Attrs::GLOBAL)
        | take(word, SAVED_DIRTY_AT, Attrs::DIRTY)
        | take(word, SOFT_AT, Attrs::SOFT)
        | take(word, COW_AT, Attrs::COW)
}

/// Rights and dirty state of a leaf that the hardware sees.
#[inline]
fn attrs_rights(word: u64) -> Attrs {
    let stored = take(!word, READ_ONLY_AT, Attrs::DIRTY);
    let write = take(word | !word << (WRITE_AT - READ_ONLY_AT), WRITE_AT, Attrs::WRITE);
    let reach = if word >> USER_AT & 1 == 1 {
        Attrs::USER | Attrs::READ | take(!word, USER_NO_EXEC_AT, Attrs::EXEC)
    } else if word >> USER_NO_EXEC_AT & 1 == 0 {
        Attrs::USER | Attrs::EXEC
    } else {
        Attrs::READ | take(!word, KERNEL_NO_EXEC_AT, Attrs::EXEC)
    };
    stored | write | reach
}
