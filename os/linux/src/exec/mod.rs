//! Running a program: what its file asks for, and what it finds on its stack.
//!
//! Nothing here touches memory. [`plan`] reads a file and says which pages must hold what;
//! [`stack::build`] makes the bytes of the first stack; [`script`] looks for `#!`. The kernel does
//! what they say. A file is never trusted: whatever is wrong with it is an [`ExecError`] that says
//! where.
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

pub use error::ExecError;
pub use plan::{Machine, Plan, Read, Rights, Segment, Space, plan};
pub use script::{SCRIPT_BYTES, Script, script};
