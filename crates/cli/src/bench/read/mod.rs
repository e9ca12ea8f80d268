//! `bench read`: what it costs to read a file that is in memory (row B1).
//!
//! A file is read through the cache once, on the hosted machine, and then again and again as
//! `read(2)` would be asked for it: for each piece of a chunk [`Mm::page`](quire::Mm::page)
//! is called, the piece is copied into the program's buffer, and the folio is let go. Beside it,
//! turn by turn, stands the bare copy of the same frames, which it knows from a table. What is
//! lost is the cache's part.
//!
//! Measured besides: a lookup alone, by one thread and by two, beside a map in one lock; and the
//! library's part of a first read, whose device takes no time.

mod args;
mod scene;
mod warm;
mod lookup;
mod cold;
mod naive;
mod measure;
mod goals;
mod say;

pub(crate) use args::ReadArgs;
pub(crate) use measure::{NAME, run};
pub(crate) use say::{label, title};
