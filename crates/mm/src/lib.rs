//! Large-folio memory management for kernels and unikernels: physical memory, page tables, address
//! spaces, page faults, fork, files, swap and reclaim. `no_std`, no heap, three ISAs.
//!
//! A *folio* is a power-of-two run of page frames that is managed as one object. Every operation
//! works on a run of pages, frames or table entries, never page by page.
//!
//! # A first program
//! An embedder implements [`Hardware`](hw::Hardware), lends the library some memory for its
//! records, and calls [`Mm`]. Here the hosted machine of `quire-machine` is the hardware. The
//! guide, docs/embedding.md in the repository, goes from nothing to a kernel that boots.
//!
//! ```
//! use std::sync::atomic::Ordering;
//!
//! use quire::arch::{Arch, X86_64};
//! use quire::hw::{Memory, Reuse};
//! use quire::phys::{CpuCache, Slot, Zone};
//! use quire::space::Request;
//! use quire::stats::Counters;
//! use quire::units::{Access, Asid, Order, PageSpan, Vpn};
//! use quire::{Error, Mm, Parts};
//! use quire_machine::{Config, Machine, Ram};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut ram = Ram::new(8 << 20)?;
//! let (machine, frames) = Machine::new(Config::x86_64(), &mut ram).unwrap();
//! # let kernel = [(511, 0)];
//!
//! // One slot for each frame, one cache and one set of counters for each CPU.
//! let mut slots: Vec<Slot> = (0..frames.count()).map(|_| Slot::empty()).collect();
//! let (mut caches, counters) = ([CpuCache::new()], [Counters::new()]);
//! let mut zones = [Zone::new(frames.span())];
//! let parts = Parts::new(frames.start(), &mut slots, &mut caches, &counters, &mut zones);
//! let mm = Mm::<X86_64, _>::new(&machine, parts)?;
//! mm.add(frames)?;
//! mm.policy().set_sizes("64K:always", X86_64::PAGE_SHIFT)?;
//!
//! // Each root table has the kernel's entries, or no CPU could run the kernel under it.
//! let root = mm.phys().alloc(Order::ZERO).ok_or(Error::NoMemory(Order::ZERO))?;
//! machine.clear(&root, 0..1, Reuse::Soon);
//! for (index, word) in kernel {
//!     machine.ram().words(&root)[index].store(word, Ordering::Relaxed);
//! }
//!
//! // A process maps 64 pages and touches one: the fault brings a folio of 16.
//! let window = PageSpan::new(Vpn::new(0x1000), Vpn::new(0x8000));
//! let mut process = None;
//! let space = mm.space_in(&mut process, root.dirtied(), Asid(1), window)?;
//! let area = mm.map(space, &Request::anon(64))?;
//! mm.fault(space, area.start.add(5), Access::Write)?;
//! assert_eq!(mm.resident(space), 16);
//! mm.destroy_in(&mut process);
//! # Ok(())
//! # }
//! ```
//!
//! # Concepts
//! * A [`FrameRun`](hw::FrameRun) is the right to some frames. It cannot be copied, and safe code
//!   cannot make one: [`Mm::phys`] gives frames out and takes them back.
//! * A [`Space`](space::Space) is an address space: its [areas](space::Area), and the root of its
//!   page tables. The embedder gives it its place, [makes](Mm::space_in) and
//!   [ends](Mm::destroy_in) it there.
//! * An area shows zeroes, a file, or frames that the embedder has the right to: a device's
//!   registers ([`ForeignFrames`](hw::ForeignFrames)), or RAM that it lends ([`LentFrames`]). See
//!   [`map_frames`](Spaces::map_frames).
//! * The library never blocks and never calls a device. A fault that lacks a page of a file or of a
//!   swap device returns `Need::Read` with the pages to read.
//! * When a call that takes rights or pages away returns, the flush is over.
//!
//! # Context
//! All locks are spin locks, and no call sleeps. Several CPUs may make any calls at once.
//!
//! * **Interrupt handlers** may call what takes no lock: [`Mm::totals`], [`Mm::policy`],
//!   [`Mm::frame_info`], [`Space::enter`](space::Space::enter) and `leave`, getters of `Space` and
//!   `File`. The interrupted code may hold any other lock. Only where every call of the library on
//!   that CPU runs with interrupts off may a handler make one, and allocate frames.
//! * **Interrupts off**: allowed for [`Mm::phys`], under whose locks no flush happens. For all
//!   other calls it is allowed where [`flush`](hw::Hardware::flush) needs no interrupt that a CPU
//!   can mask: a CPU that waits for a table's or a space's lock must obey the flush of its holder.
//!   Where flushes are such interrupts (x86-64), a page-fault handler enables them before the call.
//! * **Preemption**: a preempted thread keeps the lock that it holds, and other threads spin until
//!   it runs again; where the scheduler prefers one that spins on the same CPU, for ever. So an
//!   embedder switches preemption off, not interrupts, around each call. [`Mm::fault_with`] and
//!   [`Mm::populate_with`] say between two units of a long clear, without locks, that another
//!   thread may run.
//! * **Nested calls**: [`Hardware`](hw::Hardware)'s methods and [`AllSpaces::visit`] call nothing
//!   of the library, as their caller may hold any lock.
//! * **Stack**: a fault uses at most 3 KiB, a fork and reclaim 4 KiB.
//!
//! # Services
//! | handle | service | feature |
//! |---|---|---|
//! | [`Mm`] | faults, map, populate, pins | always |
//! | [`Spaces`], also methods of `Mm` | spaces, fork, unmap, protect, device memory, advice, guards, sealing, tracking, reports | always |
//! | `Mm::files` | files in memory: read, show, write back, truncate | `files` |
//! | `Mm::paging` | swap devices: page out and in | `swap` |
//! | `Mm::reclaim`, `Mm::groups` | aging, reclaim, limits of groups, collapse, scan | `reclaim` |
//! | `check` | walkers that verify the whole state | `check` |
#![no_std]
#![cfg_attr(
    not(all(feature = "reclaim", feature = "check")),
    allow(
        dead_code,
        unused_imports,
        unused_variables,
        reason = "only the services that are left out use it"
    )
)]
#![allow(unreachable_pub, reason = "a room's mod.rs says what leaves the room, and what the crate")]

#[cfg(any(test, feature = "lines"))]
extern crate std;

mod sync;
pub mod limits;
pub mod stats;
pub mod tags;
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
mod base;
mod spaces;
#[cfg(feature = "files")]
mod files;
#[cfg(feature = "swap")]
mod paging;
#[cfg(feature = "reclaim")]
mod reclaim;
mod mm;
#[cfg(feature = "check")]
pub mod check;
#[cfg(feature = "inject")]
pub mod inject;
#[cfg(doctest)]
mod doors;

#[cfg(feature = "files")]
pub use base::PoolCounts;
pub use base::{AllSpaces, Errno, Error, Need, Stop};
#[cfg(feature = "reclaim")]
pub use base::{Group, Groups};
#[cfg(feature = "files")]
pub use files::{Files, Held, ReadFailed, Write, WriteFailed, WriteRun};
pub use mm::{FrameInfo, FrameUse, Mm, Parts, Pinned};
#[cfg(feature = "swap")]
pub use paging::{Migrated, PagedOut, Paging, Scope};
#[cfg(feature = "reclaim")]
pub use reclaim::{
    Collapsed, Compacted, Compaction, Hindrance, Holdings, Reclaim, Reclaimed, Relieved,
    ScanCursor, ScanLimits, Scanned, Watermarks,
};
pub use spaces::{
    Answer, Answered, FolioMap, FrameSource, LentFrames, Loss, Move, Populated, Resolved, Shield,
    SizeOf, Spaces, is_protected, is_written,
};

#[cfg(all(feature = "lines", not(any(loom, shuttle))))]
pub use sync::lines;
#[doc(no_inline)]
pub use {quire_arch as arch, quire_hw as hw, quire_units as units};
