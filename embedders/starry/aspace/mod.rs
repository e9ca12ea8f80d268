//! Address spaces: Quire's, with the face that this kernel calls.
//!
//! * `lifecycle` is the kernel's own: owners, pins, CPUs, retirement.
//! * `policy` are plain values, `source` says what a mapping is to show, and `objects` are files
//!   and shared memory.
//! * `space` is a program's memory. `change` maps, unmaps, protects, moves, forks; `access` is from
//!   outside; `advice` is `madvise` and its like; `records` answers questions;
//!   `fault` resolves faults.
//! * `calls` are the system calls that need nothing else of the kernel.

mod access;
mod advice;
pub mod calls;
mod change;
mod fault;
mod frames;
pub mod lifecycle;
mod objects;
mod policy;
mod records;
mod source;
mod space;

pub(crate) use self::frames::{alloc_frame, dealloc_frame};
pub use self::lifecycle::*;
pub(crate) use self::objects::SharedFileMappingLease;
pub use self::objects::{MappingId, SharedFutexIdentity, SharedFutexRegion, SharedMemoryObject};
pub use self::policy::*;
pub(crate) use self::records::SharedFileVmaRecord;
pub use self::source::MappingOperation;
pub use self::space::AddrSpace;
use self::space::{Locked, address, range_of, span_of};
