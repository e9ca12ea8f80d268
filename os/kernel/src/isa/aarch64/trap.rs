//! Decodes an exception syndrome (ESR_EL1) of a program.
//!
//! Arm ARM, ESR_EL1: the class is in bits 31:26, the rest (ISS) depends on it.

use linux_raw_sys::general as linux;
use quire::units::Access;

use super::context::Context;
use super::read_register;
use crate::isa::Trap;

/// Exception classes.
pub(super) const SYSTEM_CALL: u64 = 0x15;
pub(super) const INSTRUCTION_ABORT: u64 = 0x20;
pub(super) const PC_ALIGNMENT: u64 = 0x22;
pub(super) const DATA_ABORT: u64 = 0x24;
pub(super) const KERNEL_DATA_ABORT: u64 = 0x25;
pub(super) const STACK_ALIGNMENT: u64 = 0x26;
pub(super) const MEMORY_OPERATION: u64 = 0x27;
pub(super) const FLOATING_POINT: u64 = 0x2c;
pub(super) const BREAKPOINT: u64 = 0x30;
pub(super) const STEP: u64 = 0x32;
pub(super) const WATCHPOINT: u64 = 0x34;
pub(super) const BRK: u64 = 0x3c;

/// The class of a syndrome.
#[inline]
pub(super) const fn class(syndrome: u64) -> u64 {
    syndrome >> 26 & 0x3f
}

/// Whether an abort is about a translation, the access flag or rights, and not something else.
pub(super) const fn is_translation_fault(syndrome: u64) -> bool {
    // Status codes 0001LL, 0010LL, 0011LL for level LL.
    matches!(syndrome >> 2 & 0xf, 1..=3)
}

/// The access that a data abort tried. Cache maintenance only needs to read, though it says
/// otherwise.
pub(super) const fn access(syndrome: u64) -> Access {
    let (writes, maintains) = (syndrome >> 6 & 1 != 0, syndrome >> 8 & 1 != 0);
    if writes && !maintains { Access::Write } else { Access::Read }
}

/// The trap that `syndrome` is, which is no system call's; none when the program goes on as it is
/// now. With interrupts off, as it reads FAR_EL1.
pub(super) fn decode(context: &mut Context, syndrome: u64) -> Option<Trap> {
    let here = context.pc;
    Some(match class(syndrome) {
        INSTRUCTION_ABORT => abort(context, syndrome, Access::Execute),
        DATA_ABORT => abort(context, syndrome, access(syndrome)),
        PC_ALIGNMENT => signal(linux::SIGBUS, linux::BUS_ADRALN, here),
        STACK_ALIGNMENT => signal(linux::SIGBUS, linux::BUS_ADRALN, context.sp),
        FLOATING_POINT => signal(linux::SIGFPE, floating_point(syndrome), here),
        BREAKPOINT | STEP | WATCHPOINT => signal(linux::SIGTRAP, linux::TRAP_HWBKPT, here),
        BRK => signal(linux::SIGTRAP, linux::TRAP_BRKPT, here),
        MEMORY_OPERATION => {
            rewind(context, syndrome);
            return None;
        }
        _ => signal(linux::SIGILL, linux::ILL_ILLOPC, here),
    })
}

fn signal(number: u32, code: u32, address: u64) -> Trap {
    Trap::Signal { number: number as u8, code: code as i32, address }
}

/// An abort: a translation that does not allow it, or memory that does not.
fn abort(context: &mut Context, syndrome: u64, access: Access) -> Trap {
    const ALIGNMENT: u64 = 0x21;
    let address = read_register!("far_el1");
    context.fault_address = address;
    if is_translation_fault(syndrome) {
        Trap::Fault { address, access }
    } else if syndrome & 0x3f == ALIGNMENT {
        signal(linux::SIGBUS, linux::BUS_ADRALN, address)
    } else {
        signal(linux::SIGBUS, linux::BUS_OBJERR, address)
    }
}

/// Which of the five floating-point exceptions it was, where the CPU tells (TFV, bit 23).
fn floating_point(syndrome: u64) -> u32 {
    const FAULTS: [u32; 5] = [
        linux::FPE_FLTINV,
        linux::FPE_FLTDIV,
        linux::FPE_FLTOVF,
        linux::FPE_FLTUND,
        linux::FPE_FLTRES,
    ];
    if syndrome >> 23 & 1 == 0 {
        return linux::FPE_FLTUNK;
    }
    let bit = (syndrome & 0x1f).trailing_zeros() as usize;
    FAULTS.get(bit).copied().unwrap_or(linux::FPE_FLTUNK)
}

/// Puts a program back to the first of the three instructions of a memory copy or memory set.
///
/// The three share their state in registers, in one of two forms ("options"), and a CPU that finds
/// the other's form raises this exception. In both forms the state gives the rest of the work, and
/// can be written as arguments of the first instruction. Arm ARM, on FEAT_MOPS: with option A a
/// forward operation has its addresses at the end, and the size negated; with option B a backward
/// one (PSTATE.N) has its addresses at the end.
fn rewind(context: &mut Context, syndrome: u64) {
    let bit = |at: u32| syndrome >> at & 1 != 0;
    let register = |at: u32| (syndrome >> at & 0x1f) as usize;
    let (sets, epilogue, option_a) = (bit(24), bit(18), bit(16) != bit(17));
    let (to, from, size) = (register(10), register(5), register(0));
    let left = context.register(size);
    let backward = context.pstate >> 31 & 1 != 0;
    let moves = |context: &mut Context, by: u64| {
        context.set_register(to, context.register(to).wrapping_add(by));
        if !sets {
            context.set_register(from, context.register(from).wrapping_add(by));
        }
    };
    if option_a && (sets || left as i64 <= 0) {
        moves(context, left);
        context.set_register(size, left.wrapping_neg());
    } else if !option_a && !sets && backward {
        moves(context, left.wrapping_neg());
    }
    context.pc = context.pc.wrapping_sub(if epilogue { 8 } else { 4 });
}
