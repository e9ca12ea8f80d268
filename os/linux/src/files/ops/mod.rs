//! The system calls on files, each a method of [`Calls`] with the call's name. The kernel decodes
//! registers and copies paths; all else is here.
//!
//! `calls` has their context; `names` opens, makes, removes and renames; `meta` reads and changes
//! metadata; `io` moves bytes; `control` is about descriptors, terminals and mounts.

mod calls;
mod control;
mod io;
mod meta;
mod names;

pub use calls::{Calls, Here};
pub use meta::SetTime;
