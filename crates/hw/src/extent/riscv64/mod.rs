//! riscv64: Zicboz `cbo.zero`, and plain stores. No sequence touches vector registers.

mod clear;
mod copy;

pub(super) use clear::ClearWay;
pub(super) use copy::CopyWay;
