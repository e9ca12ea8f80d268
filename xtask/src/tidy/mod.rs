//! The house rules, checked by reading what the compiler reads.
//!
//! Sources are found as rustc finds them, from each target's root through its `mod` lines, and
//! parsed; a text search would miss `use crate::{a, fault::b}` and trip over comments. Where a rule
//! has a list (which crate may use which, the order of the rooms, where `unsafe` may stand), the
//! list is a table in a document that people read, marked `<!-- tidy: name -->`. So document and
//! rule cannot part.
//!
//! Each rule has a short name; STYLE.md says why it exists. All rules are functions from a
//! [`Tree`] to [`Finding`]s.

mod finding;
mod lex;
mod table;
mod tree;
mod crates;
mod rooms;
mod sizes;
mod unsafety;
mod words;
mod prose;
mod english;
mod names;
mod circles;
mod api;
mod files;
mod rows;
mod docs;
mod lines;
mod check;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod english_tests;

pub use api::write as write_api;
pub use check::check;
pub use circles::look as circles;
pub use docs::write_readme;
pub use english::look as english;
pub use finding::Finding;
pub(crate) use tree::is_for_tests;
pub use tree::{Package, Source, Tree};
