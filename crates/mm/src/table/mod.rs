//! Page tables: walk, lock, and change them by runs.
//!
//! **Owns** table frames and the words in them. **Key types**: `Tables` (one space's tree, a
//! view), `Locked` (one table, locked), `Run` (consecutive entries in one state), `Gather`
//! (frames that were taken out and may not be freed before a flush).
//!
//! ```text
//!   visit      the one walk over runs: each body acts on a locked run
//!     │          change, noted   protect, age, harvest, forget   ─► regrant ─┐
//!     │          take, evict     take, detach, evict             ────────────┼─► gather
//!     │          look, map, relocate                                         ┘
//!   walk, lock   a tree without locks; one table with its lock
//!   run, sample  words read as runs           write, fold, mark   runs written as words
//!   scattered    words that differ in their frames alone, where a run would be one page
//!   map, split, divide, fork, relocate, carry changes of more than one table
//!   own                                       the kernel's half, made once
//! ```
//!
//! ## Lock, then ask
//! A walk takes no lock and holds nothing: it loads words, and the table it arrives at may have
//! been freed, or be another space's by now. That is harmless, since a walk decides nothing. To
//! act, a caller locks the frame where the walk ended, whatever that frame is now, and asks its
//! slot: is it a page table? of this root? of this level? does it translate this page? If one
//! answer is no, the walk begins anew. A table leaves its tree only with its own lock held, so the
//! answers stay true under the lock.
//!
//! ```text
//!   root ──► … ──► [ table, level L, base B ]      walk: loads only
//!                          │ lock the frame
//!                          ▼
//!            kind = Table, root = R, level = L, base = B ?   ── no ─► walk again
//!                          │ yes
//!                          ▼
//!                    change a run of its words
//! ```
//!
//! Locks are taken top-down, a parent before its child. No flush happens under a lock, but for
//! break-before-make, which only ISAs demand that flush without the help of other CPUs; and code is
//! published there, once for each folio.
//!
//! **Never** knows areas or policy; never frees frames before their flush.
//! **Next room**: `space`.

mod carry;
mod change;
mod divide;
mod evict;
mod fold;
mod fork;
mod grant;
pub(crate) mod gather;
pub(crate) mod lock;
mod look;
pub(crate) mod map;
mod mark;
mod noted;
mod own;
mod publish;
mod regrant;
mod relocate;
pub(crate) mod run;
mod sample;
mod scattered;
mod split;
mod take;
mod visit;
pub(crate) mod walk;
#[cfg(feature = "watch")]
mod watched;
mod word;
mod write;

#[cfg(all(test, not(loom)))]
mod carry_tests;
#[cfg(all(test, not(loom)))]
mod reads_tests;
#[cfg(all(test, loom))]
pub(crate) mod board;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod block_tests;
#[cfg(all(test, not(loom)))]
mod scattered_tests;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use change::Touched;
pub use divide::{Divided, Division};
pub(crate) use evict::Eviction;
pub(crate) use fork::{ForkLack, Heritage, Inherit};
pub(crate) use gather::{Gather, Target, invalidations};
pub(crate) use grant::Regrant;
pub(crate) use lock::Locked;
pub(crate) use look::Survey;
pub use look::{Seen, Sight};
pub(crate) use map::Lack;
pub use mark::{MarkKind, Marks};
pub(crate) use noted::Discard;
pub use own::{KernelHalf, Region};
pub(crate) use run::{Run, What};
pub(crate) use split::Isolated;
pub(crate) use take::Taking;
pub(crate) use walk::{Place, Tables};
pub(crate) use word::{WATCHED, is_cow, is_foreign, plain, shielded, unwritten};
