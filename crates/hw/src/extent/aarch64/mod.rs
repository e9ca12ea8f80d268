//! arm64: FEAT_MOPS over the whole extent, DC ZVA, plain and non-temporal store pairs.
//!
//! [`features`] queries the CPU, [`clear`] and [`copy`] hold the sequences. No sequence touches
//! vector registers, so kernels may use all of them.

mod clear;
mod copy;
mod features;

pub(super) use clear::ClearWay;
pub(super) use copy::CopyWay;
