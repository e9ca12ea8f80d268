//! `cargo xtask selftests`: Linux's own tests of memory management, on Linux and on Quire's kernel,
//! side by side.
//!
//! ```text
//!   Debian: linux-source ──setup──► sources ──build──► static ELF ──root──► a machine for each
//!   table ◄── tap (each test's results) ◄──────────────────── its console ◄─────────┘
//! ```
//!
//! The tests are Linux's: none is checked in or changed. docs/conformance.md holds the results, and
//! says for each failure what is missing.

mod build;
mod list;
mod report;
mod run;
mod tap;

pub use run::{What, run};
