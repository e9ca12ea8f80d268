//! Swap: where anonymous pages are while they are not in memory.
//!
//! **Owns** the slots of each swap device (which are free, how many entries refer to each, which
//! belong to a folio in memory), and the entries. **Key types**: [`Swap`] (one device, which the
//! embedder lends), `Slots` (a view of it), [`SwapEntry`].
//!
//! A slot is a base page on a device. Each device has a file
//! ([`Store::Swap`](crate::cache::Store::Swap)) whose page `n` is slot `n`: the folios in memory,
//! their reads and writes, and the errors of both, are those of any file.
//!
//! ```text
//!            allocate            a mapping becomes an entry
//!   free ────────────► cached,0 ────────────────────────────► cached,1 ─► ...
//!    ▲                    │  ▲                                   │  ▲
//!    │   leaves memory    │  │ the last entry is mapped          │  │ is read
//!    ├────────────────────┘  └─ or gone                          ▼  │
//!    └───────────────────────────────────────────────────────  0,1,.. (in no memory)
//!                         the last entry is gone
//! ```
//!
//! **Never** knows folios or areas, and of page tables only that an entry is a marker.
//! **Next room**: `base`.

mod audit;
mod device;
mod entry;
#[cfg(all(test, loom))]
mod loom_tests;
mod slots;
#[cfg(all(test, not(loom)))]
mod tests;

pub use audit::SlotFault;
pub(crate) use device::Admits;
pub use device::{CLUSTER_LANES, Swap};
pub(crate) use entry::SLOTS_MAX;
pub use entry::{SWAPS_MAX, SwapEntry};
pub(crate) use slots::Slots;
