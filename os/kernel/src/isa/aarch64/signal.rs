//! A context, as signal frames have it.

use alloc::vec::Vec;

use quire_linux::Result;
use quire_linux::signal::frame::Delivery;
use quire_linux::signal::frame::aarch64::{self as frame, Registers};
use quire_linux::signal::{AltStack, Set};

use super::context::Context;

/// The smallest stack on which a signal can be handled, in bytes.
pub const SIGNAL_STACK_BYTES: u64 = frame::STACK_BYTES;

/// Reads program memory.
pub type Reader<'a> = &'a dyn Fn(u64, &mut [u8]) -> Result<()>;

impl Context {
    /// Makes it start a handler; where to write which bytes before it runs. Handlers begin with the
    /// program's vector state.
    ///
    /// # Errors
    /// See [`frame::build`]; the context is as it was then.
    pub fn deliver(&mut self, delivery: &Delivery<'_>, trampoline: u64) -> Result<(u64, Vec<u8>)> {
        self.save_vectors();
        let built = frame::build(&self.registers(), delivery, trampoline)?;
        self.set_registers(&built.registers);
        Ok((built.address, built.bytes))
    }

    /// Makes it go on after a handler; what is to be blocked, and the alternative stack.
    ///
    /// # Errors
    /// `EFAULT`, or what is wrong with the frame; the context is as it was then.
    pub fn handled(&mut self, read: Reader<'_>) -> Result<(Set, AltStack)> {
        let mut bytes = [0; frame::FRAME_BYTES];
        read(self.sp, &mut bytes)?;
        let back = frame::parse(&bytes)?;
        self.set_registers(&back.registers);
        self.load_vectors();
        Ok((back.blocked, back.alt_stack))
    }

    fn registers(&self) -> Registers {
        Registers {
            regs: self.regs,
            sp: self.sp,
            pc: self.pc,
            pstate: self.pstate,
            fault_address: self.fault_address,
            syndrome: 0,
            vregs: self.vectors,
            fpsr: self.fpsr as u32,
            fpcr: self.fpcr as u32,
        }
    }

    fn set_registers(&mut self, from: &Registers) {
        self.regs = from.regs;
        self.sp = from.sp;
        self.pc = from.pc;
        self.pstate = from.pstate;
        self.vectors = from.vregs;
        self.fpsr = from.fpsr.into();
        self.fpcr = from.fpcr.into();
    }
}
