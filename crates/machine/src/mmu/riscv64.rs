//! riscv64. Source: RISC-V Privileged Architecture, "Sv39", "Sv48", "Sv57" (§ Virtual Address
//! Translation Process), Svnapot, Svpbmt, Svade and Svadu.

use quire_units::{MemoryType, Order, Pfn, Prot};

use super::{Flaw, Leaf, Meaning, Table};

const VALID: u64 = 1 << 0;
const READ: u64 = 1 << 1;
const WRITE: u64 = 1 << 2;
const EXECUTE: u64 = 1 << 3;
const USER: u64 = 1 << 4;
const GLOBAL: u64 = 1 << 5;
const ACCESSED: u64 = 1 << 6;
const DIRTY: u64 = 1 << 7;
const PPN: u64 = ((1 << 44) - 1) << 10;
const RESERVED: u64 = 0x7f << 54;
const PBMT: u64 = 3 << 61;
const NAPOT: u64 = 1 << 63;
/// The only contiguous block: 64 KiB, encoded by the low PPN bits `1000`.
const NAPOT_ORDER: u8 = 4;
const NAPOT_MASK: u64 = 0xf;
const NAPOT_CODE: u64 = 0x8;

pub(super) fn decode(word: u64, level: u8, index: usize) -> Meaning {
    if word & VALID == 0 {
        return Meaning::Absent;
    }
    if word & RESERVED != 0 {
        return Meaning::Malformed(Flaw::Reserved(word & RESERVED));
    }
    match word & (READ | WRITE | EXECUTE) {
        0 => table(word, level),
        rights if rights & WRITE != 0 && rights & READ == 0 => {
            Meaning::Malformed(Flaw::WriteWithoutRead)
        }
        _ => leaf(word, level, index),
    }
}

fn table(word: u64, level: u8) -> Meaning {
    if level == 0 {
        return Meaning::Malformed(Flaw::NoTableHere);
    }
    let reserved = word & (USER | ACCESSED | DIRTY | PBMT | NAPOT);
    if reserved != 0 {
        return Meaning::Malformed(Flaw::Reserved(reserved));
    }
    let frame = Pfn::new((word & PPN) >> 10);
    Meaning::Table(Table { frame, limits: Prot::all(), accessed: true })
}

fn leaf(word: u64, level: u8, index: usize) -> Meaning {
    if word & PBMT == PBMT {
        return Meaning::Malformed(Flaw::Encoding);
    }
    let ppn = (word & PPN) >> 10;
    let order = 9 * level;
    let stray = ppn & ((1 << order) - 1);
    if stray != 0 {
        return Meaning::Malformed(Flaw::Misaligned(stray << 12));
    }
    let (frame, block) = match (word & NAPOT != 0, level) {
        (false, _) => (ppn, order),
        (true, 0) if ppn & NAPOT_MASK == NAPOT_CODE => {
            ((ppn & !NAPOT_MASK) | (index as u64 & NAPOT_MASK), NAPOT_ORDER)
        }
        (true, _) => return Meaning::Malformed(Flaw::BlockSize),
    };
    Meaning::Leaf(Leaf {
        frame: Pfn::new(frame),
        order: Order::new(order),
        block: Order::new(block),
        prot: rights(word),
        global: word & GLOBAL != 0,
        memory: ((word & PBMT) >> 61) as u16,
        rest: (word & (READ | WRITE | EXECUTE | USER)) as u16,
        accessed: word & ACCESSED != 0,
        dirty: word & DIRTY != 0,
    })
}

/// Svpbmt: PMA, NC, IO; 3 is reserved.
pub(super) fn memory_type(memory: u16) -> Option<MemoryType> {
    match memory {
        0 => Some(MemoryType::Usual),
        1 => Some(MemoryType::Combining),
        2 => Some(MemoryType::Device),
        _ => None,
    }
}

pub(super) fn contiguous_entries(level: u8) -> usize {
    if level == 0 { 1 << NAPOT_ORDER } else { 1 }
}

/// The rights of user mode.
fn rights(word: u64) -> Prot {
    if word & USER == 0 {
        return Prot::empty();
    }
    let mut prot = Prot::empty();
    prot.set(Prot::READ, word & READ != 0);
    prot.set(Prot::WRITE, word & WRITE != 0);
    prot.set(Prot::EXEC, word & EXECUTE != 0);
    prot
}

pub(super) fn touched(word: u64, store: bool) -> u64 {
    word | ACCESSED | if store { DIRTY } else { 0 }
}
