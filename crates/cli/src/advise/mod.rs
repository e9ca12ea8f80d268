//! `quire advise`: which folio sizes a program wants, from a recording of all its memory.
//!
//! ```text
//!   a tape ([`crate::tape`]), read or recorded now                        [`options`]
//!      │ replayed under each sensible setting, by Linux's rules           [`search`], [`linux`]
//!      ▼
//!   faults, resident memory, waste, translations ([`reach`])
//!      │ those that no other setting beats in all of them
//!      │ the program runs under each on this Linux, if asked for          [`verify`], [`measure`]
//!      ▼
//!   the advice: figures, which to choose and why ([`words`]), the lines that set it ([`lines`])
//!      ▼
//!   a table [`show`], or an object [`json`]
//! ```

mod advice;
mod json;
mod library;
mod lines;
mod linux;
mod measure;
mod options;
mod reach;
mod run;
mod search;
mod show;
mod verify;
mod words;

pub(crate) use options::AdviseArgs;
pub(crate) use run::run;
