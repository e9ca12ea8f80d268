//! System calls that no safe library offers: `ptrace`, `prctl`, `personality`, `fork`, and
//! `process_madvise`.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Requests and options of `ptrace`, from its manual page.
const SEIZE: u32 = 0x4206;
const CONT: u32 = 7;
const LISTEN: u32 = 0x4208;

/// Stops at the moments that the tracer wants: fork, vfork, clone, exec, exit.
pub(super) const MOMENTS: usize = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 6;
/// The traced processes end with the tracer.
pub(super) const END_WITH_US: usize = 1 << 20;

fn ptrace(request: u32, pid: i32, data: usize) -> io::Result<()> {
    // SAFETY: These requests take numbers and no addresses: the kernel neither reads nor writes
    // memory of this process for them. The traced process is another one.
    let done = unsafe { libc::ptrace(request as _, pid, 0_usize, data) };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Traces a thread, which goes on running.
pub(super) fn seize(pid: i32, options: usize) -> io::Result<()> {
    ptrace(SEIZE, pid, options)
}

/// Lets a stopped thread go on, and gives it a signal unless that is 0.
pub(super) fn go_on(pid: i32, signal: i32) -> io::Result<()> {
    ptrace(CONT, pid, signal as usize)
}

/// Leaves a thread stopped, as its user wanted, until a signal continues it.
pub(super) fn listen(pid: i32) -> io::Result<()> {
    ptrace(LISTEN, pid, 0)
}

/// This process and all that it starts get no large folios of anonymous memory.
pub(super) fn no_large_folios() -> io::Result<()> {
    let (on, none): (libc::c_ulong, libc::c_ulong) = (1, 0);
    // SAFETY: This request takes numbers and no addresses, and changes how the kernel chooses
    // the sizes of folios, which no program can see in its memory.
    let done = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, on, none, none, none) };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The next program, and all that it starts, has the same addresses in each run.
pub(super) fn same_addresses() -> io::Result<()> {
    // SAFETY: The argument is a number; it changes the layout of programs that are executed later,
    // and nothing of this one.
    let done = unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Areas of one call of `process_madvise` (`IOV_MAX`).
const AREAS: usize = 1024;

/// Pages the areas of another process out that lie between these addresses, as far as each page has
/// no other user; returns the bytes that the kernel looked at.
///
/// # Errors
/// Those of `process_madvise`: no permission, or no such call (before Linux 5.10).
pub(crate) fn page_out(process: BorrowedFd<'_>, areas: &[(u64, u64)]) -> io::Result<u64> {
    let mut bytes = 0;
    for part in areas.chunks(AREAS) {
        let area = |(start, end): &(u64, u64)| libc::iovec {
            iov_base: std::ptr::without_provenance_mut(*start as usize),
            iov_len: end.saturating_sub(*start) as usize,
        };
        let all: Vec<libc::iovec> = part.iter().map(area).collect();
        let (fd, none) = (process.as_raw_fd(), 0_usize);
        // SAFETY: The kernel reads `all`, which lives until the call is over, and `all.len()` is
        // its length. The addresses in it are of another process, which the descriptor names, and
        // this advice changes where its pages are kept and not what they hold.
        let done = unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                fd,
                all.as_ptr(),
                all.len(),
                libc::MADV_PAGEOUT,
                none,
            )
        };
        bytes += u64::try_from(done).map_err(|_| io::Error::last_os_error())?;
    }
    Ok(bytes)
}

/// Copies this process: 0 in the copy, and its number in the parent.
///
/// # Errors
/// Those of `fork`; also when the process has other threads.
pub(crate) fn fork() -> io::Result<i32> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("a process with threads is not copied"));
    }
    // SAFETY: The process has one thread, which is this one, and only this thread could start
    // another. So no lock is held and no invariant is broken by a thread that the copy lacks: the
    // copy is the same process with the same thread.
    let pid = unsafe { libc::fork() };
    if pid == -1 { Err(io::Error::last_os_error()) } else { Ok(pid) }
}
