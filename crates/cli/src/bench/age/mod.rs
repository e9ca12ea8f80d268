//! `bench age`: a machine's simulated life, and the share of wanted large folios that faults get.
//!
//! ```text
//!   plan ─► life: step by step ─► ledger: days, times, compactions ─► figures beside the bound
//! ```
//!
//! | file | what |
//! |---|---|
//! | `plan` | the settings of a life, and the policies |
//! | `process` | the programs: how large, how long, in which folios |
//! | `life` | the steps, growth, files, the kernel's frames |
//! | `acts` | accesses, forks, pins, page-out; compaction where a fault or the background wants it |
//! | `bound` | the fewest pages that any mover could have moved |
//! | `ledger` | the sums of a life |
//! | `bench` | the cells, the figures that they become, and the goals |

mod acts;
mod bench;
mod bound;
mod ledger;
mod life;
mod plan;
mod process;
#[cfg(test)]
mod tests;

pub(crate) use bench::{Age, AgeArgs};
