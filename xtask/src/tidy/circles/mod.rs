//! Files that use each other in a circle, by calls as well as by imports: the table `file-circle`
//! in STYLE.md lists the directories that have none.
//!
//! ```text
//!   sources ──► names (paths) ──► index (methods, fields) ──► calls (uses of each file)
//!           ──► graph (circles among the files of a directory)
//! ```
//!
//! A call counts where the type of its receiver is evident (`self`, a parameter, a field, the
//! result of another call), or where only one type of the crate has a method of that name. Any
//! other call is left out, so a circle that is reported is there. Tests are left out.

mod calls;
mod common;
mod find;
mod graph;
mod index;
mod types;
#[cfg(test)]
mod tests;

pub(crate) use find::check;
pub use find::look;
