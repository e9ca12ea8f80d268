//! `bench fault`: what a page fault costs against the size of the folio (rows A8, E4).
//!
//! Two memory managers do the same work. Quire runs whole on the hosted machine ([`own`]): find
//! the area, choose the size, take the block, clear it, write the entries. The host's kernel runs
//! as it is (`linux`, see [`crate::host::fault`]). Measured beside them in the same shuffled
//! rounds: the clearing alone, and what it costs to enter the host's kernel and come back, which
//! Quire's hosted figures lack.

pub(crate) mod threads;
mod own;
mod goals;
mod measure;

pub(crate) use goals::verdict;
pub(crate) use measure::{LINUX, NAME, ONE_AREA, run};
