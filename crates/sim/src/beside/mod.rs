//! The memory manager and the naive model side by side: the same calls, and after each of them the
//! same answer, the same areas, the same memory.
//!
//! Programs' accesses go through the CPU with its TLB, so that a flush that was forgotten shows as
//! an access that should have trapped, besides being found by the machine's examiner.

mod age;
mod calls;
mod collapse;
mod access;
mod share;
mod judge;
mod compare;

pub use calls::Beside;
