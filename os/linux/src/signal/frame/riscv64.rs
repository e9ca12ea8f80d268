//! Frames of riscv64.
//!
//! ```text
//!   program's stack pointer, or the end of the alternative stack
//!         ├──────────────────────────────────────────────┐
//!  +1076  │   12 bytes that are 0: no records follow     │
//!   +820  │   0, where larger registers would be         │
//!   +816  │   control and status of floating point       │
//!   +560  │   f0 to f31                                  │
//!   +304  │   registers (struct sigcontext): pc, x1, …   │
//!   +168  │   blocked signals                            │
//!   +144  │   alternative stack                          │
//!   +128  │ ucontext: flags, link                        │ ◄── a2
//!   +0    │ siginfo_t                                    │ ◄── a1, sp, a multiple of 16
//!         └──────────────────────────────────────────────┘
//! ```
//!
//! The handler begins with the program's floating-point registers.

use super::super::bytes::{get, get_u32, get_u64, put, put_u32, put_u64};
use super::super::{AltStack, Set};
use super::{Delivery, Frame, Return, zeros};
use crate::{Errno, Result};

/// Bytes of `struct rt_sigframe`, which [`parse`] needs, from the stack pointer of `rt_sigreturn`.
pub const FRAME_BYTES: usize = 1088;
/// The smallest alternative stack (`MINSIGSTKSZ`).
pub const STACK_BYTES_MIN: u64 = 2048;
/// The most bytes that a handler's frame needs: `AT_MINSIGSTKSZ`.
pub const STACK_BYTES: u64 = FRAME_BYTES as u64 + ALIGNMENT;

/// Stack pointers are multiples of this (calling convention).
const ALIGNMENT: u64 = 16;
/// Where the parts are, in bytes from the frame's start.
const UC: usize = 128;
const UC_STACK: usize = UC + 16;
const UC_MASK: usize = UC + 40;
const PC: usize = UC + 176;
const REGS: usize = PC + 8;
const FLOATS: usize = PC + 256;
const FCSR: usize = FLOATS + 256;
/// The end of the records that newer extensions add behind floating point: a word that is reserved,
/// and a head that is all 0.
const END: usize = FLOATS + 516;
const END_BYTES: usize = 12;

/// Registers by number, from x1 on: the return address, the stack pointer, the first argument.
const RA: usize = 0;
const SP: usize = 1;
const ARGUMENT: usize = 9;

/// A program's registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registers {
    /// The program counter.
    pub pc: u64,
    /// x1 to x31.
    pub regs: [u64; 31],
    /// f0 to f31.
    pub floats: [u64; 32],
    /// Control and status of floating point.
    pub fcsr: u32,
}

/// The frame for a signal. `trampoline` is the address of code that calls `rt_sigreturn`.
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
    let sp = registers.regs[SP];
    let top = match delivery.switches_stack(sp) {
        true => delivery.alt_stack.end(),
        false => sp,
    };
    let address = top.checked_sub(FRAME_BYTES as u64).ok_or(Errno::EFAULT)? & !(ALIGNMENT - 1);
    delivery.check_fits(sp, address)?;

    let mut bytes = zeros(FRAME_BYTES)?;
    put(&mut bytes, 0, &delivery.info.encode());
    put(&mut bytes, UC_STACK, &delivery.alt_stack.encode());
    put_u64(&mut bytes, UC_MASK, delivery.blocked.0);
    put_u64(&mut bytes, PC, registers.pc);
    for (index, word) in registers.regs.iter().enumerate() {
        put_u64(&mut bytes, REGS + 8 * index, *word);
    }
    for (index, word) in registers.floats.iter().enumerate() {
        put_u64(&mut bytes, FLOATS + 8 * index, *word);
    }
    put_u32(&mut bytes, FCSR, registers.fcsr);

    let mut started = registers.clone();
    started.regs[ARGUMENT] = u64::from(delivery.info.signal.number());
    started.regs[ARGUMENT + 1] = address;
    started.regs[ARGUMENT + 2] = address + UC as u64;
    started.regs[RA] = trampoline;
    started.regs[SP] = address;
    started.pc = handler;
    Ok(Frame { address, bytes, registers: started })
}

/// Reads a frame. All of the state in it is a program's own.
///
/// # Errors
/// [`Errno::EFAULT`] when it has records of extensions, of which [`build`] writes none.
pub fn parse(bytes: &[u8; FRAME_BYTES]) -> Result<Return<Registers>> {
    if get::<END_BYTES>(bytes, END) != [0; END_BYTES] {
        return Err(Errno::EFAULT);
    }
    let registers = Registers {
        pc: get_u64(bytes, PC),
        regs: core::array::from_fn(|index| get_u64(bytes, REGS + 8 * index)),
        floats: core::array::from_fn(|index| get_u64(bytes, FLOATS + 8 * index)),
        fcsr: get_u32(bytes, FCSR),
    };
    let blocked = Set(get_u64(bytes, UC_MASK)).blockable();
    Ok(Return { registers, blocked, alt_stack: AltStack::decode(&get(bytes, UC_STACK)) })
}

#[cfg(test)]
#[path = "riscv64_tests.rs"]
mod tests;
