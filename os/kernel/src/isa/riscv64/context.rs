//! A program's registers, and the call that runs it.

use core::arch::global_asm;
use core::mem::offset_of;

use super::{change_csr, interrupts, read_csr, trap, vectors};
use crate::isa::virt::cpus::take_kick;
use crate::isa::{Call, Trap};

/// Registers by number: the stack pointer, the thread pointer, the first argument, which is the
/// result, too, and the number of a system call.
const SP: usize = 2;
const TP: usize = 4;
const ARGUMENT: usize = 10;
const NUMBER: usize = 17;
/// Bytes of the instruction that makes a call.
const INSTRUCTION: u64 = 4;

/// `sstatus`: the state of floating point. Both bits are set when the program has changed it; the
/// upper one alone, when it is as it was loaded.
const FLOATS: u64 = 3 << 13;
const FLOATS_CHANGED: u64 = 1 << 13;

/// The registers of a program that does not run.
///
/// The assembler of `vectors` knows where `regs`, `pc` and `kernel_sp` are. Floating point is there
/// only after [`save_vectors`](Self::save_vectors).
#[derive(Clone, Debug)]
#[repr(C, align(16))]
pub struct Context {
    /// x0, which is 0, to x31.
    pub(crate) regs: [u64; 32],
    /// The program counter.
    pub(crate) pc: u64,
    /// The kernel's stack pointer while the program runs.
    kernel_sp: u64,
    /// f0 to f31.
    pub(crate) floats: [u64; 32],
    /// The control and status register of floating point.
    pub(crate) fcsr: u64,
}

/// Where the assembler finds the fields.
pub(super) const PC_AT: usize = offset_of!(Context, pc);
pub(super) const KERNEL_SP_AT: usize = offset_of!(Context, kernel_sp);

const _: () = assert!(offset_of!(Context, regs) == 0 && PC_AT == 256);
const _: () = assert!(offset_of!(Context, fcsr) == offset_of!(Context, floats) + 256);

impl Context {
    /// A program that has not begun: it will, at `entry`, with its stack pointer at `stack`.
    pub fn start(entry: u64, stack: u64) -> Self {
        let mut context = Self { regs: [0; 32], pc: entry, kernel_sp: 0, floats: [0; 32], fcsr: 0 };
        context.set_sp(stack);
        context
    }

    /// The system call it stopped at.
    #[inline]
    pub fn call(&self) -> Call {
        let args = core::array::from_fn(|number| self.regs[ARGUMENT + number] as usize);
        Call { number: self.regs[NUMBER] as usize, args }
    }

    /// The call's result, or `-errno`.
    #[inline]
    pub fn answer(&mut self, value: isize) {
        self.regs[ARGUMENT] = value as u64;
    }

    /// It will make `call` anew: the instruction is before it again.
    pub fn again(&mut self, call: &Call) {
        for (register, &arg) in self.regs[ARGUMENT..].iter_mut().zip(&call.args) {
            *register = arg as u64;
        }
        self.regs[NUMBER] = call.number as u64;
        self.pc = self.pc.wrapping_sub(INSTRUCTION);
    }

    /// The stack pointer.
    pub fn sp(&self) -> u64 {
        self.regs[SP]
    }

    /// Sets the stack pointer.
    pub fn set_sp(&mut self, sp: u64) {
        self.regs[SP] = sp;
    }

    /// Sets the thread pointer.
    pub fn set_thread_pointer(&mut self, pointer: u64) {
        self.regs[TP] = pointer;
    }

    /// Copies this CPU's floating-point registers here, where the program has changed them since
    /// they were loaded from here.
    #[inline]
    pub fn save_vectors(&mut self) {
        if read_csr!("sstatus") & FLOATS != FLOATS {
            return;
        }
        // SAFETY: it points at 32 registers and a word behind them.
        unsafe { __save_floats(&raw mut self.floats) };
        mark_unchanged();
    }

    /// Copies them from here to this CPU. The kernel itself does not use them.
    #[inline]
    pub fn load_vectors(&self) {
        // SAFETY: as above.
        unsafe { __load_floats(&raw const self.floats) };
        mark_unchanged();
    }
}

/// Notes that the floating-point registers are as the context has them.
#[inline]
fn mark_unchanged() {
    // SAFETY: the registers are the program's, and stay switched on.
    unsafe { change_csr!("csrc", "sstatus", FLOATS_CHANGED) };
}

/// Runs the program, until it stops. Interrupts are on afterwards.
///
/// Inlined as far as system calls need it: they are the most frequent traps.
#[inline]
pub fn run(context: &mut Context) -> Trap {
    interrupts::mask();
    if take_kick() {
        interrupts::unmask();
        return Trap::Interrupt;
    }
    // SAFETY: the context is exclusively borrowed; interrupts are off.
    let cause = unsafe { vectors::enter_user(context) };
    if cause == trap::SYSTEM_CALL {
        interrupts::unmask();
        context.pc = context.pc.wrapping_add(INSTRUCTION);
        return Trap::Call;
    }
    let trap = stopped(context, cause);
    interrupts::unmask();
    trap
}

/// The reason it stopped, where that was no system call. With interrupts off.
#[inline(never)]
fn stopped(context: &Context, cause: u64) -> Trap {
    match trap::interrupt_of(cause) {
        Some(interrupt) => {
            interrupts::serve(interrupt);
            Trap::Interrupt
        }
        None => trap::decode(context.pc, cause),
    }
}

unsafe extern "C" {
    fn __save_floats(floats: *mut [u64; 32]);
    fn __load_floats(floats: *const [u64; 32]);
}

global_asm!(
    r#"
    .pushsection .text.floats, "ax", %progbits
    .option push
    .option arch, +d
    .macro  each_float op
    .irp    number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    \op     f\number, \number * 8(a0)
    .endr
    .irp    number, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    \op     f\number, \number * 8(a0)
    .endr
    .endm
    .balign 4
    .globl __save_floats, __load_floats
__save_floats:
    each_float fsd
    frcsr   t0
    sd      t0, 256(a0)
    ret
__load_floats:
    each_float fld
    ld      t0, 256(a0)
    fscsr   t0
    ret
    .option pop
    .popsection
"#
);
