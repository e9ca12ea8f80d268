//! Frames of arm64.
//!
//! ```text
//!   program's stack pointer, or the end of the alternative stack
//!         ├──────────────────────────────────────────────┐
//!  +4688  │ frame record: x29, x30 of the program        │ ◄── x29
//!   +592  │   records: vector state, syndrome, end       │
//!   +304  │   registers (struct sigcontext)              │
//!   +168  │   blocked signals                            │
//!   +144  │   alternative stack                          │
//!   +128  │ ucontext: flags, link                        │ ◄── x2
//!   +0    │ siginfo_t                                    │ ◄── x1, sp, a multiple of 16
//!         └──────────────────────────────────────────────┘
//! ```
//!
//! The handler begins with the program's vector state.

use super::super::bytes::{get, get_u32, get_u64, put, put_u32, put_u64};
use super::super::{AltStack, Flags, Set};
use super::{Delivery, Frame, Return, zeros};
use crate::{Errno, Result};

/// Bytes of `struct rt_sigframe`, which [`parse`] needs, from the stack pointer of `rt_sigreturn`.
pub const FRAME_BYTES: usize = 4688;
/// The smallest alternative stack (`MINSIGSTKSZ`).
pub const STACK_BYTES_MIN: u64 = 5120;
/// The most bytes that a handler's frame needs: `AT_MINSIGSTKSZ`.
pub const STACK_BYTES: u64 = FRAME_BYTES as u64 + 2 * RECORD_BYTES;

/// Bytes of the frame record, by which debuggers walk the stack (AAPCS64, 6.4.6).
const RECORD_BYTES: u64 = 16;
/// Where the parts are, in bytes from the frame's start.
const UC: usize = 128;
const UC_STACK: usize = UC + 16;
const UC_MASK: usize = UC + 40;
const FAULT_ADDRESS: usize = UC + 176;
const REGS: usize = FAULT_ADDRESS + 8;
const SP: usize = FAULT_ADDRESS + 256;
const PC: usize = FAULT_ADDRESS + 264;
const PSTATE: usize = FAULT_ADDRESS + 272;
const RECORDS: usize = FAULT_ADDRESS + 288;
/// Records begin with a magic number and their size, 4 bytes each.
const FPSIMD_MAGIC: u32 = 0x4650_8001;
const FPSIMD_BYTES: usize = 528;
const ESR_MAGIC: u32 = 0x4553_5201;
const ESR_BYTES: usize = 16;
const HEAD_BYTES: usize = 8;

/// Bits of PSTATE that a program may have: N, Z, C, V, DIT, SSBS, BTYPE. All others are 0: 64-bit
/// state, EL0, no interrupt masked, no single step.
const PSTATE_USER: u64 = 0xf100_1c00;
/// The kind of branch by which the program came here; a handler begins with none.
const PSTATE_BRANCH: u64 = 0xc00;

/// A program's registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registers {
    /// x0 to x30.
    pub regs: [u64; 31],
    /// The stack pointer.
    pub sp: u64,
    /// The program counter.
    pub pc: u64,
    /// Flags and state.
    pub pstate: u64,
    /// The address of the last fault. It goes to the program only.
    pub fault_address: u64,
    /// The syndrome of the last fault (ESR_EL1); 0 for none. It goes to the program only.
    pub syndrome: u64,
    /// v0 to v31.
    pub vregs: [u128; 32],
    /// State of the vector unit.
    pub fpsr: u32,
    /// How the vector unit works.
    pub fpcr: u32,
}

impl Registers {
    /// All zero.
    pub const ZERO: Self = Self {
        regs: [0; 31],
        sp: 0,
        pc: 0,
        pstate: 0,
        fault_address: 0,
        syndrome: 0,
        vregs: [0; 32],
        fpsr: 0,
        fpcr: 0,
    };
}

/// The frame for a signal. `trampoline` is the address of code that calls `rt_sigreturn`, for
/// programs that give none of their own; most do not.
///
/// # Errors
/// [`Errno::EFAULT`] when it does not fit the stack. [`Errno::EINVAL`] when the action has no
/// handler. [`Errno::ENOMEM`].
pub fn build(
    registers: &Registers,
    delivery: &Delivery<'_>,
    trampoline: u64,
) -> Result<Frame<Registers>> {
    let handler = delivery.handler()?;
    let top = match delivery.switches_stack(registers.sp) {
        true => delivery.alt_stack.end(),
        false => registers.sp,
    };
    let record = top.checked_sub(RECORD_BYTES).ok_or(Errno::EFAULT)? & !15;
    let address = record.checked_sub(FRAME_BYTES as u64).ok_or(Errno::EFAULT)?;
    delivery.check_fits(registers.sp, address)?;

    let mut bytes = zeros(FRAME_BYTES + RECORD_BYTES as usize)?;
    put(&mut bytes, 0, &delivery.info.encode());
    put(&mut bytes, UC_STACK, &delivery.alt_stack.encode());
    put_u64(&mut bytes, UC_MASK, delivery.blocked.0);
    encode(registers, &mut bytes);
    put_u64(&mut bytes, FRAME_BYTES, registers.regs[29]);
    put_u64(&mut bytes, FRAME_BYTES + 8, registers.regs[30]);

    let mut started = registers.clone();
    started.regs[0] = u64::from(delivery.info.signal.number());
    started.regs[1] = address;
    started.regs[2] = address + UC as u64;
    started.regs[29] = record;
    let has_restorer = delivery.action.flags.contains(Flags::RESTORER);
    started.regs[30] = if has_restorer { delivery.action.restorer } else { trampoline };
    started.sp = address;
    started.pc = handler;
    started.pstate = registers.pstate & PSTATE_USER & !PSTATE_BRANCH;
    Ok(Frame { address, bytes, registers: started })
}

/// Writes `struct sigcontext` and its records.
fn encode(registers: &Registers, out: &mut [u8]) {
    put_u64(out, FAULT_ADDRESS, registers.fault_address);
    for (index, word) in registers.regs.iter().enumerate() {
        put_u64(out, REGS + 8 * index, *word);
    }
    put_u64(out, SP, registers.sp);
    put_u64(out, PC, registers.pc);
    put_u64(out, PSTATE, registers.pstate);

    put_u32(out, RECORDS, FPSIMD_MAGIC);
    put_u32(out, RECORDS + 4, FPSIMD_BYTES as u32);
    put_u32(out, RECORDS + 8, registers.fpsr);
    put_u32(out, RECORDS + 12, registers.fpcr);
    for (index, vector) in registers.vregs.iter().enumerate() {
        put(out, RECORDS + 16 + 16 * index, &vector.to_le_bytes());
    }
    if registers.syndrome != 0 {
        let at = RECORDS + FPSIMD_BYTES;
        put_u32(out, at, ESR_MAGIC);
        put_u32(out, at + 4, ESR_BYTES as u32);
        put_u64(out, at + 8, registers.syndrome);
    }
    // The rest is zero, which ends the records.
}

/// Reads a frame. Only a program's own part of the state is taken.
///
/// # Errors
/// [`Errno::EFAULT`] when its records are not such as [`build`] writes: a size is wrong, one is
/// unknown or is there twice, or the vector state is missing.
pub fn parse(bytes: &[u8; FRAME_BYTES]) -> Result<Return<Registers>> {
    let vectors = RECORDS + find_vectors(&bytes[RECORDS..])?;
    let registers = Registers {
        regs: core::array::from_fn(|index| get_u64(bytes, REGS + 8 * index)),
        sp: get_u64(bytes, SP),
        pc: get_u64(bytes, PC),
        pstate: get_u64(bytes, PSTATE) & PSTATE_USER,
        fault_address: 0,
        syndrome: 0,
        vregs: core::array::from_fn(|index| {
            u128::from_le_bytes(get(bytes, vectors + 16 + 16 * index))
        }),
        fpsr: get_u32(bytes, vectors + 8),
        fpcr: get_u32(bytes, vectors + 12),
    };
    let blocked = Set(get_u64(bytes, UC_MASK)).blockable();
    Ok(Return { registers, blocked, alt_stack: AltStack::decode(&get(bytes, UC_STACK)) })
}

/// Where among the records the vector state begins. It has all of its bytes there.
fn find_vectors(records: &[u8]) -> Result<usize> {
    let mut found = None;
    let mut at = 0;
    while records.len() - at >= HEAD_BYTES {
        let (magic, size) = (get_u32(records, at), get_u32(records, at + 4) as usize);
        match (magic, size) {
            (0, 0) => return found.ok_or(Errno::EFAULT),
            (FPSIMD_MAGIC, FPSIMD_BYTES) if found.is_none() => found = Some(at),
            (ESR_MAGIC, ESR_BYTES) => {}
            _ => return Err(Errno::EFAULT),
        }
        if records.len() - at < size {
            return Err(Errno::EFAULT);
        }
        at += size;
    }
    Err(Errno::EFAULT)
}

#[cfg(test)]
#[path = "aarch64_tests.rs"]
mod tests;
