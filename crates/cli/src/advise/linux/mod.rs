//! How Linux places a program's memory: a model of its rules, fast enough to try many settings.
//!
//! It has what decides the counts, and nothing of Linux's structures: areas, page tables of one
//! entry per page or one per block, and folios with the number of pages that are mapped of each.
//! The rules are those of 6.8 to 7.2 ([`fault`] lists them with what they decide):
//!
//! ```text
//!   rules     which sizes an area may get: the switches, advice, the program's own opt-out
//!   areas     areas sorted by address: map, unmap, protect, split, join
//!   tables    which page is mapped by what, in blocks of 2 MiB
//!   folios    how large each folio is, and which spaces map how many of its pages
//!   space     areas and tables of one process, with its resident pages and their peak
//!   fault     one fault; fork, exec and exit, and the background (khugepaged)
//!   pressure  where memory is bounded: which folios leave, and how they come back
//!   lists     which were used lately
//!   slots     the swap device
//!   replay    a tape under a setting
//! ```
//!
//! Pages of files and of shared memory are not modelled: a tape has the faults on them as they
//! were, and how many pages each brought. The switches for private memory do not change them.

pub(super) mod rules;
pub(super) mod areas;
mod slots;
mod lists;
mod folios;
pub(super) mod tables;
mod space;
mod fault;
mod collapse;
mod pressure;
mod replay;
#[cfg(test)]
mod naive;

pub(super) use replay::{Outcome, UPPER, replay};
pub(super) use rules::{Setting, Word};
