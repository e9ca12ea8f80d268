//! Running a program: the plan for its file, and its first stack.
//!
//! Nothing here touches memory. [`plan`] reads a file and plans its pages; [`stack::build`] makes
//! the bytes of the first stack, [`vdso::build`] those of the object whose functions need no system
//! call; [`script`] looks for `#!`. The kernel carries the plans out. A file is never trusted: each
//! defect is an [`ExecError`] with its place.
//!
//! ```text
//!   script(first bytes) ──► Some: run the interpreter instead (at most 4 deep)
//!        │ None
//!        ▼
//!   plan(file) ──► Plan ──► place(bias) if it may move ──► map segments ──► stack::build ──► run
//! ```

mod error;
mod plan;
mod script;
pub mod stack;
pub mod vdso;

pub use error::ExecError;
pub use plan::{Machine, Plan, Read, Rights, Segment, Space, plan};
pub use script::{SCRIPT_BYTES, Script, script};
