//! House rules, setup and continuous integration of the Quire workspace.
//!
//! * [`tidy`] reads every source file and every document and reports what breaks a house rule.
//! * [`setup`] finds the tools that the other parts need, and installs what it can.
//! * [`ci`] runs all checks, one step after the other, and sums them up (`make test`).
//! * [`job`] runs the benches and writes the report (`make run`).
//! * [`guest`] runs Linux programs in an emulator, on Linux or on Quire's kernel.
//! * [`selftests`] runs Linux's own tests of memory management on both.
//! * [`soak`] runs what takes hours, until something fails (`make soak`).
//! * [`deeper`] fuzzes, and runs the tests under sanitizers and in Miri.
//! * [`mutants`] makes slips on purpose, and looks whether a test notices.
//! * [`text`] measures how much code the features of the library bring.
//! * [`stack`] measures how much stack each call of the library uses.
//! * [`steps`] is how a step is run, timed and told.

pub mod tidy;
pub mod setup;
pub mod steps;
pub mod ci;
pub mod deeper;
pub mod guest;
pub mod job;
mod limit;
pub mod mutants;
pub mod selftests;
pub mod soak;
pub mod stack;
pub mod text;
pub mod tiny;
