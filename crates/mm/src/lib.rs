//! Quire: large-folio memory management.
#![no_std]
#![allow(unreachable_pub, reason = "a room's mod.rs says what leaves the room, and what the crate")]

#[cfg(test)]
extern crate std;

mod sync;
pub mod limits;
pub mod stats;
pub mod phys;
pub mod folio;
pub mod table;
pub mod space;
pub mod fault;
pub mod cache;
pub mod swap;
pub mod engine;
pub mod check;
#[cfg(feature = "inject")]
pub mod inject;
#[cfg(doctest)]
mod doors;

#[doc(no_inline)]
pub use {quire_arch as arch, quire_hw as hw, quire_units as units};
