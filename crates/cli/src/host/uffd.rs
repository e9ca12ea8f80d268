//! A watcher of this process's own memory: userfaultfd(2), for protection from writes.

#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::memory::Area;

/// Requests and flags from `linux/userfaultfd.h`: type 0xaa, sizes 24, 32 and 24.
const API: u64 = 0xc018_aa3f;
const REGISTER: u64 = 0xc020_aa00;
const PROTECT: u64 = 0xc018_aa06;
const VERSION: u64 = 0xaa;
/// Faults on protected pages are told (`UFFD_FEATURE_PAGEFAULT_FLAG_WP`).
const TELLS_WRITES: u64 = 1;
const REGISTER_WRITES: u64 = 1 << 1;
const PROTECT_ON: u64 = 1;
/// A message has 32 bytes; that of a fault begins with this one, and has the address at byte 16.
const MESSAGE: usize = 32;
const FAULT: u8 = 0x12;

/// The watcher of an area. The kernel ends all protection, and wakes those that wait, when it is
/// dropped.
pub(crate) struct Uffd {
    fd: OwnedFd,
    /// The area's address.
    start: u64,
}

impl Uffd {
    /// A watcher of `area`, all of it.
    pub(crate) fn of(area: &mut Area) -> io::Result<Uffd> {
        // SAFETY: The call takes numbers only.
        let fd =
            unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: The kernel has just made the descriptor for this process; nothing else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        let bytes = area.bytes();
        let (start, len) = (bytes.as_ptr().addr() as u64, bytes.len() as u64);
        let uffd = Uffd { fd, start };
        uffd.ask(API, &mut [VERSION, TELLS_WRITES, 0])?;
        uffd.ask(REGISTER, &mut [start, len, REGISTER_WRITES, 0])?;
        Ok(uffd)
    }

    /// Protects these bytes of the area from writes, or ends that and wakes those that wait there.
    pub(crate) fn protect(&self, bytes: Range<u64>, on: bool) -> io::Result<()> {
        let (start, len) = (self.start + bytes.start, bytes.end - bytes.start);
        self.ask(PROTECT, &mut [start, len, if on { PROTECT_ON } else { 0 }])
    }

    /// The byte of the area whose write waits; `None` where there was none for a tenth of a second.
    pub(crate) fn next(&self) -> io::Result<Option<u64>> {
        let tenth = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        if poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&tenth))? == 0 {
            return Ok(None);
        }
        let mut message = [0; MESSAGE];
        match rustix::io::read(&self.fd, &mut message) {
            Ok(MESSAGE) if message[0] == FAULT => {
                let address = message[16..24].try_into().map(u64::from_ne_bytes);
                Ok(address.ok().map(|address| address - self.start))
            }
            Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn ask<const N: usize>(&self, request: u64, words: &mut [u64; N]) -> io::Result<()> {
        // SAFETY: The kernel reads and writes as many bytes as the request's number says, which are
        // those of `words`. The addresses in it are those of an `Area` of this process: protection
        // changes no byte, and a write there waits until another thread ends it.
        let done = unsafe { libc::ioctl(self.fd.as_raw_fd(), request as _, words.as_mut_ptr()) };
        if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
