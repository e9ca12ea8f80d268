//! `quire advise`: which folio sizes a program wants, from a recording of all its memory.
//!
//! ```text
//!   a tape ([`crate::tape`])
//!      │ replayed under each sensible setting, by Linux's rules        [`linux`]
//!      ▼
//!   faults, resident memory, waste, translations ([`reach`])
//!      │ those that no other setting beats in all of them              [`run`]
//!      ▼
//!   a table, and the lines that set the best
//! ```

mod linux;
mod reach;
mod run;

pub(crate) use run::{AdviseArgs, run};
