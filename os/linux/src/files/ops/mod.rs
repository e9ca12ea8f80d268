//! The system calls on files, each a method of [`Calls`] with the call's name. The kernel decodes
//! registers and copies paths; all else is here.
//!
//! `calls` has what they share; `names` opens, makes, removes and renames; `meta` tells and changes
//! what is noted about files; `io` moves bytes; `control` is about descriptors, terminals and
//! mounts.

mod calls;
mod control;
mod io;
mod meta;
mod names;

pub use calls::{Calls, Here};
pub use meta::SetTime;
