//! A program that is watched: all processes that it starts, each at two moments.
//!
//! ```text
//!   quire ──spawns──► quire hold PROGRAM          [`hold`]: sets what is inherited, and stops
//!     │ seizes                │
//!     └──lets it go on──────► PROGRAM … its children, their threads
//!              after each exec: its areas                                  [`tracer`]
//!              before each exit: its highest resident memory, its faults   [`process`]
//! ```
//!
//! The tracer (`ptrace`) stops a process only when one begins, executes, or ends. Between these
//! moments the program runs as it always does: faults, system calls and addresses are its own.
//!
//! Limits: a program that traces others itself (a debugger) fails. A process that stops itself
//! goes on at once. The areas of a program before its first `exec` are not seen.

mod call;
mod hold;
mod process;
mod tracer;

pub(crate) use call::{fork, page_out};
pub(crate) use hold::{HoldArgs, Manner, hold};
pub(crate) use process::{Figures, Line, Snapshot, areas, tree};
pub(crate) use tracer::{Audience, Tracer};
