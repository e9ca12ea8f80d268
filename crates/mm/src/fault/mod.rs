//! The decision for one fault.
//!
//! **Owns** the answer to "what should be mapped here, and how large?". **Key types**: `Plan`
//! (the decision, made without a lock), [`Policy`] (the sizes that are wanted), `Choice` (the
//! sizes that are possible here).
//!
//! ```text
//!   plan ──► Place ──► (`spaces` takes frames and clears them) ──► install ──► Done
//!     │                                                                 │
//!     │ Below: a lower table is missing                                 └─► Stale: plan again
//!     ├ Touch: a leaf is present; Refuse: the program may not
//!     └ Unshare: the page may be shared; keep its folio or copy from it
//! ```
//!
//! A plan is made from loads alone: the area (validated by the tree's sequence number), the lowest
//! table, how much around the page is empty. Frames are taken and cleared with no lock held.
//! `install` then locks *one* table, asks its slot whether it is that table, asks the area
//! tree whether it is unchanged, looks whether the place is still empty, and writes one run.
//!
//! **Never** allocates, sleeps, or does I/O. **Next room**: `cache`.

mod block;
mod copies;
mod install;
mod near;
pub(crate) mod plan;
pub(crate) mod policy;
mod size;
mod unshare;

#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use block::BlockSource;
pub(crate) use install::{Installed, Stale};
pub(crate) use near::{Near, near};
pub(crate) use plan::{Decision, FilePage, MarkedPage, Plan, Refusal, decide};
pub use policy::{Defrag, EXTFRAG_MOST, Enabled, Policy, SWAPPINESS_MOST, SizePolicy};
pub use size::Cause;
pub(crate) use size::{Choice, highest};
pub(crate) use unshare::{Claim, Part, Source, Unshare};
