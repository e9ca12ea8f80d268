//! `--clones N`: the price of N copies of a warm process, which each write a part of its pages.
//!
//! ```text
//!   the largest process of a tape, as it is at its end               [`super::layout`]
//!      ├─ forked by Linux's rules: pages that are copied, tables     [`predict`]
//!      │  and the time of a fork, by constants that this host tells
//!      └─ built by a process of our own, which forks itself          [`stand`]
//! ```

mod predict;
mod stand;

pub(super) use predict::Copies;
pub(super) use stand::Stood;
pub(crate) use stand::{StandArgs, stand};
