//! A context, as signal frames have it.

use alloc::vec::Vec;

use quire_linux::Result;
use quire_linux::signal::frame::Delivery;
use quire_linux::signal::frame::x86_64::{self as frame, Registers, Vectors};
use quire_linux::signal::{AltStack, Set};
use x86_64::registers::xcontrol::XCr0;

use super::context::{Context, VECTOR_BYTES, has_xsave};

/// The smallest stack on which a signal can be handled, in bytes.
pub const SIGNAL_STACK_BYTES: u64 = frame::stack_bytes(VECTOR_BYTES);

/// Reads program memory.
pub type Reader<'a> = &'a dyn Fn(u64, &mut [u8]) -> Result<()>;

/// How much of the area is used.
fn area_bytes() -> usize {
    if has_xsave() { VECTOR_BYTES } else { frame::LEGACY_BYTES }
}

fn features() -> u64 {
    if has_xsave() { XCr0::read_raw() } else { 0 }
}

impl Context {
    /// Makes it start a handler; where to write which bytes before it runs. Its vector state is
    /// saved and loaded by this.
    ///
    /// # Errors
    /// See [`frame::build`]; the context is as it was then.
    pub fn deliver(&mut self, delivery: &Delivery<'_>, _trampoline: u64) -> Result<(u64, Vec<u8>)> {
        self.save_vectors();
        let area = &self.vectors.0[..area_bytes()];
        let vectors = Vectors { area, features: features() };
        let built = frame::build(&self.registers(), &vectors, delivery)?;
        self.set_registers(&built.registers);
        frame::clear_vectors(&mut self.vectors.0[..area_bytes()])?;
        self.load_vectors();
        Ok((built.address, built.bytes))
    }

    /// Makes it go on after a handler; what is to be blocked, and the alternative stack.
    ///
    /// # Errors
    /// `EFAULT`, or what is wrong with the frame; the context is as it was then.
    pub fn handled(&mut self, read: Reader<'_>) -> Result<(Set, AltStack)> {
        let mut bytes = [0; frame::FRAME_BYTES];
        // The handler's return took the restorer's address off the stack.
        read(self.rsp.wrapping_sub(8), &mut bytes)?;
        let (back, vectors_at) = frame::parse(&bytes)?;
        let mut area = [0; VECTOR_BYTES];
        let area = &mut area[..area_bytes()];
        if vectors_at == 0 {
            frame::clear_vectors(area)?;
        } else {
            let mut saved = [0; VECTOR_BYTES + 4];
            let mut legacy = [0; frame::LEGACY_BYTES];
            read(vectors_at, &mut legacy)?;
            let count = frame::saved_bytes(&legacy, area.len());
            read(vectors_at, &mut saved[..count])?;
            frame::restore_vectors(&saved[..count], features(), area)?;
        }
        self.vectors.0[..area.len()].copy_from_slice(area);
        self.set_registers(&back.registers);
        self.load_vectors();
        Ok((back.blocked, back.alt_stack))
    }

    fn registers(&self) -> Registers {
        let [r15, r14, r13, r12, r11, r10, r9, r8, rbx, rbp, rdi, rsi, rdx, rcx, rax] =
            self.general;
        Registers {
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
            rsp: self.rsp,
            rip: self.rip,
            rflags: self.flags,
            error: self.error,
            trap: self.vector & 0xff,
            cr2: self.fault,
        }
    }

    fn set_registers(&mut self, from: &Registers) {
        let Registers { r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, .. } = *from;
        let Registers { rdx, rax, rcx, rsp, rip, rflags, .. } = *from;
        self.general = [r15, r14, r13, r12, r11, r10, r9, r8, rbx, rbp, rdi, rsi, rdx, rcx, rax];
        self.rsp = rsp;
        self.set_place(rip, rflags);
    }
}
