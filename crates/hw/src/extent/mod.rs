//! Clearing and copying of extents, one instruction sequence per way the ISA offers.
//!
//! An *extent* is a run of bytes that is cleared or copied in one go. Each backend gets the whole
//! extent at once, never page after page, because CPUs use the length: AMD's `rep stosb` stops
//! allocating cache lines from about the size of the last-level cache on, Arm's `SETM` may pick its
//! strategy from the bytes that remain, and the fence that closes a sequence of non-temporal stores
//! is paid once per extent.
//!
//! ```text
//!             allocates lines               does not
//!  x86-64     rep-stosb rep-stosq           nt-stores nt-avx2 nt-avx512 clzero
//!             stores stores-sse2 …-avx2 …-avx512
//!  arm64      mops zva stores               mops-nt nt-stores
//!  riscv64    zicboz stores
//!  any        portable
//! ```
//!
//! [`Backend`] names one way to clear, [`CopyBackend`] one way to copy. Neither can be made for a
//! CPU that lacks the instructions, so using one is safe. [`calibrate`](crate::calibrate) measures
//! which is best for which extent, and [`Chosen`](crate::Chosen) keeps the result.
//!
//! # Contract of every backend
//! * Start and length are multiples of [`GRAIN`], the smallest base page of the three ISAs. (The
//!   safe entries take any slice and do the ragged ends word by word.)
//! * Each aligned 64-bit word is written by whole stores, so another CPU that loads it meanwhile
//!   sees the old or the new word. So a table walker may read a frame that is being cleared. To the
//!   Rust memory model the stores are relaxed atomic ones.
//! * On return the stores are ordered like plain ones: sequences of weakly ordered stores (x86-64
//!   non-temporal stores and `clzero`) end in `sfence`. A release operation that follows therefore
//!   publishes the extent. DC ZVA, STNP, MOPS and `cbo.zero` are ordered by the barriers that
//!   order plain stores, and need none of their own.
//! * The memory is ordinary, cacheable memory and, on arm64, translation is on: DC ZVA faults on
//!   device memory.
//!
//! # Sources
//! AMD64 Architecture Programmer's Manual vol. 3 (CLZERO, MOVNTI, REP STOS), vol. 2 §7.4.2 (write
//! combining and SFENCE); Intel SDM vol. 1 §7.3.9.3 (fast-string operation); Arm ARM DDI 0487
//! C6.2 (SETP, CPYFP, STNP), D24 (DCZID_EL0, ID_AA64ISAR2_EL1); RISC-V CMO specification 1.0 §3.
#![allow(unsafe_code)]

mod backend;
mod copier;
mod portable;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(not(any(target_arch = "aarch64", target_arch = "riscv64", target_arch = "x86_64")))]
mod none;
#[cfg(target_arch = "riscv64")]
mod riscv64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as isa;
#[cfg(not(any(target_arch = "aarch64", target_arch = "riscv64", target_arch = "x86_64")))]
use none as isa;
#[cfg(target_arch = "riscv64")]
use riscv64 as isa;
#[cfg(target_arch = "x86_64")]
use x86_64 as isa;

pub use backend::Backend;
pub use copier::CopyBackend;

/// Start and length of an extent are multiples of this many bytes. Large enough for every block
/// that an instruction clears at once (DC ZVA: at most 2 KiB).
pub const GRAIN: usize = 4096;

/// The properties of a way to clear or copy that need no measurement.
#[derive(Clone, Copy)]
struct Facts {
    name: &'static str,
    caches: bool,
    vectors: bool,
}

impl Facts {
    const fn new(name: &'static str, caches: bool, vectors: bool) -> Self {
        Self { name, caches, vectors }
    }
}
