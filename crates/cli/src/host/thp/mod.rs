//! The host's transparent-huge-page settings: read them, borrow them, give them back.
//!
//! To fault in folios of one size the kernel must be told which size, by files below
//! `/sys/kernel/mm/transparent_hugepage` that belong to the whole machine. [`Guard`] remembers
//! every one of them before it changes the first and writes all of them back
//!
//! * when it is dropped: at the end, on an error, on a panic;
//! * when SIGINT, SIGTERM or SIGHUP arrives (a thread waits for them, restores, and exits with
//!   128 + the signal's number);
//! * when the process is killed (`kill -9`): a keeper, a process of its own, writes them back;
//! * at the next start, when even that could not happen: the values are also in a note below
//!   `/run`, which lives exactly as long as the settings do, until the next boot.
//!   The note names its process, so that two runs at a time do not restore each other's values:
//!   the second finds the note of a living process and leaves the settings alone.

mod guard;
mod note;
mod switches;
#[cfg(test)]
mod tests;

pub(crate) use guard::{Guard, folios_given, in_force, settings, switches};
pub(crate) use switches::Switches;
