//! The code of each ISA's vDSO: the parts that are the same for all.
//!
//! The code is assembler among the kernel's constants. The kernel copies it into the object that
//! programs see (`memory::vdso`), and never runs it itself. Code of a compiler would not do: it may
//! call, or read constants, anywhere else in the kernel's image.

use core::mem::offset_of;
use core::slice;

use linux_raw_sys::general as abi;
use quire_linux::exec::Machine;
use quire_linux::exec::vdso::Function;

/// The numbers that make time of a count; the content of the data page. They are constant.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TimeBase {
    /// The count at boot.
    pub start: u64,
    /// Nanoseconds for a count, times 2^32.
    pub scale: u64,
    /// Nanoseconds since 1970 at boot.
    pub realtime: u64,
}

pub(super) const START: usize = offset_of!(TimeBase, start);
pub(super) const SCALE: usize = offset_of!(TimeBase, scale);
pub(super) const REALTIME: usize = offset_of!(TimeBase, realtime);

/// The last clock that the code knows: bits below have the number of a clock.
pub(super) const LAST: u32 = abi::CLOCK_TAI;
/// The clocks that begin at boot.
pub(super) const MONOTONIC: u32 = 1 << abi::CLOCK_MONOTONIC
    | 1 << abi::CLOCK_MONOTONIC_RAW
    | 1 << abi::CLOCK_MONOTONIC_COARSE
    | 1 << abi::CLOCK_BOOTTIME;
/// The clocks that begin in 1970.
pub(super) const REAL: u32 =
    1 << abi::CLOCK_REALTIME | 1 << abi::CLOCK_REALTIME_COARSE | 1 << abi::CLOCK_TAI;
/// The clocks that only a call can read.
pub(super) const CPU_TIME: u32 =
    1 << abi::CLOCK_PROCESS_CPUTIME_ID | 1 << abi::CLOCK_THREAD_CPUTIME_ID;

/// The code of a vDSO.
#[derive(Debug)]
pub struct Code<const COUNT: usize> {
    /// The machine that it is for.
    pub machine: Machine,
    /// The version of its functions, as vdso(7) lists it.
    pub version: &'static str,
    /// The instructions.
    pub bytes: &'static [u8],
    /// Its functions, ascending.
    pub functions: [Function<'static>; COUNT],
    /// Where the code that calls `rt_sigreturn` begins, if programs need it.
    pub sigreturn: Option<usize>,
}

/// The first byte of the code, and the byte after it.
pub(super) struct Marks {
    pub(super) start: *const u8,
    pub(super) end: *const u8,
}

impl Marks {
    /// How far a place is from the beginning.
    pub(super) fn offset(&self, at: *const u8) -> usize {
        at.addr() - self.start.addr()
    }

    /// All of the code.
    ///
    /// # Safety
    /// All bytes from `start` to `end` are constants of the kernel's image.
    pub(super) unsafe fn bytes(&self) -> &'static [u8] {
        // SAFETY: the caller's promise.
        unsafe { slice::from_raw_parts(self.start, self.offset(self.end)) }
    }
}
