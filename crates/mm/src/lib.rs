//! Quire: large-folio memory management.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod sync;
pub mod limits;
pub mod stats;
pub mod phys;
#[cfg(feature = "files")]
mod radix;
pub mod folio;
pub mod table;
pub mod space;
pub mod fault;
#[cfg(feature = "files")]
pub mod cache;
#[cfg(feature = "swap")]
pub mod swap;
pub mod engine;
#[cfg(feature = "check")]
pub mod check;

#[doc(no_inline)]
pub use {quire_arch as arch, quire_hw as hw, quire_units as units};
