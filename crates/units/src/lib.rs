//! Units of memory management: numbers that must not be mixed up, each as a type of its own.
//!
//! Everything inside Quire counts in *base pages* (virtual) and *base frames* (physical); bytes
//! occur only at the outer edge. The size of a base page belongs to the ISA, so nothing here knows
//! it: conversions take a `page_shift`, the base-two logarithm of the base page in bytes.
//!
//! All ranges are half-open: `start` inclusive, `end` exclusive.
#![no_std]

mod addr;
mod cpu;
mod memory;
mod order;
mod orders;
mod prot;
mod span;

pub use addr::{Pfn, PhysAddr, VirtAddr, Vpn};
pub use cpu::{Asid, CPUS_MAX, CpuId, CpuSet};
pub use memory::MemoryType;
pub use order::Order;
pub use orders::OrderSet;
pub use prot::{Access, Prot};
pub use span::{Blocks, FrameSpan, PageSpan};
