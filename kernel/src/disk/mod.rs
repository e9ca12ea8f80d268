//! The disk: reads that nobody waits for, and what of it is kept in memory.
//!
//! **Owns** the one disk there may be, what it was asked for, and the pages that came. **Key
//! types**: [`Disk`](device::Disk) (requests and answers), [`Reader`](device::Reader) (whom an
//! answer is for), [`Pages`] (what is kept by its place: names and numbers). What files hold is
//! kept by the library, and read by `files`.
//! **Never** knows what is on the disk, or waits. **Next room**: `task`.
//!
//! ```text
//!   a call lacks a page ──► Pages, files ──submit──► Disk ──► the device     the call is left
//!                             ▲                            │
//!   the call is made again ◄──┴── finished ◄── reap ◄── interrupt: a note, and this CPU looks
//! ```
//!
//! | lock | what it protects | taken before |
//! |---|---|---|
//! | `files` | which file has which number | the library |
//! | `Pages` | which pages are there | the disk, frames |
//! | the disk | its queue | the heap |
//!
//! They are to the right of all locks of descriptions. Answers are told with none of them held.

mod copies;
mod device;
mod files;
mod pages;

pub(crate) use copies::{leaving, resolve, want};
pub(crate) use device::disk;
use device::reap;
pub(crate) use files::{note, start, start_ahead};
pub(crate) use pages::Pages;

use quire_linux::{Errno, Result};

use crate::{isa, memory};

/// Looks for the disk, and sets it up. On the boot CPU, once memory is there.
pub(crate) fn init() {
    if device::init() {
        isa::listen_to_disk();
        memory::set_shrink(files::shrink);
        memory::set_close_idle(files::close_idle);
    }
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

/// Serves what the disk has answered, if it has interrupted.
#[inline]
pub(crate) fn poll() {
    if isa::take_disk_news() {
        reap();
    }
}
