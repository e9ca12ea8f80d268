//! `quire bench watch`: a snapshot of a space through a watcher of its writes, row D8.
//!
//! Arm: all memory is protected from writes. Storm: a program writes, and the watcher releases the
//! 64 KiB around each write that it is told of, as it would after copying them. Release: the
//! protection of all memory ends.

mod bench;
mod linux;
mod own;

pub(crate) use bench::{Watch, WatchArgs};
