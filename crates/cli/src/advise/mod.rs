//! `quire advise`: which folio sizes a program wants, from a recording of all its memory.
//!
//! ```text
//!   a tape ([`crate::tape`]), read or recorded now                        [`options`]
//!      │ replayed under each sensible setting, by Linux's rules           [`search`], [`linux`]
//!      │ and by the library itself                                        [`library`]
//!      ▼
//!   faults, resident memory, waste, translations ([`reach`])
//!      │ those that no other setting beats in all of them
//!      │ the program runs under each on this Linux, if asked for          [`verify`], [`measure`]
//!      │ the time of faults and walks, by constants of this host           [`cost`]
//!      │ copies of the largest process                                    [`clones`]
//!      │ memory that is not used, of a recording with samples             [`cold`]
//!      ▼
//!   the advice: figures, which to choose and why ([`words`]), the lines that set it ([`lines`])
//!      ▼
//!   a table [`show`], an object [`json`], a page of the report [`sheet`]
//! ```

mod advice;
mod clones;
mod cold;
mod cost;
mod hot;
mod json;
mod layout;
mod library;
mod lines;
mod linux;
mod measure;
mod memory;
mod options;
mod reach;
mod run;
mod search;
mod sheet;
mod snapshot;
mod show;
mod verify;
mod words;

pub(crate) use clones::{StandArgs, stand};
pub(crate) use linux::areas::Areas;
pub(crate) use options::AdviseArgs;
pub(crate) use run::run;
