//! `quire record`: the order in which a program first touches the pages of its ELF files, from a
//! Linux host's kernel, page by page.
//!
//! A fault would show less: around the page that a program touches, Linux maps up to fifteen others
//! that are in the page cache (fault-around), and reads up to 31 more from the disk (read-around).
//! So the recorder has every first touch *read its page from a disk that reads one page at a time*:
//!
//! ```text
//!   1 private   a mount namespace of its own: no other process sees the mounts, and they end with
//!               the last process in it                                                 [`run`]
//!   2 files     the program runs once, to learn which ELF files it maps                 [`files`]
//!   3 cold      copies of these in a file system of their own on a loop device, whose read-ahead
//!               is 0; freshly mounted, nothing of it is cached; each copy is mounted over its
//!               original                                                                [`cold`]
//!   4 trace     the program runs again, under its usual paths. Each page that comes into the cache
//!               is an event, and so is the fault that brought it             [`trace`], [`events`]
//! ```
//!
//! No setting of the machine is changed: read-ahead is that of the loop device, events are those of
//! a trace instance of its own. Both, and the mounts, are given back at the end and on a signal;
//! after `kill -9` the mounts go by themselves, and the next recording removes the instance.
//!
//! **A recording has** each page of these files at its *first* touch, in the order of time,
//! with the kind of the first touch, where the kernel reports it (x86 and riscv; elsewhere `?`).
//! Processes and threads that the program starts are in the same order.
//!
//! **A recording lacks** later touches, of the same process or another: it shows how text gets in,
//! and not how often it is used. It also lacks files that are no ELF, or that a process mapped too
//! shortly to be seen in the first run. Pages that the kernel and the loader read by system calls
//! (the first page of each file) count as read. The program runs twice: files that it leaves behind
//! the first time exist the second time.

mod program;
mod run;
mod files;
mod cold;
mod trace;
mod events;
mod tool;
mod memory;

pub(crate) use run::{Bounds, RecordArgs, duration, prepare, run, tape};
pub(crate) use tool::program as find;
