//! x86-64: string instructions, plain and non-temporal stores, `clzero`.
//!
//! [`features`] asks the CPU, [`clear`] and [`copy`] hold the sequences. All of them are written
//! in assembly, because the choice of instruction *is* the backend: the compiler may turn a loop
//! of stores into whatever it likes.

mod clear;
mod copy;
mod features;

pub(super) use clear::ClearWay;
pub(super) use copy::CopyWay;
