//! The lines of `/proc` and `/sys`, to the letter: tools cut them at fixed words and columns.
//!
//! Nothing here knows the source of figures: each type holds the fields of a line, and prints it.
//! The formats are those of `man 5 proc` and of a running Linux.
//!
//! ```text
//!   area   maps, the first line of each area in smaps
//!   folios memory by folio size: folios, and the command `quire maps`
//!   smaps  what an area holds: smaps, smaps_rollup
//!   stat   one line of 52 fields, statm
//!   status the same for readers
//!   words  choices with the active one in brackets; what is written to such files
//! ```

mod area;
mod folios;
mod smaps;
mod stat;
mod status;
#[cfg(test)]
mod tests;
mod words;

pub use area::AreaLine;
pub use folios::{Folding, Folios, Grain, ORDERS, Piece, Share};
pub use smaps::Held;
pub use stat::{Sizes, Stat};
pub use status::{Masks, Peaks, Status};
pub use words::{choices, number, word};
