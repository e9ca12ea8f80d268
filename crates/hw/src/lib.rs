//! The interface between Quire and the hardware.
//!
//! [`Hardware`] is the one trait an embedder implements: table words, extents, flushes. All its
//! methods are safe, because they take *capabilities*: a [`FrameRun`] or a [`TableFrame`] is proof
//! that the library owns the frames it names. [`flush`] has the laws of flushes for each ISA.
//! [`extent`] holds the clear and copy primitives of each ISA. [`DirectMap`] offers both to an
//! implementation that sees all of RAM at one place, as kernels and the hosted machine do;
//! [`Banks`] is the same for RAM with holes. [`calibrate`] measures which primitive is best for
//! which extent, and [`Chosen`] is the resulting table.
#![no_std]

#[cfg(test)]
extern crate std;

mod calibrate;
mod chosen;
mod direct;
mod banks;
pub mod extent;
pub mod flush;
mod foreign;
mod frame;
mod hardware;
mod words;

pub use banks::Banks;
pub use calibrate::{Calibration, Measurement, calibrate, read_through};
pub use chosen::{Choice, Chosen};
pub use direct::{DirectMap, SetupError};
pub use flush::{Flush, Pieces};
pub use foreign::ForeignFrames;
pub use frame::{FrameRun, TableFrame};
pub use hardware::{Hardware, MemoryTypes, Poisoned, Profile, Reuse, Transitions, TypedBy};
pub use words::{count_words, fill_words, load_words, store_words};
