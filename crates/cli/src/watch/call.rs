//! System calls that no safe library offers: `ptrace`, `prctl`, `personality`, `fork`.

#![allow(unsafe_code)]

use std::io;

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
