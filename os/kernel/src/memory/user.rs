//! Program memory, seen from the kernel.
//!
//! No address that a program names is trusted. It is copied from or to by one instruction that may
//! fault; a fault brings the page in, as the program's own access would, or ends the copy with
//! `EFAULT`. No reference to program memory ever exists.

use alloc::vec::Vec;

use quire::hw::FrameRun;
use quire_linux::{Errno, Result};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{PAGE, canary, mm};
use crate::isa;

/// Whether `bytes` bytes from `address` on may be the program's at all.
fn is_below(address: u64, bytes: usize) -> bool {
    address.checked_add(bytes as u64).is_some_and(|end| end <= isa::USER_END)
}

/// Copies `to.len()` bytes of program memory.
///
/// # Errors
/// `EFAULT`, without the number of bytes that were copied.
pub(crate) fn read_bytes(address: u64, to: &mut [u8]) -> Result<()> {
    if !is_below(address, to.len()) {
        return Err(Errno::EFAULT);
    }
    // SAFETY: `to` is ours to write, and the other side lies below the end of program memory.
    let left = unsafe { isa::copy_user(to.as_mut_ptr(), address as *const u8, to.len()) };
    if left == 0 { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Copies program memory into all of `run`.
///
/// # Errors
/// `EFAULT`; some of it may have been written.
pub(crate) fn read_frames(address: u64, run: &FrameRun) -> Result<()> {
    let bytes = (run.count() * PAGE) as usize;
    if !is_below(address, bytes) {
        return Err(Errno::EFAULT);
    }
    let to = mm().hardware().address(run.start());
    // SAFETY: the frames are the caller's alone, and consecutive in the direct map; the other side
    // lies below the end of program memory.
    let left = unsafe { isa::copy_user(to, address as *const u8, bytes) };
    if left == 0 { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Copies `from` into program memory.
///
/// # Errors
/// `EFAULT`; some of it may have been written.
pub(crate) fn write_bytes(address: u64, from: &[u8]) -> Result<()> {
    if !is_below(address, from.len()) {
        return Err(Errno::EFAULT);
    }
    if canary::is_on() {
        canary::look_at_bytes(address, from);
    }
    // SAFETY: `from` can be read, and what is written lies below the end of program memory.
    let left = unsafe { isa::copy_user(address as *mut u8, from.as_ptr(), from.len()) };
    if left == 0 { Ok(()) } else { Err(Errno::EFAULT) }
}

/// A value out of program memory.
///
/// # Errors
/// `EFAULT`.
pub(crate) fn read<T: FromBytes + IntoBytes>(address: u64) -> Result<T> {
    let mut value = T::new_zeroed();
    read_bytes(address, value.as_mut_bytes())?;
    Ok(value)
}

/// Puts a value into program memory.
///
/// # Errors
/// `EFAULT`.
pub(crate) fn write<T: IntoBytes + Immutable>(address: u64, value: &T) -> Result<()> {
    write_bytes(address, value.as_bytes())
}

/// A string that ends with a zero, without it.
///
/// # Errors
/// `EFAULT`; `ENAMETOOLONG` when it has `most` bytes or more; `ENOMEM`.
pub(crate) fn string(address: u64, most: usize) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut piece = [0; 256];
    while text.len() < most {
        let at = address.checked_add(text.len() as u64).ok_or(Errno::EFAULT)?;
        // Up to the end of a page at most: the next one need not be there.
        let room = piece.len().min(most - text.len()).min(4096 - at as usize % 4096);
        read_bytes(at, &mut piece[..room])?;
        let end = piece[..room].iter().position(|byte| *byte == 0);
        text.try_reserve(room).map_err(|_| Errno::ENOMEM)?;
        text.extend_from_slice(&piece[..end.unwrap_or(room)]);
        if end.is_some() {
            return Ok(text);
        }
    }
    Err(Errno::ENAMETOOLONG)
}
