//! `bench exec`: the layout of a program's text under different ways to read it (row B6).
//!
//! [`library`] has recordings of real programs: the order in which they first touched the pages of
//! their files (`crate::recording`). [`replay`] lets a program on the hosted machine touch them in
//! that order, once for each [`policy`]; the library decides which pages to read and maps them.
//! Then [`text`] finds how the text lies in folios and tables, and [`tlb`] how many translations a
//! CPU needs for it:
//!
//! ```text
//!   recording ─► files, areas ─► touch ─► Mm::fault ─► Unread: read what it plans, at once
//!                                  │          └─► mapped; perhaps more to read
//!                                  └─► when all are touched: folios, foldable blocks, iTLB misses
//! ```
//!
//! Nothing is timed: all figures are counts, and the same in each run.

mod library;
mod policy;
mod replay;
mod text;
mod bench;

pub(crate) use bench::{Exec, ExecArgs};
