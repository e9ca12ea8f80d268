//! Hot text: which parts of its files a program uses, kept as a map, and read before it starts.
//!
//! ```text
//!   a tape of a program   [`of_tape`]   the pages of files that it fetched or read
//!      ▼
//!   a map of text         [`map`]       runs of pages of files, with their sizes and times
//!      ▼
//!   quire launch          [`launch`]    asks for the runs, and becomes the program
//! ```
//!
//! It needs nothing of the program or its linker, and no right that the program lacks.

mod map;
mod of_tape;
mod launch;

pub(crate) use launch::{LaunchArgs, launch};
pub(crate) use map::Hot;
pub(crate) use of_tape::of_tape;
