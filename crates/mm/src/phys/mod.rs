//! The free frames.
//!
//! This room owns all free RAM, and the metadata slot of every frame. `Phys` hands frames out as
//! [`FrameRun`](quire_hw::FrameRun)s, which are the right to them, and takes back any part of them,
//! in any order. It never knows why a frame was taken, never waits, never reclaims: an allocation
//! that finds no block returns `None`. Next room: `radix`.
//!
//! ```text
//!   alloc(cpu, order)                                   free(cpu, run)
//!        │  order ≤ 4                                          │
//!        ▼                                                     ▼
//!   cpu_cache   one stack per order and CPU, newest first   cpu_cache
//!        │  empty: one larger block, cut                       │  full: the older half, as runs
//!        ▼                                                     ▼
//!   zone + buddy   lists of orders 0..=18, split and merged in place
//!        │                                                     │
//!        └──────────► meta: one slot of 32 bytes a frame ◄─────┘
//! ```
//!
//! | file | what |
//! |---|---|
//! | `meta` | the slot of each frame; the only place that mints capabilities |
//! | `list` | lists of frames, threaded through their slots |
//! | `group` | blocks whose frames can move, and blocks of those that cannot |
//! | `reserve` | groups that belong to a pool of reserved folios |
//! | `search` | the groups that a zone knows to be cheap to empty, and where a search goes on |
//! | `isolate` | groups that are emptied, and where to what is in them moves |
//! | `zone` | a span of frames with its lock and its lists of free blocks |
//! | `buddy` | split, merge, and cut exact ranges out of the lists |
//! | `cpu_cache` | blocks that one CPU keeps at hand |
//! | `alloc` | the façade `Phys`, which takes frames and gives them back |
//! | `setup` | the zones that a caller names, and the errors of a setup |
//! | `fail`, `fragment` | allocations that fail, and memory in pieces, on request |
//! | `check` | the walker that verifies all claims of the room |
//!
//! Locks: that of a shelf, then that of a zone; never two of a kind at once. Neither is held across
//! a call out of the room, so none is held during a flush: a caller may have its interrupts off,
//! also where flushes are interrupts. All are spin locks, which every other call of the library may
//! hold: the crate's documentation, *Context*, says when an interrupt handler may allocate.

pub(crate) mod alloc;
mod buddy;
mod check;
mod cpu_cache;
#[cfg(any(test, feature = "inject"))]
pub(crate) mod fail;
#[cfg(any(test, feature = "inject"))]
pub(crate) mod fragment;
mod frames;
mod group;
#[cfg(any(test, feature = "swap"))]
mod isolate;
mod list;
pub(crate) mod meta;
mod mobility;
#[cfg(not(any(test, feature = "inject")))]
mod never;
#[cfg(feature = "files")]
mod reserve;
#[cfg(any(test, feature = "swap"))]
mod search;
#[cfg(not(any(test, feature = "swap")))]
#[path = "no_search.rs"]
mod search;
mod setup;
mod strays;
mod zone;

#[cfg(all(test, not(loom)))]
mod group_tests;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(all(test, not(loom)))]
mod zone_tests;

pub(crate) use alloc::Phys;
pub(crate) use check::each_cached;
pub use check::{Totals, Violation};
pub use cpu_cache::CpuCache;
#[cfg(any(test, feature = "inject"))]
use fail::Plan;
pub use frames::Frames;
pub(crate) use list::List;
pub(crate) use meta::{FrameLock, Meta, Ownerless, WordsLock};
pub use meta::{Kind, Slot, State};
pub use mobility::{Borrowed, Mobility, PoolId};
#[cfg(not(any(test, feature = "inject")))]
use never::Plan;
pub use setup::{NotRam, Occupied, SetupError, Zones};
pub(crate) use strays::{Flushed, Strays};
pub use zone::Zone;
