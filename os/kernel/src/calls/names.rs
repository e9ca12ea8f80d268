//! Calls on paths: each copies its path, and asks [`quire_linux::files`]. The old forms of
//! x86-64, which begin at the working directory, are at the end.

use alloc::vec::Vec;

use linux_raw_sys::general as abi;
use quire_linux::files::{PATH_MAX, SetTime};
use quire_linux::{Errno, Result};

use super::files::{answer, report_size};
use super::pieces::Pieces;
use crate::memory::{PAGE, user};
use crate::task::tree::with_calls;
use crate::task::{Answer, Thread};

/// The longest name of a file system, in bytes, with its zero.
const KIND_MAX: usize = 64;

/// The path at `address`.
///
/// # Errors
/// `EFAULT`, `ENAMETOOLONG`, `ENOMEM`.
fn path(address: usize) -> Result<Vec<u8>> {
    user::string(address as u64, PATH_MAX)
}

/// The same; with `AT_EMPTY_PATH`, none at all counts as an empty one, as on Linux.
fn path_or_none(address: usize, flags: usize) -> Result<Vec<u8>> {
    if address == 0 && flags & abi::AT_EMPTY_PATH as usize != 0 {
        return Ok(Vec::new());
    }
    path(address)
}

/// A call on files that gives nothing.
macro_rules! done {
    ($thread:ident, $call:expr) => {{
        with_calls($thread, $call)?;
        Ok(0)
    }};
}

pub(super) fn openat(thread: &mut Thread, [dir, name, flags, mode, ..]: [usize; 6]) -> Answer {
    let name = path(name)?;
    let open = |calls: &quire_linux::files::Calls<'_>| {
        calls.openat(dir as i32, &name, flags as u32, mode as u32)
    };
    answer(with_calls(thread, open).map(|fd| fd as usize))
}

/// The longest name of a `memfd_create` with its zero, and one more byte.
const MEMFD_NAME_ROOM: usize = 251;

pub(super) fn memfd_create(thread: &mut Thread, [name, flags, ..]: [usize; 6]) -> Answer {
    crate::memory::admit()?;
    let name = user::string(name as u64, MEMFD_NAME_ROOM).map_err(|error| match error {
        Errno::ENAMETOOLONG => Errno::EINVAL,
        other => other,
    })?;
    Ok(with_calls(thread, |calls| calls.memfd_create(&name, flags as u32))? as usize)
}

pub(super) fn newfstatat(thread: &mut Thread, [dir, name, out, flags, ..]: [usize; 6]) -> Answer {
    let name = path_or_none(name, flags)?;
    let about = with_calls(thread, |calls| calls.newfstatat(dir as i32, &name, flags as u32))?;
    user::write_bytes(out as u64, &about)?;
    Ok(0)
}

pub(super) fn statx(thread: &mut Thread, [dir, name, flags, mask, out, _]: [usize; 6]) -> Answer {
    let name = path_or_none(name, flags)?;
    let about =
        with_calls(thread, |calls| calls.statx(dir as i32, &name, flags as u32, mask as u32))?;
    user::write_bytes(out as u64, &about)?;
    Ok(0)
}

pub(super) fn statfs(thread: &mut Thread, [name, out, ..]: [usize; 6]) -> Answer {
    let name = path(name)?;
    let about = with_calls(thread, |calls| calls.statfs(&name))?;
    user::write_bytes(out as u64, &about)?;
    Ok(0)
}

pub(super) fn readlinkat(thread: &mut Thread, [dir, name, out, count, ..]: [usize; 6]) -> Answer {
    // The count is an int.
    let count = usize::try_from(count as i32).map_err(|_| Errno::EINVAL)?;
    let name = path(name)?;
    let mut to = Pieces::unchecked(out, count);
    Ok(with_calls(thread, |calls| calls.readlinkat(dir as i32, &name, count, &mut to))?)
}

pub(super) fn mkdirat(thread: &mut Thread, [dir, name, mode, ..]: [usize; 6]) -> Answer {
    let name = path(name)?;
    done!(thread, |calls| calls.mkdirat(dir as i32, &name, mode as u32))
}

pub(super) fn mknodat(thread: &mut Thread, [dir, name, mode, device, ..]: [usize; 6]) -> Answer {
    let name = path(name)?;
    // The device is an unsigned int, and the mode a short.
    let (mode, device) = (u32::from(mode as u16), u64::from(device as u32));
    done!(thread, |calls| calls.mknodat(dir as i32, &name, mode, device))
}

pub(super) fn unlinkat(thread: &mut Thread, [dir, name, flags, ..]: [usize; 6]) -> Answer {
    let name = path(name)?;
    done!(thread, |calls| calls.unlinkat(dir as i32, &name, flags as u32))
}

pub(super) fn renameat2(
    thread: &mut Thread,
    [old_dir, old, dir, name, flags, _]: [usize; 6],
) -> Answer {
    let (old, name) = (path(old)?, path(name)?);
    done!(thread, |calls| {
        calls.renameat2(old_dir as i32, &old, dir as i32, &name, flags as u32)
    })
}

#[cfg(not(target_arch = "riscv64"))]
pub(super) fn renameat(thread: &mut Thread, [old_dir, old, dir, name, ..]: [usize; 6]) -> Answer {
    renameat2(thread, [old_dir, old, dir, name, 0, 0])
}

pub(super) fn linkat(
    thread: &mut Thread,
    [old_dir, old, dir, name, flags, _]: [usize; 6],
) -> Answer {
    let (old, name) = (path_or_none(old, flags)?, path(name)?);
    done!(thread, |calls| calls.linkat(old_dir as i32, &old, dir as i32, &name, flags as u32))
}

pub(super) fn symlinkat(thread: &mut Thread, [target, dir, name, ..]: [usize; 6]) -> Answer {
    let (target, name) = (path(target)?, path(name)?);
    done!(thread, |calls| calls.symlinkat(&target, dir as i32, &name))
}

/// It has no flags; `fchmodat2` has.
pub(super) fn fchmodat(thread: &mut Thread, [dir, name, mode, ..]: [usize; 6]) -> Answer {
    fchmodat2(thread, [dir, name, mode, 0, 0, 0])
}

pub(super) fn fchmodat2(thread: &mut Thread, [dir, name, mode, flags, ..]: [usize; 6]) -> Answer {
    let name = path_or_none(name, flags)?;
    done!(thread, |calls| calls.fchmodat(dir as i32, &name, mode as u32, flags as u32))
}

pub(super) fn fchownat(thread: &mut Thread, [dir, name, uid, gid, flags, _]: [usize; 6]) -> Answer {
    let name = path_or_none(name, flags)?;
    done!(thread, |calls| {
        calls.fchownat(dir as i32, &name, uid as u32, gid as u32, flags as u32)
    })
}

pub(super) fn utimensat(thread: &mut Thread, [dir, name, times, flags, ..]: [usize; 6]) -> Answer {
    let times = match times {
        0 => [SetTime::Now; 2],
        _ => {
            let [read, read_nanos, change, change_nanos] = user::read::<[i64; 4]>(times as u64)?;
            [SetTime::of(read, read_nanos)?, SetTime::of(change, change_nanos)?]
        }
    };
    set_times(thread, dir, name, times, flags)
}

/// No path means `dir` itself, if that is an open file.
fn set_times(
    thread: &Thread,
    dir: usize,
    name: usize,
    times: [SetTime; 2],
    flags: usize,
) -> Answer {
    let name = match name {
        0 if dir as i32 != abi::AT_FDCWD => None,
        _ => Some(path_or_none(name, flags)?),
    };
    if name.is_none() && flags & !(abi::AT_EMPTY_PATH as usize) != 0 {
        return Err(Errno::EINVAL.into());
    }
    done!(thread, |calls| calls.utimensat(dir as i32, name.as_deref(), times, flags as u32))
}

pub(super) fn truncate(thread: &mut Thread, [name, length, ..]: [usize; 6]) -> Answer {
    let name = path(name)?;
    let done = with_calls(thread, |calls| calls.truncate(&name, length as i64));
    report_size(thread, done.err(), done)?;
    Ok(0)
}

/// It has no flags; `faccessat2` has.
pub(super) fn faccessat(thread: &mut Thread, [dir, name, rights, ..]: [usize; 6]) -> Answer {
    faccessat2(thread, [dir, name, rights, 0, 0, 0])
}

pub(super) fn faccessat2(
    thread: &mut Thread,
    [dir, name, rights, flags, ..]: [usize; 6],
) -> Answer {
    let name = path_or_none(name, flags)?;
    done!(thread, |calls| calls.faccessat2(dir as i32, &name, rights as u32, flags as u32))
}

pub(super) fn chdir(thread: &mut Thread, [name, ..]: [usize; 6]) -> Answer {
    let name = path(name)?;
    done!(thread, |calls| calls.chdir(&name))
}

pub(super) fn getcwd(thread: &mut Thread, [out, count, ..]: [usize; 6]) -> Answer {
    let mut to = Pieces::unchecked(out, count);
    Ok(with_calls(thread, |calls| calls.getcwd(count, &mut to))?)
}

pub(super) fn umask(thread: &mut Thread, [mask, ..]: [usize; 6]) -> Answer {
    Ok(with_calls(thread, |calls| calls.umask(mask as u32)) as usize)
}

pub(super) fn mount(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [_, name, kind, flags, options, _] = args;
    may_mount(thread)?;
    let kind = match kind {
        0 => Vec::new(),
        _ => user::string(kind as u64, KIND_MAX).map_err(|errno| match errno {
            Errno::ENAMETOOLONG => Errno::ENODEV,
            other => other,
        })?,
    };
    let name = path(name)?;
    let options = match options {
        0 => Vec::new(),
        at => user::string(at as u64, PAGE as usize)?,
    };
    done!(thread, |calls| calls.mount(&name, &kind, flags as u64, &options))
}

/// Whether the caller may mount, and end that.
///
/// # Errors
/// `EPERM`.
fn may_mount(thread: &Thread) -> Result<()> {
    let may = thread.process().may().can(abi::CAP_SYS_ADMIN);
    if may { Ok(()) } else { Err(Errno::EPERM) }
}

pub(super) fn umount2(thread: &mut Thread, [name, flags, ..]: [usize; 6]) -> Answer {
    // MNT_FORCE, MNT_DETACH, MNT_EXPIRE, UMOUNT_NOFOLLOW.
    if flags & !15 != 0 {
        return Err(Errno::EINVAL.into());
    }
    may_mount(thread)?;
    let name = path(name)?;
    done!(thread, |calls| calls.umount2(&name))
}

#[cfg(target_arch = "x86_64")]
mod old {
    //! Calls that only x86-64 has: each is the newer one, from the working directory.

    use linux_raw_sys::general as abi;
    use quire_linux::files::SetTime;

    use super::Errno;
    use crate::memory::user;
    use crate::task::{Answer, Thread};

    /// The working directory, as an argument.
    const HERE: usize = abi::AT_FDCWD as usize;
    const NOFOLLOW: usize = abi::AT_SYMLINK_NOFOLLOW as usize;

    /// Name: which newer call, and its arguments after the directory.
    macro_rules! old {
        ($($name:ident($($arg:pat),*) => $new:ident($($given:expr),*);)*) => {
            $(pub(in super::super) fn $name(
                thread: &mut Thread,
                [$($arg),*, ..]: [usize; 6],
            ) -> Answer {
                let mut args = [0; 6];
                args.iter_mut().zip([$($given),*]).for_each(|(arg, given)| *arg = given);
                super::$new(thread, args)
            })*
        };
    }

    old! {
        open(name, flags, mode) => openat(HERE, name, flags, mode);
        creat(name, mode) => openat(HERE, name, CREAT, mode);
        stat(name, out) => newfstatat(HERE, name, out, 0);
        lstat(name, out) => newfstatat(HERE, name, out, NOFOLLOW);
        readlink(name, out, count) => readlinkat(HERE, name, out, count);
        mkdir(name, mode) => mkdirat(HERE, name, mode);
        mknod(name, mode, device) => mknodat(HERE, name, mode, device);
        unlink(name) => unlinkat(HERE, name, 0);
        rmdir(name) => unlinkat(HERE, name, abi::AT_REMOVEDIR as usize);
        rename(old, name) => renameat2(HERE, old, HERE, name, 0);
        link(old, name) => linkat(HERE, old, HERE, name, 0);
        symlink(target, name) => symlinkat(target, HERE, name);
        chmod(name, mode) => fchmodat(HERE, name, mode);
        chown(name, uid, gid) => fchownat(HERE, name, uid, gid, 0);
        lchown(name, uid, gid) => fchownat(HERE, name, uid, gid, NOFOLLOW);
        access(name, rights) => faccessat(HERE, name, rights);
        utimes(name, times) => futimesat(HERE, name, times);
    }

    const CREAT: usize = (abi::O_CREAT | abi::O_WRONLY | abi::O_TRUNC) as usize;

    /// Times in whole seconds.
    pub(in super::super) fn utime(thread: &mut Thread, [name, times, ..]: [usize; 6]) -> Answer {
        let times = match times {
            0 => [SetTime::Now; 2],
            _ => {
                let [read, change] = user::read::<[i64; 2]>(times as u64)?;
                [SetTime::of(read, 0)?, SetTime::of(change, 0)?]
            }
        };
        super::set_times(thread, HERE, name, times, 0)
    }

    /// Times in microseconds.
    pub(in super::super) fn futimesat(
        thread: &mut Thread,
        [dir, name, times, ..]: [usize; 6],
    ) -> Answer {
        let of = |seconds, micros: i64| match micros {
            0..1_000_000 => SetTime::of(seconds, micros * 1000),
            _ => Err(Errno::EINVAL),
        };
        let times = match times {
            0 => [SetTime::Now; 2],
            _ => {
                let [read, read_micros, change, change_micros] =
                    user::read::<[i64; 4]>(times as u64)?;
                [of(read, read_micros)?, of(change, change_micros)?]
            }
        };
        super::set_times(thread, dir, name, times, 0)
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use old::*;
