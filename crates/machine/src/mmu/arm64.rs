//! arm64. Source: Arm ARM (DDI 0487) D8.3 "Translation table descriptor formats", D8.4 "Memory
//! access control", D8.5 "Hardware updates to the translation tables", D8.7.1 "The Contiguous
//! bit". VMSAv8-64, stage 1, 48-bit output addresses.

use quire_units::{MemoryType, Order, Pfn, Prot};

use super::{Flaw, Granule, Leaf, Meaning, Table};

const VALID: u64 = 1 << 0;
/// Table above the last level, page at the last.
const BIT_1: u64 = 1 << 1;
const MEMORY: u64 = 0b1111 << 2; // AttrIndx and NS
const AP_EL0: u64 = 1 << 6;
const AP_READ_ONLY: u64 = 1 << 7;
const SHAREABILITY: u64 = 3 << 8;
const SHAREABILITY_RESERVED: u64 = 1 << 8;
const ACCESS_FLAG: u64 = 1 << 10;
const NOT_GLOBAL: u64 = 1 << 11;
const DIRTY_BIT_MODIFIER: u64 = 1 << 51;
const CONTIGUOUS: u64 = 1 << 52;
const GUARDED: u64 = 1 << 50;
const PXN: u64 = 1 << 53;
const UXN: u64 = 1 << 54;
const UXN_TABLE: u64 = 1 << 60;
const AP_TABLE_NO_EL0: u64 = 1 << 61;
const AP_TABLE_NO_WRITE: u64 = 1 << 62;
/// Bits 47:12; those below the block or page are reserved.
const ADDRESS: u64 = 0x0000_ffff_ffff_f000;
/// RES0 without FEAT_LPA and FEAT_LPA2. Bit 50 is GP in a leaf.
const LEAF_RESERVED: u64 = 3 << 48;
const TABLE_RESERVED: u64 = 7 << 48;

pub(super) fn decode(word: u64, level: u8, granule: Granule) -> Meaning {
    let points_down = word & BIT_1 != 0;
    if word & VALID == 0 {
        return Meaning::Absent;
    }
    match (level, points_down) {
        (0, false) => Meaning::Malformed(Flaw::NoLeafHere),
        (0, true) | (_, false) => leaf(word, level, granule),
        (_, true) => table(word, granule),
    }
}

fn table(word: u64, granule: Granule) -> Meaning {
    let below = (1 << granule.page_shift()) - 1;
    let reserved = word & (TABLE_RESERVED | ADDRESS & below);
    if reserved != 0 {
        return Meaning::Malformed(Flaw::Reserved(reserved));
    }
    let mut limits = Prot::all();
    limits.set(Prot::EXEC, word & UXN_TABLE == 0);
    if word & AP_TABLE_NO_WRITE != 0 {
        limits.remove(Prot::WRITE);
    }
    if word & AP_TABLE_NO_EL0 != 0 {
        limits.remove(Prot::RW);
    }
    Meaning::Table(Table {
        frame: Pfn::new((word & ADDRESS) >> granule.page_shift()),
        limits,
        accessed: true,
    })
}

fn leaf(word: u64, level: u8, granule: Granule) -> Meaning {
    let order = (granule.page_shift() - 3) * level as u32;
    let Some(contiguous) = contiguous_bits(level, granule) else {
        return Meaning::Malformed(Flaw::NoLeafHere);
    };
    let stray = word & ADDRESS & ((1 << (granule.page_shift() + order)) - 1);
    if stray != 0 {
        return Meaning::Malformed(Flaw::Misaligned(stray));
    }
    if word & LEAF_RESERVED != 0 {
        return Meaning::Malformed(Flaw::Reserved(word & LEAF_RESERVED));
    }
    if word & SHAREABILITY == SHAREABILITY_RESERVED {
        return Meaning::Malformed(Flaw::Encoding);
    }
    let block = order + if word & CONTIGUOUS != 0 { contiguous } else { 0 };
    Meaning::Leaf(Leaf {
        frame: Pfn::new((word & ADDRESS) >> granule.page_shift()),
        order: Order::new(order as u8),
        block: Order::new(block as u8),
        prot: rights(word),
        global: word & NOT_GLOBAL == 0,
        memory: (word & (MEMORY | SHAREABILITY)) as u16,
        rest: (word & AP_EL0 | (word & (GUARDED | DIRTY_BIT_MODIFIER | PXN | UXN)) >> 50) as u16,
        accessed: word & ACCESS_FLAG != 0,
        dirty: word & AP_READ_ONLY == 0,
    })
}

/// How many entries, as a logarithm, the contiguous bit joins; `None` where there are no leaves.
/// Blocks at still higher levels need 52-bit addresses.
fn contiguous_bits(level: u8, granule: Granule) -> Option<u32> {
    match (granule, level) {
        (Granule::K4, 0..=2) => Some(4),
        (Granule::K16, 0) => Some(7),
        (Granule::K16, 1) => Some(5),
        (Granule::K64, 0 | 1) => Some(5),
        _ => None,
    }
}

pub(super) fn contiguous_entries(level: u8, granule: Granule) -> usize {
    1 << contiguous_bits(level, granule).unwrap_or(0)
}

/// The rights of EL0. A leaf that is read-only for now but carries the dirty bit modifier counts as
/// writable: the walker clears the read-only bit at the first store, where it updates dirty state.
fn rights(word: u64) -> Prot {
    let mut prot = Prot::empty();
    // EL0 may execute pages that it may not read.
    prot.set(Prot::EXEC, word & UXN == 0);
    if word & AP_EL0 != 0 {
        prot.insert(Prot::READ);
        let writable = word & AP_READ_ONLY == 0 || word & DIRTY_BIT_MODIFIER != 0;
        prot.set(Prot::WRITE, writable);
    }
    prot
}

/// AttrIndx names a byte of `MAIR_EL1`, which is `0xff`, `0x04`, `0x44`, and no more.
pub(super) fn memory_type(memory: u16) -> Option<MemoryType> {
    match memory >> 2 & 7 {
        0 => Some(MemoryType::Usual),
        1 => Some(MemoryType::Device),
        2 => Some(MemoryType::Combining),
        _ => None,
    }
}

pub(super) fn touched(word: u64, store: bool) -> u64 {
    let word = word | ACCESS_FLAG;
    if store && word & DIRTY_BIT_MODIFIER != 0 { word & !AP_READ_ONLY } else { word }
}
