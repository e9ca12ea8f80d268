//! `bench exec`: what becomes of a program's text under different ways to read it (row B6).
//!
//! [`library`] has recordings of real programs: in which order they first touched which pages of
//! their files (`crate::recording`). [`replay`] lets a program on the hosted machine touch them in
//! that order, once for each [`policy`]; the library decides what to read and maps it. Then
//! [`text`] looks how the text lies in folios and tables, and [`tlb`] how many translations that
//! takes a CPU:
//!
//! ```text
//!   recording ─► files, areas ─► touch ─► Mm::fault ─► Unread: read what it plans, at once
//!                                  │          └─► mapped; perhaps more is to be read
//!                                  └─► when all are touched: folios, foldable blocks, iTLB misses
//! ```
//!
//! Nothing is timed: all figures are counts, and the same in each run.

mod library;
mod policy;
mod replay;
mod text;
mod tlb;
mod measure;
mod goals;
mod show;

pub(crate) use measure::run;
pub(crate) use show::grid;

/// The bench's name.
pub(crate) const NAME: &str = "exec";
