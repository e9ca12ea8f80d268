//! Compressed memory as a swap device.
//!
//! A [`Pool`] keeps the contents of swap slots, compressed, in pages that the embedder lends it one
//! by one. A *slot* has a number and holds one base page; a folio of order n is a naturally aligned
//! run of 2^n slots, stored with one call and loaded with one call, in whole or in part. There is
//! no heap and no `unsafe`; the pool calls only the trait [`Lender`].
//!
//! ```text
//!   store(run, bytes) ──► units ──► a repeated word? ─────────────────► entry   (no memory)
//!                                   LZ4: shorter by 1/16? ─► object ──► entry + pieces in pages
//!                                   neither: as it is ─────► object ──► entry + pieces in pages
//!
//!   tree: slot ─► entry ─► first piece ─► next piece ─► …            all of it in lent pages
//! ```
//!
//! A *unit* is compressed as one: [`Config`] sets its size, and a smaller run is one unit. **64 KiB
//! is the best unit** for folios that are swapped whole, since LZ4 looks back no further. Measured
//! against units of 4 KiB: source code shrinks by 3.3 instead of 2.2, a heap of small objects by
//! 3.9 instead of 3.7; loading is 1.1 to 1.2 times as fast. Storing such data is as fast as before,
//! within a tenth: LZ4 spends its time in mispredicted branches, about one for each match, and
//! larger units do not have fewer matches. Data that cannot be compressed is detected in half the
//! time. Beyond 64 KiB, the ratio gains 1 to 6 %, and storing is slower because of cache misses.
//!
//! The price: to load a single page, its whole unit is decompressed, 23 µs instead of 2 µs (16 KiB:
//! 7 µs); the next page of the same unit is then copied. The example `throughput` measures all this
//! for your data.
//!
//! # Failing
//!
//! Only [`Pool::store`] takes pages. When there is none, the run that it was to fill is empty, and
//! everything else is as before. All other calls work without a page: loading,
//! [freeing](Pool::free), [compaction](Pool::compact), the search for [cold units](Pool::coldest).
//! So memory pressure never prevents the embedder from making room, and that needs no reserve. A
//! lender that keeps [`Pool::store_pages_max`] pages for stores can always complete one.
//!
//! Each unit has a checksum of 32 bits over its stored bytes and its owner. When other code wrote
//! into a lent page, loading the units that were hit returns an [error](Error::Corrupt), and wrong
//! bytes do not pass for right ones. If the pool's own bookkeeping in these pages was hit, it may
//! lose more units and pages, but it does not panic and does not loop.
//!
//! # Writing back
//!
//! A pool never calls a device. To move cold units to a disk, the embedder asks for them, loads
//! them, writes them, and frees them:
//!
//! ```
//! # use quire_zpool::{ColdRun, Error, Lender, Pool};
//! # fn write_back(
//! #     pool: &mut Pool<'_, impl Lender>,
//! #     write: impl Fn(u64, &[u8]),
//! # ) -> Result<(), Error> {
//! let mut cold = [ColdRun::default(); 16];
//! let found = pool.coldest(&mut cold);
//! for run in &cold[..found] {
//!     let mut bytes = [0; 64 << 10];
//!     let bytes = &mut bytes[..run.count as usize * pool.config().page_bytes()];
//!     pool.load(run.first, run.count, bytes)?;
//!     write(run.first, bytes);
//!     pool.free(run.first, run.count)?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Several CPUs
//!
//! A pool has one user at a time (`&mut`): put it behind a lock. To let CPUs work side by side,
//! create several pools, each for a range of slots, with a lock and scratch memory for each: slots
//! are absolute numbers, and [`Config::new`] takes the range of a pool. Ranges should be multiples
//! of the largest folio. Pools share nothing but, if you like, the lender.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod words;
mod lender;
mod error;
mod config;
mod entry;
mod counters;
mod tree;
mod page;
mod heap;
mod codec;
mod pool;
mod store;
mod load;
mod free;
mod cold;
mod compact;
mod check;

pub use check::Broken;
pub use cold::ColdRun;
pub use config::{Config, Scratch, Table};
pub use counters::{Counters, Stored};
pub use error::{Error, SetupError};
pub use lender::{Lender, PageId};
pub use pool::Pool;

/// The most bytes that may be compressed as one unit.
pub const UNIT_BYTES_MAX: usize = 2 << 20;

/// The end of the slots' numbers: every slot is below it.
pub const SLOT_END: u64 = 1 << 44;
