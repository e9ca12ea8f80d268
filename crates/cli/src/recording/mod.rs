//! Recordings: the order in which a program first touches the pages of its files.
//!
//! A recording is text, one thing in a line, so that it can be read, compared and checked in:
//!
//! ```text
//!   quire recording 1                      the format's version
//!   program python3.11                     the program's file
//!   note sorts a list                      its work in one line; may be missing
//!   page 4096                              bytes of a page, for all pages below
//!   file 6831736 python3.11                a mapped file (they count from 0), its length
//!   segment r-x 2179072 2964797 4350976    of that file: rights, offset, bytes in it, address
//!   touches 2                              the number of lines that follow, in time order
//!   x 0 532 4                              fetched, file 0, pages 532, 533, 534, 535
//!   r 2 0                                  read, file 2, page 0 alone
//! ```
//!
//! The letters of a touch are `x` (an instruction was fetched), `r` (read, or the kernel read it
//! for a call), `w` (written; the pages are private) and `?` (the host does not say). Each page of
//! a file occurs at most once. Names are without folders: a recording says nothing about the
//! machine it was made on, but for its page size.
//!
//! `text` prints a [`Recording`], `parse` reads it back and says how a damaged one is wrong.
//! `crate::recorder` makes recordings, and documents their limits.

mod model;
mod text;
mod parse;
#[cfg(test)]
mod tests;

pub(crate) use model::{Kind, Recording, Segment, Source, Touch};
