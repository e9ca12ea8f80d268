//! A program's registers, and the call that runs it.

use core::arch::global_asm;
use core::mem::offset_of;

use super::{gic, trap, vectors};
use crate::isa::virt::cpus::take_kick;
use crate::isa::{Call, Trap};

/// The register that holds a system call's number; arguments are in 0 to 5, the result in 0.
const NUMBER: usize = 8;
/// Bytes of an instruction.
const INSTRUCTION: u64 = 4;

/// The registers of a program that does not run.
///
/// The assembler below `vectors` knows the order of the fields from `regs` to `kernel_sp`: it saves
/// them in pairs. The thread pointer is there after each [`run`], the vector state only after
/// [`save_vectors`](Self::save_vectors).
#[derive(Clone, Debug)]
#[repr(C, align(16))]
pub struct Context {
    /// x0 to x30.
    pub(crate) regs: [u64; 31],
    /// SP_EL0.
    pub(crate) sp: u64,
    /// The program counter.
    pub(crate) pc: u64,
    /// Flags and the like, as SPSR_EL1 has them. Bits that are not a program's are ignored.
    pub(crate) pstate: u64,
    /// TPIDR_EL0.
    pub(crate) thread_pointer: u64,
    /// The kernel's stack pointer while the program runs.
    kernel_sp: u64,
    /// FAR_EL1 of the last abort.
    pub(crate) fault_address: u64,
    /// The control register of floating point.
    pub(crate) fpcr: u64,
    /// The status register of floating point.
    pub(crate) fpsr: u64,
    /// q0 to q31.
    pub(crate) vectors: [u128; 32],
}

/// Where the assembler finds the fields.
pub(super) const SP_AT: usize = offset_of!(Context, sp) - 8;
pub(super) const PC_AT: usize = offset_of!(Context, pc);
pub(super) const THREAD_AT: usize = offset_of!(Context, thread_pointer);
pub(super) const KERNEL_SP_AT: usize = offset_of!(Context, kernel_sp);

const _: () = assert!(offset_of!(Context, regs) == 0 && SP_AT == 240 && PC_AT == 256);
const _: () = assert!(offset_of!(Context, pstate) == PC_AT + 8);
const _: () = assert!(KERNEL_SP_AT == THREAD_AT + 8);
const _: () = assert!(offset_of!(Context, fpsr) == offset_of!(Context, fpcr) + 8);

impl Context {
    /// A program that has not begun: it will, at `entry`, with its stack pointer at `stack`.
    pub fn start(entry: u64, stack: u64) -> Self {
        Self {
            regs: [0; 31],
            sp: stack,
            pc: entry,
            pstate: 0,
            thread_pointer: 0,
            kernel_sp: 0,
            fault_address: 0,
            fpcr: 0,
            fpsr: 0,
            vectors: [0; 32],
        }
    }

    /// The system call it stopped at.
    #[inline]
    pub fn call(&self) -> Call {
        let [a, b, c, d, e, f, ..] = self.regs.map(|register| register as usize);
        Call { number: self.regs[NUMBER] as usize, args: [a, b, c, d, e, f] }
    }

    /// The call's result, or `-errno`.
    #[inline]
    pub fn answer(&mut self, value: isize) {
        self.regs[0] = value as u64;
    }

    /// It will make `call` anew: the instruction is before it again.
    pub fn again(&mut self, call: &Call) {
        for (register, &arg) in self.regs.iter_mut().zip(&call.args) {
            *register = arg as u64;
        }
        self.regs[NUMBER] = call.number as u64;
        self.pc = self.pc.wrapping_sub(INSTRUCTION);
    }

    /// The stack pointer.
    pub fn sp(&self) -> u64 {
        self.sp
    }

    /// Sets the stack pointer.
    pub fn set_sp(&mut self, sp: u64) {
        self.sp = sp;
    }

    /// Sets the thread pointer.
    pub fn set_thread_pointer(&mut self, pointer: u64) {
        self.thread_pointer = pointer;
    }

    /// Register `number`, where 31 is the one that is always 0.
    pub(super) fn register(&self, number: usize) -> u64 {
        self.regs.get(number).copied().unwrap_or(0)
    }

    /// Sets register `number`; 31 stays 0.
    pub(super) fn set_register(&mut self, number: usize, value: u64) {
        if let Some(register) = self.regs.get_mut(number) {
            *register = value;
        }
    }

    /// Copies this CPU's vector registers here.
    #[inline]
    pub fn save_vectors(&mut self) {
        // SAFETY: both point into this context, which has room for 32 vectors and two words.
        unsafe { __save_vectors(&raw mut self.vectors, &raw mut self.fpcr) };
    }

    /// Copies them from here to this CPU. The kernel itself does not use them.
    #[inline]
    pub fn load_vectors(&self) {
        // SAFETY: as above.
        unsafe { __load_vectors(&raw const self.vectors, &raw const self.fpcr) };
    }
}

/// Runs the program, until it stops. Interrupts are on afterwards.
///
/// Inlined as far as system calls need it: they are the most frequent traps.
#[inline]
pub fn run(context: &mut Context) -> Trap {
    gic::mask();
    loop {
        if take_kick() {
            gic::unmask();
            return Trap::Interrupt;
        }
        // SAFETY: the context is exclusively borrowed; interrupts are off.
        let stop = unsafe { vectors::enter_user(context) };
        if trap::class(stop) == trap::SYSTEM_CALL {
            gic::unmask();
            return Trap::Call;
        }
        if let Some(trap) = stopped(context, stop) {
            gic::unmask();
            return trap;
        }
    }
}

/// The reason it stopped, where that was no system call; none when it goes on as it is now. With
/// interrupts off.
#[inline(never)]
fn stopped(context: &mut Context, stop: u64) -> Option<Trap> {
    match stop {
        vectors::INTERRUPTED => {
            gic::serve();
            Some(Trap::Interrupt)
        }
        vectors::BROKEN => vectors::broken(context.pc),
        syndrome => trap::decode(context, syndrome),
    }
}

unsafe extern "C" {
    fn __save_vectors(vectors: *mut [u128; 32], controls: *mut u64);
    fn __load_vectors(vectors: *const [u128; 32], controls: *const u64);
}

global_asm!(
    r#"
    .pushsection .text.vectors, "ax", %progbits
    .arch_extension fp
    .arch_extension simd
    .macro  each_pair op
    .set    pair, 0
    .irp    first, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
    pair_of \op, \first
    .endr
    .endm
    .macro  pair_of op, first
    .altmacro
    pair_named \op, \first, %(\first + 1)
    .noaltmacro
    .endm
    .macro  pair_named op, first, second
    \op     q\first, q\second, [x0, #\first * 16]
    .endm
    .globl  __save_vectors, __load_vectors
__save_vectors:
    each_pair stp
    mrs     x2, fpcr
    mrs     x3, fpsr
    stp     x2, x3, [x1]
    ret
__load_vectors:
    each_pair ldp
    ldp     x2, x3, [x1]
    msr     fpcr, x2
    msr     fpsr, x3
    ret
    .arch_extension nosimd
    .arch_extension nofp
    .popsection
"#
);
