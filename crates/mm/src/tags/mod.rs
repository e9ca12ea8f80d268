//! Tags: under which number a TLB keeps the translations of a space (x86-64: PCID, arm64 and
//! riscv64: ASID), and which CPUs may hold some.
//!
//! **Owns** the tag of each space, the generations of tags, and the tag that each CPU uses. **Key
//! types**: [`Tag`], [`Asids`]. **Lock**: one in [`Asids`], taken only where a space lacks a tag of
//! this generation; no other is taken while it is held. **Never** knows tables, and never flushes:
//! [`Entered`] says what the caller must flush. **Next room**: `phys`.
//!
//! CPUs have few tags (none to 65,536), and a system may have more spaces. So a tag belongs to a
//! space for one *generation*:
//!
//! ```text
//!   a space is entered          its tag is of this generation      ──► no lock, no flush
//!        │
//!        └ it has none of this generation: lock
//!             ├ a CPU was in the space at the last rollover        ──► it keeps its number
//!             ├ a number is left                                   ──► it gets that
//!             └ none is left: ROLLOVER, the next generation begins
//!                  each CPU's present tag is kept for its space
//!                  each CPU flushes all tags before it enters a space for the next time
//! ```
//!
//! This is the scheme of Linux's arm64 and riscv64 (`arch/arm64/mm/context.c`; there with a bitmap
//! of the numbers in use). Numbers are given out in ascending order here, and only those that CPUs
//! keep are left out, so the state is a few words for each CPU, however many tags there are.
//!
//! # How a tag changes
//! **A space's tag may change while no CPU is in it.** The rules, for [`Asids`] and for an embedder
//! with tags of its own ([`Tag::set`]):
//!
//! 1. *The change.* No CPU is in the space, and each CPU drops what it holds under the *new* number
//!    before it uses that for the space. The set of CPUs that may hold translations is empty from
//!    then on: translations under the *old* number remain on CPUs, but no CPU uses them. A CPU
//!    drops them before it uses the old number for any space, this one included.
//! 2. *Entering*: read the tag, join the set, then write the root register.
//! 3. *Flushing*: change the tables, then a sequentially consistent fence, then read the tag and
//!    the set. The library does both; an embedder's [`flush`](quire_hw::Hardware::flush) reads the
//!    set.
//!
//! So a flush may meet a space that has just lost its tag, and names the old number. That is
//! enough: since it read the old number, its fence came before the step in which the CPU that
//! enters under the new number joined the set; hence that CPU's walks see the changed tables.
//! Translations that remain under the old number are out of use by rule 1. If another space has
//! that number already, the flush drops some of its translations, which costs time and is never
//! wrong. If the flush reads the new number, it reaches the CPUs that have joined the set, as any
//! flush does.

mod asids;
mod tag;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

pub use asids::{Asids, Entered};
pub use tag::Tag;
