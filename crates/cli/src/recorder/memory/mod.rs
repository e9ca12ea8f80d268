//! `quire record --memory`: all memory of a process tree, as the host's own kernel reports it.
//!
//! Four parts look at the program, and none of them changes it:
//!
//! ```text
//!   faults    exceptions:page_fault_user, …_kernel   each first touch of a page        [`seen`]
//!   calls     mmap, munmap, mremap, brk, mprotect,   what areas there are, and what
//!             madvise, with their results            takes pages away again
//!   tasks     task_newtask, exec, exit               which thread is in which space    [`weave`]
//!   moments   the tracer, at each exec and exit      the areas that the kernel made by
//!                                                    itself, and the names of files
//! ```
//!
//! Large folios would hide touches: one fault brings 16 pages or 512. So the program runs without
//! (`PR_SET_THP_DISABLE`, which its children inherit); while a process is attached to, all sizes of
//! the host are off, and restored afterwards. Files stay as they are: around a touched page of a
//! file, Linux maps up to fifteen others, and a recording has the one fault with the number of
//! pages that came (`kmem:rss_stat`).
//!
//! The events come as binary records out of the kernel's ring buffers ([`ring`], [`layout`]), one
//! buffer for each CPU, in which each round of [`pipes`] puts events in order by their time.
//!
//! **A recording lacks** touches of pages that are there already, unless [`uses`] samples them:
//! after a first write, how often and when a page is used; after a fork, which pages the child only
//! reads. It lacks pages that the kernel brings in for a call without a fault (the arguments of an
//! exec, `MAP_POPULATE`, direct I/O); a tape says how many faults the kernel counted beyond the
//! touches. Calls of 32-bit programs and System V shared memory are not followed.

mod layout;
mod ring;
mod seen;
mod pipes;
mod weave;
mod begin;
mod uses;
mod run;

pub(super) use run::{Wanted, record};
