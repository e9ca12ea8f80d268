//! Swap devices, and `MADV_PAGEOUT`.

use linux_raw_sys::general as abi;
use quire::units::{PageSpan, Vpn};
use quire::{Need, Scope};
use quire_linux::files::{Body, Number, PATH_MAX};
use quire_linux::{Errno, Result};

use super::watch;
use crate::disk::{self, swap};
use crate::isa;
use crate::memory::{Memory, errno, mm, user};
use crate::task::tree::with_calls;
use crate::task::{Answer, Resume, Stop, Thread, processes};

/// Flags of `swapon` (linux/swap.h).
const PREFER: usize = 0x8000;
const PRIORITY: usize = 0x7fff;
const DISCARD: usize = 0x7_0000;

/// Retries of `swapoff` for a device with transfers in flight, and the pause before each.
const TRIES: usize = 500;
const PAUSE_NS: u64 = 2_000_000;

/// The path at `address`, and the block device that it leads to.
///
/// # Errors
/// Those of paths; `EISDIR`; `EINVAL` for other files: only block devices can be swapped to.
fn device_at(thread: &Thread, address: usize) -> Result<(alloc::vec::Vec<u8>, Number)> {
    let path = user::string(address as u64, PATH_MAX)?;
    let spot = with_calls(thread, |calls| calls.find(abi::AT_FDCWD, &path))?;
    let node = spot.node.ok_or(Errno::ENOENT)?;
    if node.is_directory() {
        return Err(Errno::EISDIR);
    }
    let Body::Block(block) = node.body() else { return Err(Errno::EINVAL) };
    Ok((path, block.number()))
}

pub(super) fn swapon(thread: &mut Thread, [path, flags, ..]: [usize; 6]) -> Answer {
    if flags & !(PREFER | PRIORITY | DISCARD) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let (path, number) = device_at(thread, path)?;
    let priority = (flags & PREFER != 0).then_some((flags & PRIORITY) as i32);
    with_calls(thread, |calls| swap::on(calls.who, number, path, priority))?;
    Ok(0)
}

pub(super) fn swapoff(thread: &mut Thread, [path, ..]: [usize; 6]) -> Answer {
    let (_, number) = device_at(thread, path)?;
    let device = swap::on_block(number).ok_or(Errno::EINVAL)?;
    mm().paging().swap_closing(device.id, true).map_err(errno)?;
    let emptied = empty(thread, &device);
    let done = match emptied {
        Ok(()) => with_calls(thread, |calls| device.off(calls.who)).map_err(Stop::from),
        Err(stop) => Err(stop),
    };
    match done {
        Ok(()) => Ok(0),
        // Another CPU works on a page of it just now.
        Err(Stop::Fail(Errno::EBUSY)) if tries(thread) < TRIES => {
            thread.resume = Resume::Moved(tries(thread) + 1);
            Err(Stop::Wait(Some(isa::now() + PAUSE_NS)))
        }
        Err(stop @ Stop::Fail(_)) => {
            // The device is in use then, without another reason for the error.
            let _ = mm().paging().swap_closing(device.id, false);
            Err(stop)
        }
        Err(stop) => Err(stop),
    }
}

fn tries(thread: &Thread) -> usize {
    match thread.resume {
        Resume::Moved(count) => count,
        _ => 0,
    }
}

/// Brings back all pages of processes and of files in memory on a device.
fn empty(thread: &Thread, device: &swap::Device) -> core::result::Result<(), Stop> {
    for id in mm().files().ids() {
        // One that is closed meanwhile has none.
        while let Some(page) = mm().paging().next_away(id, device.id, 0) {
            with_pages(thread, || mm().paging().bring_back(id, page))?;
        }
    }
    let mut next = processes(1);
    while let Some(process) = next {
        if let Some(memory) = process.memory() {
            empty_space(thread, device, &memory)?;
        }
        next = processes(process.pid + 1);
    }
    Ok(())
}

fn empty_space(
    thread: &Thread,
    device: &swap::Device,
    memory: &Memory,
) -> core::result::Result<(), Stop> {
    let mut from = Vpn::new(0);
    while let Some(page) = mm().paging().next_swapped(memory.space(), device.id, from) {
        match with_pages(thread, || mm().paging().swap_in_page(memory.space(), page)) {
            // Unmapped in between.
            Ok(()) | Err(Stop::Fail(Errno::EFAULT)) => {}
            Err(stop) => {
                swap::start_around(memory, page);
                return Err(stop);
            }
        }
        // Pages that were only prepared are found by the next pass.
        from = page;
        if mm().paging().next_swapped(memory.space(), device.id, page) == Some(page) {
            from = page.add(1);
        }
    }
    Ok(())
}

/// Calls `act`; where it lacks pages of a disk, requests them, and the call is made again.
///
/// # Errors
/// [`Stop::Read`] then; the errors of `act`.
pub(super) fn with_pages<T, E: Into<quire::Stop>>(
    thread: &Thread,
    mut act: impl FnMut() -> core::result::Result<T, E>,
) -> core::result::Result<T, Stop> {
    loop {
        match act().map_err(E::into) {
            Err(quire::Stop::Need(Need::Read(reads))) if swap::at_once(reads) => {}
            Err(quire::Stop::Need(_)) => break,
            other => return other.map_err(|error| errno(error).into()),
        }
    }
    // Register first, then try again: so no answer is missed.
    with_calls(thread, |calls| disk::note(calls.who.wake))?;
    match act().map_err(E::into) {
        Err(quire::Stop::Need(Need::Wait(_))) => Err(Stop::Read),
        Err(quire::Stop::Need(Need::Read(reads))) => {
            match with_calls(thread, |calls| disk::start(calls.who, reads)) {
                Ok(()) | Err(Errno::BLOCKED) => Err(Stop::Read),
                Err(error) => Err(error.into()),
            }
        }
        Err(quire::Stop::Need(Need::Watcher(event))) => {
            let stop = watch::wait(thread, event);
            match act().map_err(E::into) {
                Err(quire::Stop::Need(_)) => Err(stop),
                other => other.map_err(|error| errno(error).into()),
            }
        }
        other => other.map_err(|error| errno(error).into()),
    }
}

/// Begins to page out the pages of `span` that no other space maps. Without a device nothing
/// leaves, as on Linux.
///
/// # Errors
/// `EINVAL` for pages that are not the program's.
pub(super) fn page_out(memory: &Memory, span: PageSpan) -> Result<()> {
    let no_others: &[&quire::space::Space<isa::Format>] = &[];
    match mm().paging().page_out(memory.space(), span, Scope::Own, no_others) {
        Ok(_) => Ok(()),
        Err(error) => Err(errno(error)),
    }
}

/// Ends a call that has paged out with this result: once all is written.
///
/// # Errors
/// [`Stop::Read`] until then; the call is made again only for this.
pub(super) fn written(thread: &mut Thread, result: usize) -> Answer {
    swap::begin_writing();
    written_again(thread, result)
}

/// The part of such a call that runs again when the call is restarted.
///
/// # Errors
/// As for [`written`].
pub(super) fn written_again(thread: &mut Thread, result: usize) -> Answer {
    match with_calls(thread, |calls| swap::settle(calls.who)) {
        Ok(()) => Ok(result),
        Err(error) => {
            thread.resume = Resume::Moved(result);
            Err(error.into())
        }
    }
}
