//! The interface between Quire and the hardware.
//!
//! [`Hardware`] is the one trait an embedder implements: flushes, and the CPUs' abilities. Table
//! words and extents are [`Memory`], which [`Ram`] implements for all kernels that see RAM in a
//! direct map. All methods of both are safe, because they take *capabilities*: a [`FrameRun`] or a
//! [`TableFrame`] is proof that the library owns the frames it names. [`flush`] has the laws of
//! flushes for each ISA. [`extent`] holds the clear and copy primitives of each ISA. [`DirectMap`]
//! is RAM that is visible at one place; [`Banks`] are several with holes between them, and
//! [`Early`] is RAM before there is a memory manager.
//! [`calibrate`] measures which primitive is best for which extent, and [`Chosen`] is the table.
#![no_std]

#[cfg(test)]
extern crate std;

mod calibrate;
mod chosen;
mod direct;
mod banks;
mod early;
pub mod extent;
pub mod flush;
mod foreign;
mod frame;
mod memory;
mod hardware;
mod ram;
mod words;
#[cfg(all(test, loom))]
mod models;

/// The atomics of [`words`].
mod atomic {
    pub(crate) use core::sync::atomic::{AtomicU64, Ordering, fence};
}

pub use banks::Banks;
pub use calibrate::{Calibration, Measurement, calibrate, read_through};
pub use chosen::{Choice, Chosen};
pub use direct::{DirectMap, SetupError};
pub use early::Early;
pub use flush::{Flush, Pieces};
pub use foreign::ForeignFrames;
pub use frame::{FrameRun, TableFrame};
pub use hardware::{Hardware, MemoryTypes, Profile, Transitions, TypedBy};
pub use memory::{HasMemory, Memory, Poisoned, Reuse};
pub use ram::{Maps, Ram};
pub use words::{count_words, fill_words, load_words, store_words};
