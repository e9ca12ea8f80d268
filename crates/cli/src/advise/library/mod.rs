//! The column of Quire: a tape through the library itself, on the hosted machine.
//!
//! Each process is a space of the library, and each touch an access of the machine's CPU, which
//! traps where there is no translation; the library serves the fault. Pages of files and of shared
//! memory stay as they were recorded: a fault on one is counted, and nothing is mapped. A page of a
//! private file that is written is one page of private memory, as on Linux.
//!
//! The settings are the same as Linux's; the rules are the library's own. They differ where a fork
//! has shared pages: the library copies several at once, and knows exactly who shares a folio.
//!
//! ```text
//!   run       all settings, each on a machine of its own
//!   replay    the events of a tape: touches, forks, exits, time
//!   live      one process: its areas
//!   pressure  a bound of memory: what leaves for a swap device, and comes back
//! ```

mod live;
mod pressure;
mod replay;
mod run;
#[cfg(test)]
mod tests;

pub(super) use run::{Own, Replayed, all, ram_bytes};
