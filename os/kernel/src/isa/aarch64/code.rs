//! Caches of instructions: they do not see stores by themselves.
//!
//! Source: Arm ARM (DDI 0487), "Synchronization and coherency issues between data and instruction
//! accesses", CTR_EL0.

use core::arch::asm;

use quire::arch::Arch;
use quire::units::FrameSpan;

use super::{DIRECT, Format, read_register};

/// CTR_EL0: the smallest lines of instruction and data caches, as log2 of words of 4 bytes.
const INSTRUCTION_LINE_AT: u32 = 0;
const DATA_LINE_AT: u32 = 16;
/// CTR_EL0.L1Ip: physically indexed and tagged, so that any address of a line names all of it.
const POLICY_AT: u32 = 14;
const POLICY_PHYSICAL: u64 = 3;
/// CTR_EL0.IDC: instruction fetches see what data caches hold.
const FETCHES_SEE_DATA: u64 = 1 << 28;
/// CTR_EL0.DIC: instruction caches drop what is stored to.
const FETCHES_SEE_STORES: u64 = 1 << 29;

/// More bytes than this cost more than losing all instructions.
const BYTES_MOST: u64 = 1 << 20;

/// Makes what was written to `frames` visible to instruction fetches of all CPUs.
pub fn publish_code(frames: FrameSpan) {
    let kind = read_register!("ctr_el0");
    let start = DIRECT + frames.start.addr(Format::PAGE_SHIFT).get();
    let bytes = frames.count << Format::PAGE_SHIFT;
    let lines = |at: u32| {
        let line = 4_u64 << (kind >> at & 0xf);
        (start..start + bytes).step_by(line as usize)
    };
    if kind & FETCHES_SEE_DATA == 0 {
        for line in lines(DATA_LINE_AT) {
            // SAFETY: the direct map shows the frame; cleaning a line changes no contents.
            unsafe { asm!("dc cvau, {}", in(reg) line, options(nostack, preserves_flags)) };
        }
    }
    barrier();
    if kind & FETCHES_SEE_STORES != 0 {
        return;
    }
    let by_line = kind >> POLICY_AT & 3 == POLICY_PHYSICAL && bytes <= BYTES_MOST;
    if by_line {
        for line in lines(INSTRUCTION_LINE_AT) {
            // SAFETY: losing cached instructions changes nothing but time.
            unsafe { asm!("ic ivau, {}", in(reg) line, options(nostack, preserves_flags)) };
        }
    } else {
        // SAFETY: as above.
        unsafe { asm!("ic ialluis", options(nostack, preserves_flags)) };
    }
    barrier();
}

/// Waits until all before it is done on all CPUs, and drops what this CPU has fetched ahead. Others
/// have fetched nothing from the frames: no translation of theirs led there.
fn barrier() {
    // SAFETY: barriers.
    unsafe { asm!("dsb ish", "isb", options(nostack, preserves_flags)) };
}
