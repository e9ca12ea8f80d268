//! `bench fault`: the cost of a page fault against the size of the folio (rows A8, E4).
//!
//! Two memory managers do the same work. Quire runs whole on the hosted machine ([`own`]): find
//! the area, choose the size, take the block, clear it, write the entries. The host's kernel runs
//! as it is (`linux`, see [`crate::host::fault`]). Measured beside them in the same shuffled
//! rounds: the clearing alone, and the cost of entering the host's kernel and coming back, which
//! Quire's hosted figures lack.

mod own;
mod bench;
#[cfg(test)]
mod tests;

pub(crate) use bench::{Fault, FaultArgs};
