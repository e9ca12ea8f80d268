//! `cargo xtask mutants`: do the tests notice slips of an expert's kind?
//!
//! ```text
//!   functions of the library ─► draw by a seed ─► copy with a switch ─► one build of each kind
//!                                                                               │
//!   rates, survivors ◄─ judge: cheapest first ◄─ first run without a mutant ◄───┘
//!                                                times, and what each test reaches
//! ```
//!
//! cargo-mutants, the well-kept tool for this, builds once for each mutant and knows two kinds of
//! them: another value for a whole body, and another binary operator. Here 100 mutants share one
//! build, and the kinds are those of `operators`: an edge that is one off, a flush that is
//! forgotten, a lock that ends early.
//!
//! * `functions` finds functions, and `operators` the places in them; `siblings` helps.
//! * `draw` chooses, the same for the same seed and sources.
//! * `copy` writes the copy, `build` builds it.
//! * `suites` runs tests, `judge` those that may notice one mutant, `process` one program.
//! * `records` reads the mutants that change nothing, `report` sums up.
//! * `planted` plants slips that people wrote down, for the simulator alone.

mod siblings;
mod operators;
mod functions;
mod draw;
mod records;
mod copy;
mod build;
mod process;
mod suites;
mod judge;
mod report;
mod command;
mod planted;
#[cfg(test)]
mod tests;

pub use command::{What, run};
pub use planted::run as run_planted;
