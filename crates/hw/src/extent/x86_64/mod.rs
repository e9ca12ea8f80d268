//! x86-64: string instructions, plain and non-temporal stores, `clzero`.
//!
//! [`features`] queries the CPU, [`clear`] and [`copy`] hold the sequences. All of them are written
//! in assembly, because the choice of instruction *is* the backend: a compiler may replace a loop
//! of stores with other instructions.

mod clear;
mod copy;
mod features;

pub(super) use clear::ClearWay;
pub(super) use copy::CopyWay;
