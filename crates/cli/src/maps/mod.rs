//! `quire maps`: the folio sizes that programs got from a Linux host, and how these are mapped.
//!
//! ```text
//!   /proc/PID/smaps ────► areas                              [`show`]
//!   /proc/PID/pagemap ──► page → frame     [`process`] ─► pieces ─► quire-linux folds them
//!   /proc/kpageflags ───► frame → folio    [`frames`]               and prints the table
//! ```
//!
//! The kernel in `os/kernel/` prints the same table as `/proc/PID/folios`. A host does not say
//! whether entries are contiguous blocks, so that `-folded` is missing here; `-cont-aligned` are
//! those that *could* be one. Nothing is stopped while it is read: of a program that runs, the
//! figures are close and not exact. Not counted are pages of zeroes, of devices, and hugetlb
//! memory, which RSS leaves out as well.

mod frames;
mod process;
mod show;
#[cfg(test)]
mod tests;

pub(crate) use show::{MapsArgs, run};
