//! x86-64. Source: Intel SDM volume 3A, §4.5 "4-level paging and 5-level paging", tables 4-14 to
//! 4-20; §4.6 access rights; §4.8 accessed and dirty flags. AMD APM volume 2, §5.3 agrees.

use quire_units::{MemoryType, Order, Pfn, Prot};

use super::{Flaw, Leaf, Meaning, Table};

const PRESENT: u64 = 1 << 0;
const WRITE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const MEMORY_LOW: u64 = 3 << 3; // PWT and PCD
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
/// PS above the last level; PAT at the last.
const BIT_7: u64 = 1 << 7;
const GLOBAL: u64 = 1 << 8;
const PAT_OF_BLOCK: u64 = 1 << 12;
const NO_EXECUTE: u64 = 1 << 63;
/// Bits 51:12.
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// MAXPHYADDR, as of current servers: address bits above are reserved.
const PHYS_BITS: u32 = 48;
const TOO_HIGH: u64 = ADDRESS & !((1 << PHYS_BITS) - 1);

pub(super) fn decode(word: u64, level: u8) -> Meaning {
    if word & PRESENT == 0 {
        return Meaning::Absent;
    }
    if word & TOO_HIGH != 0 {
        return Meaning::Malformed(Flaw::Reserved(word & TOO_HIGH));
    }
    match (level, word & BIT_7 != 0) {
        (0, pat) => Meaning::Leaf(leaf(word, word & ADDRESS, 0, pat)),
        (1 | 2, true) => {
            let below = (1 << (12 + 9 * level as u32)) - 1;
            let stray = word & ADDRESS & below & !PAT_OF_BLOCK;
            if stray != 0 {
                return Meaning::Malformed(Flaw::Misaligned(stray));
            }
            let pat = word & PAT_OF_BLOCK != 0;
            Meaning::Leaf(leaf(word, word & ADDRESS & !below, 9 * level, pat))
        }
        // Bit 7 is reserved in a PML4E and a PML5E.
        (_, true) => Meaning::Malformed(Flaw::NoLeafHere),
        (_, false) => Meaning::Table(Table {
            frame: Pfn::new((word & ADDRESS) >> 12),
            limits: rights(word),
            accessed: word & ACCESSED != 0,
        }),
    }
}

fn leaf(word: u64, address: u64, order: u8, pat: bool) -> Leaf {
    Leaf {
        frame: Pfn::new(address >> 12),
        order: Order::new(order),
        block: Order::new(order),
        prot: rights(word),
        global: word & GLOBAL != 0,
        memory: (word & MEMORY_LOW) as u16 | pat as u16,
        rest: 0,
        accessed: word & ACCESSED != 0,
        dirty: word & DIRTY != 0,
    }
}

/// The rights of programs as far as this entry decides; a walk combines entries of all levels.
fn rights(word: u64) -> Prot {
    if word & USER == 0 {
        return Prot::empty();
    }
    let mut prot = Prot::READ;
    prot.set(Prot::WRITE, word & WRITE != 0);
    prot.set(Prot::EXEC, word & NO_EXECUTE == 0);
    prot
}

/// §4.9.2: PAT, PCD and PWT are the number of an entry of the PAT: WB, WC, UC-, UC, and the same
/// again.
pub(super) fn memory_type(memory: u16) -> Option<MemoryType> {
    match memory >> 3 & 3 {
        0 => Some(MemoryType::Usual),
        1 => Some(MemoryType::Combining),
        3 => Some(MemoryType::Device),
        _ => None,
    }
}

pub(super) fn touched(word: u64, store: bool) -> u64 {
    word | ACCESSED | if store { DIRTY } else { 0 }
}
