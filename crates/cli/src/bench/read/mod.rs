//! `bench read`: the cost of reading a file that is in memory (row B1).
//!
//! A file is read through the cache once, on the hosted machine, and then again and again in the
//! chunks of a program's `read(2)`: for each piece of a chunk
//! `Files::read` is called, the piece is copied into the program's buffer,
//! and the folio is released. Beside it, turn by turn, stands the bare copy of the same frames,
//! from a table. The difference is the cost of the cache.
//!
//! Measured besides: a lookup alone, by one thread and by two, beside a map in one lock; and the
//! library's part of a first read, whose device takes no time.

mod scene;
mod warm;
mod lookup;
mod cold;
mod naive;
mod bench;

pub(crate) use bench::{Read, ReadArgs};
