//! Decodes the cause of a trap (`scause`).

use linux_raw_sys::general as linux;
use quire::units::Access;

use super::read_csr;
use crate::isa::Trap;

/// Causes: exceptions.
const FETCH_ALIGNMENT: u64 = 0;
const FETCH_ACCESS: u64 = 1;
const ILLEGAL: u64 = 2;
const BREAKPOINT: u64 = 3;
const LOAD_ALIGNMENT: u64 = 4;
const LOAD_ACCESS: u64 = 5;
const STORE_ALIGNMENT: u64 = 6;
const STORE_ACCESS: u64 = 7;
pub(super) const SYSTEM_CALL: u64 = 8;
const FETCH_FAULT: u64 = 12;
const LOAD_FAULT: u64 = 13;
const STORE_FAULT: u64 = 15;

/// The interrupt that a cause stands for; none for an exception.
#[inline]
pub(super) fn interrupt_of(cause: u64) -> Option<u64> {
    const INTERRUPT: u64 = 1 << 63;
    (cause & INTERRUPT != 0).then_some(cause & !INTERRUPT)
}

/// Whether the exception is a load or store access fault: what is mapped there refuses it
/// (privileged manual, table of causes).
pub(super) fn is_refused(cause: u64) -> bool {
    matches!(cause, 5 | 7)
}

/// The access for which there was no translation, if the cause is that.
#[inline]
pub(super) fn page_fault(cause: u64) -> Option<Access> {
    match cause {
        FETCH_FAULT => Some(Access::Execute),
        LOAD_FAULT => Some(Access::Read),
        STORE_FAULT => Some(Access::Write),
        _ => None,
    }
}

/// The trap that `cause` is, which is neither an interrupt nor a system call, of a program at `pc`.
/// With interrupts off, as it reads `stval`.
pub(super) fn decode(pc: u64, cause: u64) -> Trap {
    if let Some(access) = page_fault(cause) {
        return Trap::Fault { address: read_csr!("stval"), access };
    }
    let (number, code) = match cause {
        FETCH_ALIGNMENT | LOAD_ALIGNMENT | STORE_ALIGNMENT => (linux::SIGBUS, linux::BUS_ADRALN),
        FETCH_ACCESS | LOAD_ACCESS | STORE_ACCESS => (linux::SIGSEGV, linux::SEGV_ACCERR),
        ILLEGAL => (linux::SIGILL, linux::ILL_ILLOPC),
        BREAKPOINT => (linux::SIGTRAP, linux::TRAP_BRKPT),
        _ => (linux::SIGILL, linux::ILL_ILLTRP),
    };
    Trap::Signal { number: number as u8, code: code as i32, address: pc }
}
