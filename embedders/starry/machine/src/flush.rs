//! Flushes of arm64: they are broadcast, so a CPU obeys them whatever it does.
//!
//! The system gives each space a tag when its first owner appears, and each CPU drops what it holds
//! under a tag when it installs a root. Translations of a space stay in a CPU when the CPU leaves
//! it, so each flush goes to all CPUs.
#![allow(unsafe_code)]

use core::arch::asm;

use quire::hw::{Flush, Pieces};
use quire::units::FrameSpan;

use crate::board::PAGE_SHIFT;

/// More pieces than this cost more than losing the whole space.
const PIECES_MOST: u64 = 64;

/// CTR_EL0: the smallest lines of instruction and data caches, as log2 of words of 4 bytes.
const INSTRUCTION_LINE_AT: u32 = 0;
const DATA_LINE_AT: u32 = 16;

/// Orders stores to tables before the walks of all CPUs, this one's included.
#[inline(always)]
pub(crate) fn publish() {
    // SAFETY: barriers.
    unsafe { asm!("dsb ishst", "isb", options(nostack, preserves_flags)) };
}

/// Drops translations on all CPUs.
pub(crate) fn flush(flush: &Flush<'_>) {
    let tag = u64::from(flush.asid.0) << 48;
    // SAFETY: a barrier: the stores to tables come before the invalidation.
    unsafe { asm!("dsb ishst", options(nostack, preserves_flags)) };
    match flush.pages {
        Some(pieces) if pieces.count() <= PIECES_MOST => flush_pieces(tag, pieces, flush.tables),
        // SAFETY: losing translations changes nothing but time.
        _ => unsafe { asm!("tlbi aside1is, {}", in(reg) tag, options(nostack)) },
    }
    // SAFETY: barriers.
    unsafe { asm!("dsb ish", "isb", options(nostack, preserves_flags)) };
}

fn flush_pieces(tag: u64, pieces: Pieces, tables: bool) {
    for start in pieces.starts() {
        let operand = tag | start.get();
        // SAFETY: losing translations changes nothing but time.
        unsafe {
            match tables {
                true => asm!("tlbi vae1is, {}", in(reg) operand, options(nostack)),
                false => asm!("tlbi vale1is, {}", in(reg) operand, options(nostack)),
            }
        }
    }
}

/// Makes what was written to `frames`, which are visible from `direct` on, visible to instruction
/// fetches of all CPUs.
pub(crate) fn publish_code(direct: usize, frames: FrameSpan) {
    let kind: u64;
    // SAFETY: the register can always be read.
    unsafe { asm!("mrs {}, ctr_el0", out(reg) kind, options(nomem, nostack)) };
    let start = direct + (frames.start.get() << PAGE_SHIFT) as usize;
    let bytes = (frames.count << PAGE_SHIFT) as usize;
    let lines = |at: u32| (start..start + bytes).step_by(4_usize << (kind >> at & 0xf));
    for line in lines(DATA_LINE_AT) {
        // SAFETY: the frames are visible there; cleaning a line changes no contents.
        unsafe { asm!("dc cvau, {}", in(reg) line, options(nostack, preserves_flags)) };
    }
    // SAFETY: a barrier.
    unsafe { asm!("dsb ish", options(nostack, preserves_flags)) };
    for line in lines(INSTRUCTION_LINE_AT) {
        // SAFETY: losing cached instructions changes nothing but time.
        unsafe { asm!("ic ivau, {}", in(reg) line, options(nostack, preserves_flags)) };
    }
    // SAFETY: barriers.
    unsafe { asm!("dsb ish", "isb", options(nostack, preserves_flags)) };
}
