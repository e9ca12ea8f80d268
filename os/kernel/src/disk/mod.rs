//! Disks: asynchronous requests, and the cache of what they read.
//!
//! **Owns** the disks, their requests, and the pages that came. **Key types**:
//! [`Disk`](device::Disk) (requests and answers), [`Reader`](device::Reader) (the receiver of an
//! answer), [`Pages`] (the cache by place on the disk: names and numbers, devices in `/dev`),
//! [`swap::Device`]. The library caches the content of files, and `files` reads it: one disk has
//! files, which can only be read. **Never** knows what is on the disk, or waits. **Next room**:
//! `task`.
//!
//! ```text
//!   a call lacks a page ──► Pages, files ──submit──► Disk ──► the device     the call is left
//!                             ▲                            │
//!   the call is made again ◄──┴── finished ◄── reap ◄── interrupt: a note, and this CPU looks
//! ```
//!
//! | lock | protects | taken before |
//! |---|---|---|
//! | `files` | which file has which number | the library |
//! | `swap` | which devices there are; of each, what is being written | the library, the disk |
//! | `Pages` | which pages are there | the disk, frames |
//! | the disk | its queue | the heap |
//!
//! They are to the right of all locks of descriptions. Readers get their answers with none of them
//! held.

mod behind;
mod block;
mod claim;
mod copies;
mod device;
mod files;
mod instant;
mod packed;
mod pages;
mod ram;
pub(crate) mod swap;

use claim::Claim;
pub(crate) use copies::{leaving, resolve, want};
use device::Disk;
pub(crate) use device::reap;
pub(crate) use files::{note, shrink, start, start_ahead};
pub(crate) use instant::counts;
pub(crate) use pages::Pages;

use alloc::sync::Arc;

use quire_linux::files::Block;
use quire_linux::{Errno, Result};
use spin::Once;

use crate::{isa, memory};

/// Looks for disks, and sets them up, and devices in memory that the command line asks for. On the
/// boot CPU, once memory is there.
pub(crate) fn init(line: &str) {
    for number in (0..isa::DISKS_MAX).filter(|number| device::init(*number)) {
        isa::listen_to_disk(number);
        memory::set_close_idle(files::close_idle);
    }
    // One may have a disk behind it.
    instant::init(line);
    memory::set_fetch(files::fetch);
    memory::set_bring(copies::bring);
}

/// All block devices, by their names in `/dev`.
pub(crate) fn nodes() -> impl Iterator<Item = (&'static str, Arc<dyn Block>)> {
    block::nodes().chain(instant::nodes())
}

/// The disk that has the files.
static MOUNTED: Once<&'static Disk> = Once::new();

fn mounted() -> Option<&'static Disk> {
    MOUNTED.get().copied()
}

/// Claims the disk of this name in `/dev`, whose files are to be in the tree; once.
///
/// # Errors
/// [`Errno::ENODEV`] when there is none; [`Errno::EBUSY`] when it has an owner.
pub(crate) fn mount(name: &str) -> Result<Arc<Pages>> {
    let pages = block::number_of(name).and_then(block::pages).ok_or(Errno::ENODEV)?;
    pages.disk.claims().claim(Claim::Mounted)?;
    MOUNTED.call_once(|| pages.disk);
    Ok(pages.clone())
}

/// It has no files, after all.
pub(crate) fn unmount() {
    mounted().into_iter().for_each(|disk| disk.claims().unclaim());
}

/// How long boot waits for the disk, in nanoseconds.
const PATIENCE: u64 = 60_000_000_000;

/// Makes a call again until it does not lack pages of the disk: at boot, when there is no thread
/// that could be parked.
///
/// # Errors
/// The call's; [`Errno::ETIMEDOUT`] when the disk does not answer.
pub(crate) fn patiently<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    let end = isa::now() + PATIENCE;
    loop {
        match call() {
            Err(Errno::BLOCKED) if isa::now() < end => reap(),
            Err(Errno::BLOCKED) => return Err(Errno::ETIMEDOUT),
            other => return other,
        }
        core::hint::spin_loop();
    }
}

/// Serves what disks have answered, if one has interrupted.
#[inline]
pub(crate) fn poll() {
    if isa::take_disk_news() {
        reap();
    }
}
