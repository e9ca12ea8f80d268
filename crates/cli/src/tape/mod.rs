//! Recordings of *all* memory of a process tree: versions 2 and 3 of the format.
//!
//! Version 1 ([`crate::recording`]) has the first touches of a program's files. Version 2 has the
//! areas of each process, each first touch of each of their pages, and all that takes pages away
//! again, in the order of time. Version 3 also has marks, behind which the use of a page is a touch
//! again. A recording begins with text, one thing in a line:
//!
//! ```text
//!   quire recording 2                 the format's version; 3 with marks
//!   program python3.11                the program's file
//!   note sorts a list                 its work in one line; may be missing
//!   page 4096                         bytes of a page, for all pages below
//!   counted 4711 20971520 1           the kernel's faults, largest process in bytes, processes
//!   limit The trace lost 12 events.   a sentence about the recording; there may be several
//!   file python3.11                   the name of a mapped file, without folders (from 0 on)
//!   body 81920                        the number of bytes behind this line
//! ```
//!
//! The body is a sequence of words of variable length (LEB128). A word whose lowest bit is 0 is a
//! *touch*, and most touches are one or two bytes:
//!
//! ```text
//!   bit 0      0
//!   bits 1–2   0 read, 1 write, 2 fetch of an instruction
//!   bits 3–    the distance from the page touched before (zigzag)
//! ```
//!
//! A word whose lowest bit is 1 has the number of an [`Event`] in the rest; its fields follow as
//! words. [`code`] documents them. `head` reads and prints the text, `old` makes a tape of a
//! recording of version 1, and `crate::recorder::memory` makes new ones.

mod event;
mod code;
mod head;
mod old;
#[cfg(test)]
mod tests;

pub(crate) use code::Writer;
pub(crate) use event::{Access, Advice, Area, Backing, Event, Rights, Span};
pub(crate) use head::{Tape, load, save};
