//! Frames of x86-64.
//!
//! ```text
//!   program's stack pointer, or the end of the alternative stack
//!         │ 128 bytes that belong to the program (red zone; not on the alternative stack)
//!         ├──────────────────────────────────────────────┐
//!         │ 4 bytes, FP_XSTATE_MAGIC2, if XSAVE          │
//!         │ vector state                                 │ aligned to 64 bytes
//!         ├──────────────────────────────────────────────┤
//!   +440  │ padding                                      │
//!   +312  │ siginfo_t                                    │ ◄── rsi
//!   +304  │ ucontext: blocked signals                    │
//!   +48   │   registers (struct sigcontext)              │
//!   +24   │   alternative stack                          │
//!   +8    │   flags, link                                │ ◄── rdx
//!   +0    │ return address: the restorer                 │ ◄── rsp, 8 below a multiple of 16
//!         └──────────────────────────────────────────────┘
//! ```
//!
//! The handler begins with clean vector state, see [`clear_vectors`].

use super::super::bytes::{get, get_u32, get_u64, put, put_u32, put_u64};
use super::super::{AltStack, Flags, Set};
use super::{Delivery, Frame, Return, zeros};
use crate::{Errno, Result};

/// Bytes of `struct rt_sigframe`, which [`parse`] needs, from 8 bytes below the stack pointer of
/// `rt_sigreturn`, as the handler's return took these off the stack.
pub const FRAME_BYTES: usize = 440;
/// The smallest alternative stack (`MINSIGSTKSZ`).
pub const STACK_BYTES_MIN: u64 = 2048;
/// Bytes of an FXSAVE area, and of the same part of an XSAVE area.
pub const LEGACY_BYTES: usize = 512;
/// Bytes of the smallest XSAVE area: with its header after the legacy part.
pub const XSAVE_BYTES_MIN: usize = LEGACY_BYTES + 64;

/// Bytes below the stack pointer that the ABI leaves to a function without asking (psABI 3.2.2).
const RED_ZONE_BYTES: u64 = 128;
/// Where the parts are, in bytes from the frame's start.
const UC: usize = 8;
const UC_STACK: usize = UC + 16;
const UC_REGISTERS: usize = UC + 40;
const UC_MASK: usize = UC + 296;
const INFO: usize = 312;
/// Where the parts of `struct sigcontext` are, in bytes from its start: 18 registers come first.
const SELECTORS: usize = 144;
const ERROR: usize = 152;
const TRAP: usize = 160;
const OLD_MASK: usize = 168;
const CR2: usize = 176;
const VECTORS_AT: usize = 184;
/// The room that FXSAVE leaves to software, and the words that Linux puts there.
const SOFTWARE: usize = 464;
const MAGIC1: u32 = 0x4650_5853;
const MAGIC2: u32 = 0x4650_5845;
const MAGIC2_BYTES: usize = 4;
/// `UC_FP_XSTATE`.
const UC_XSAVE: u64 = 1;
/// `UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS`: the stack's selector is there, and meant.
const UC_SS: u64 = 6;
/// The selectors of code and stack that programs see on Linux. They are never loaded from here.
const USER_CS: u16 = 0x33;
const USER_SS: u16 = 0x2b;
/// MXCSR and its place. To load a bit above these is a fault (SDM 1, 10.2.3).
const MXCSR: usize = 24;
const MXCSR_USER: u32 = 0xffff;
const MXCSR_START: u32 = 0x1f80;
/// The control word of the x87 and what it is at first: place 0.
const FCW_START: u16 = 0x37f;
/// Bits of `XSTATE_BV`: x87 and SSE.
const FEATURES_LEGACY: u64 = 3;
/// The first address that programs do not have. To return above it may fault in the kernel.
const USER_END: u64 = 1 << 47;

/// Bits of RFLAGS that a program may set: CF, PF, AF, ZF, SF, TF, DF, OF, RF, AC.
const RFLAGS_USER: u64 = 0x5_0dd5;
/// Bits that are always set in a program: interrupts are on, and bit 1.
const RFLAGS_FIXED: u64 = 0x202;
/// Bits with which no handler begins: TF, DF, RF.
const RFLAGS_CLEARED: u64 = 0x1_0500;

/// A program's registers, but for its vector state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the manual's names")]
pub struct Registers {
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r11: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub rdx: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rsp: u64,
    pub rip: u64,
    pub rflags: u64,
    /// The error code of the last fault. It goes to the program only.
    pub error: u64,
    /// The vector of the last fault. It goes to the program only.
    pub trap: u64,
    /// The address of the last page fault. It goes to the program only.
    pub cr2: u64,
}

impl Registers {
    /// Those that are restored, as they lie in the frame.
    const fn words(&self) -> [u64; 18] {
        [
            self.r8,
            self.r9,
            self.r10,
            self.r11,
            self.r12,
            self.r13,
            self.r14,
            self.r15,
            self.rdi,
            self.rsi,
            self.rbp,
            self.rbx,
            self.rdx,
            self.rax,
            self.rcx,
            self.rsp,
            self.rip,
            self.rflags,
        ]
    }

    const fn of_words(words: [u64; 18]) -> Self {
        let [r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, ..] = words;
        let [.., rsp, rip, rflags] = words;
        let (error, trap, cr2) = (0, 0, 0);
        Self {
            r8,
            r9,
            r10,
            r11,
            r12,
            r13,
            r14,
            r15,
            rdi,
            rsi,
            rbp,
            rbx,
            rdx,
            rax,
            rcx,
            rsp,
            rip,
            rflags,
            error,
            trap,
            cr2,
        }
    }
}

/// A program's vector state.
#[derive(Clone, Copy, Debug)]
pub struct Vectors<'a> {
    /// The area that FXSAVE wrote ([`LEGACY_BYTES`]), or XSAVE in its standard form.
    pub area: &'a [u8],
    /// Which parts XSAVE writes (XCR0). Any bytes must be fit to be loaded into these.
    pub features: u64,
}

impl Vectors<'_> {
    /// How many bytes the frame has for them.
    fn frame_bytes(&self) -> Result<usize> {
        match self.area.len() {
            LEGACY_BYTES => Ok(LEGACY_BYTES),
            XSAVE_BYTES_MIN.. => Ok(self.area.len() + MAGIC2_BYTES),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Writes them with the words that identify them.
    fn encode(&self, out: &mut [u8]) {
        put(out, 0, self.area);
        out[SOFTWARE..LEGACY_BYTES].fill(0);
        if self.area.len() > LEGACY_BYTES {
            let bytes = self.area.len() as u32;
            put_u32(out, SOFTWARE, MAGIC1);
            put_u32(out, SOFTWARE + 4, bytes + MAGIC2_BYTES as u32);
            put_u64(out, SOFTWARE + 8, self.features);
            put_u32(out, SOFTWARE + 16, bytes);
            put_u32(out, self.area.len(), MAGIC2);
        }
    }
}

/// How many bytes a handler's frame needs at most, when vector state has `area_bytes`:
/// `AT_MINSIGSTKSZ`.
pub const fn stack_bytes(area_bytes: usize) -> u64 {
    let padding = 63 + 15 + 8;
    ((FRAME_BYTES + area_bytes + MAGIC2_BYTES + padding) as u64).next_multiple_of(16)
}

/// The frame for a signal.
///
/// # Errors
/// [`Errno::EFAULT`] when it does not fit the stack, when the program gave no restorer, or its
/// handler is at no address of a program. [`Errno::EINVAL`] when the action has no handler, or the
/// vector state has a size that it cannot have. [`Errno::ENOMEM`].
pub fn build(
    registers: &Registers,
    vectors: &Vectors<'_>,
    delivery: &Delivery<'_>,
) -> Result<Frame<Registers>> {
    let handler = delivery.handler()?;
    let has_restorer = delivery.action.flags.contains(Flags::RESTORER);
    if handler >= USER_END || !has_restorer {
        return Err(Errno::EFAULT);
    }
    let vectors_bytes = vectors.frame_bytes()?;
    let (address, vectors_at) = place(registers.rsp, vectors_bytes as u64, delivery)?;

    let vectors_start = (vectors_at - address) as usize;
    let mut bytes = zeros(vectors_start + vectors_bytes)?;
    put_u64(&mut bytes, 0, delivery.action.restorer);
    let xsave = if vectors_bytes > LEGACY_BYTES { UC_XSAVE } else { 0 };
    put_u64(&mut bytes, UC, UC_SS | xsave);
    put(&mut bytes, UC_STACK, &delivery.alt_stack.encode());
    encode(registers, vectors_at, delivery.blocked, &mut bytes[UC_REGISTERS..UC_MASK]);
    put_u64(&mut bytes, UC_MASK, delivery.blocked.0);
    put(&mut bytes, INFO, &delivery.info.encode());
    vectors.encode(&mut bytes[vectors_start..]);

    let registers = Registers {
        rdi: u64::from(delivery.info.signal.number()),
        rsi: address + INFO as u64,
        rdx: address + UC as u64,
        rax: 0,
        rip: handler,
        rsp: address,
        rflags: registers.rflags & RFLAGS_USER & !RFLAGS_CLEARED | RFLAGS_FIXED,
        ..*registers
    };
    Ok(Frame { address, bytes, registers })
}

/// Where the frame and the vector state in it begin.
fn place(rsp: u64, vectors_bytes: u64, delivery: &Delivery<'_>) -> Result<(u64, u64)> {
    let top = match delivery.switches_stack(rsp) {
        true => Some(delivery.alt_stack.end()),
        false => rsp.checked_sub(RED_ZONE_BYTES),
    };
    let below = |top: Option<u64>, bytes: u64| top.and_then(|top| top.checked_sub(bytes));
    let vectors_at = below(top, vectors_bytes).map(|at| at & !63);
    let frame = below(vectors_at, FRAME_BYTES as u64).map(|at| at & !15);
    let (Some(address), Some(vectors_at)) = (below(frame, 8), vectors_at) else {
        return Err(Errno::EFAULT);
    };
    delivery.check_fits(rsp, address)?;
    Ok((address, vectors_at))
}

/// Writes `struct sigcontext`.
fn encode(registers: &Registers, vectors_at: u64, blocked: Set, out: &mut [u8]) {
    for (index, word) in registers.words().into_iter().enumerate() {
        put_u64(out, 8 * index, word);
    }
    put(out, SELECTORS, &USER_CS.to_le_bytes());
    put(out, SELECTORS + 6, &USER_SS.to_le_bytes());
    put_u64(out, ERROR, registers.error);
    put_u64(out, TRAP, registers.trap);
    put_u64(out, OLD_MASK, blocked.0);
    put_u64(out, CR2, registers.cr2);
    put_u64(out, VECTORS_AT, vectors_at);
}

/// Reads a frame and the address of its vector state: 0 when there is none, and the program goes on
/// with [clean](clear_vectors) vectors.
///
/// Selectors are not taken from the frame; of the flags only those that are a program's own.
///
/// # Errors
/// [`Errno::EFAULT`] when it would go on where no program is.
pub fn parse(bytes: &[u8; FRAME_BYTES]) -> Result<(Return<Registers>, u64)> {
    let words = core::array::from_fn(|index| get_u64(bytes, UC_REGISTERS + 8 * index));
    let mut registers = Registers::of_words(words);
    if registers.rip >= USER_END {
        return Err(Errno::EFAULT);
    }
    registers.rflags = registers.rflags & RFLAGS_USER | RFLAGS_FIXED;
    let blocked = Set(get_u64(bytes, UC_MASK)).blockable();
    let alt_stack = AltStack::decode(&get(bytes, UC_STACK));
    let vectors_at = get_u64(bytes, UC_REGISTERS + VECTORS_AT);
    Ok((Return { registers, blocked, alt_stack }, vectors_at))
}

/// How many bytes of vector state a frame has, by their first [`LEGACY_BYTES`], when the kernel's
/// own area has `area_bytes`. A larger state was not built here: only its legacy part counts.
pub fn saved_bytes(legacy: &[u8; LEGACY_BYTES], area_bytes: usize) -> usize {
    let bytes = get_u32(legacy, SOFTWARE + 16) as usize;
    let extended = get_u32(legacy, SOFTWARE + 4) as usize;
    let is_whole = bytes <= area_bytes && extended == bytes + MAGIC2_BYTES;
    if get_u32(legacy, SOFTWARE) == MAGIC1 && bytes >= XSAVE_BYTES_MIN && is_whole {
        return extended;
    }
    LEGACY_BYTES
}

/// Makes `area` (of the size that the kernel always has) from `saved`, the
/// [`saved_bytes`] of a frame, so that FXRSTOR or XRSTOR of it cannot fault. `features` is XCR0.
///
/// # Errors
/// [`Errno::EINVAL`] when `saved` or `area` has a size that it cannot have.
pub fn restore_vectors(saved: &[u8], features: u64, area: &mut [u8]) -> Result<()> {
    if saved.len() < LEGACY_BYTES || area.len() < LEGACY_BYTES {
        return Err(Errno::EINVAL);
    }
    area.fill(0);
    put(area, 0, &saved[..SOFTWARE]);
    let mxcsr = get_u32(area, MXCSR) & MXCSR_USER;
    put_u32(area, MXCSR, mxcsr);
    if area.len() < XSAVE_BYTES_MIN {
        return Ok(());
    }
    let bytes = saved.len().saturating_sub(MAGIC2_BYTES).min(area.len());
    let has_all = bytes >= XSAVE_BYTES_MIN && get_u32(saved, saved.len() - 4) == MAGIC2;
    let mut present = FEATURES_LEGACY;
    if has_all {
        present = get_u64(saved, LEGACY_BYTES);
        put(area, XSAVE_BYTES_MIN, &saved[XSAVE_BYTES_MIN..bytes]);
    }
    // The rest of the header stays zero: to load any other is a fault (SDM 1, 13.8.1).
    put_u64(area, LEGACY_BYTES, present & features);
    Ok(())
}

/// Makes `area` the vector state with which programs and handlers begin.
///
/// # Errors
/// [`Errno::EINVAL`] when `area` has a size that it cannot have.
pub fn clear_vectors(area: &mut [u8]) -> Result<()> {
    if area.len() < LEGACY_BYTES {
        return Err(Errno::EINVAL);
    }
    area.fill(0);
    put(area, 0, &FCW_START.to_le_bytes());
    put_u32(area, MXCSR, MXCSR_START);
    Ok(())
}

#[cfg(test)]
#[path = "x86_64_tests.rs"]
mod tests;
