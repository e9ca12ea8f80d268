//! Calls about descriptors, terminals and mounts.

use linux_raw_sys::general as raw;

use super::calls::{Calls, only};
use crate::files::block;
use crate::files::call::{Sink, Source};
use crate::files::console::Console;
use crate::files::data::{Data, Reserved};
use crate::files::device::Device;
use crate::files::node::Body;
use crate::files::open::Description;
use crate::files::pipe;
use crate::files::termios::{BYTES, BYTES2, Termios};
use crate::{Errno, Result};

/// Requests of `ioctl`. Both ISAs have the same numbers (asm-generic/ioctls.h).
mod request {
    pub(super) const TCGETS: u32 = 0x5401;
    pub(super) const TCSETS: u32 = 0x5402;
    pub(super) const TCSETSW: u32 = 0x5403;
    pub(super) const TCSETSF: u32 = 0x5404;
    pub(super) const TCSBRK: u32 = 0x5409;
    pub(super) const TCXONC: u32 = 0x540a;
    pub(super) const TCFLSH: u32 = 0x540b;
    pub(super) const TIOCSCTTY: u32 = 0x540e;
    pub(super) const TIOCGPGRP: u32 = 0x540f;
    pub(super) const TIOCSPGRP: u32 = 0x5410;
    pub(super) const TIOCGWINSZ: u32 = 0x5413;
    pub(super) const TIOCSWINSZ: u32 = 0x5414;
    pub(super) const FIONREAD: u32 = 0x541b;
    pub(super) const FIONBIO: u32 = 0x5421;
    pub(super) const TIOCNOTTY: u32 = 0x5422;
    pub(super) const FIONCLEX: u32 = 0x5450;
    pub(super) const FIOCLEX: u32 = 0x5451;
    pub(super) const TCGETS2: u32 = 0x802c_542a;
    pub(super) const TCSETS2: u32 = 0x402c_542b;
    pub(super) const TCSETSW2: u32 = 0x402c_542c;
    pub(super) const TCSETSF2: u32 = 0x402c_542d;
}

/// File systems that `mount` finds where they are already.
const MOUNTED: [&[u8]; 6] = [b"proc", b"sysfs", b"devtmpfs", b"tmpfs", b"ramfs", b"cgroup2"];

impl Calls<'_> {
    /// `close`.
    ///
    /// # Errors
    /// [`Errno::EBADF`].
    pub fn close(&self, number: u32) -> Result<()> {
        self.table.close(number)
    }

    /// `close_range`, from `first` to `last`, both inclusive.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for unknown flags, or if `first` is beyond `last`.
    pub fn close_range(&self, first: u32, last: u32, flags: u32) -> Result<()> {
        const UNSHARE: u32 = 2;
        const CLOEXEC: u32 = 4;
        only(flags, UNSHARE | CLOEXEC)?;
        if first > last {
            return Err(Errno::EINVAL);
        }
        if flags & CLOEXEC != 0 {
            self.table.hide_range(first, last);
        } else {
            self.table.close_range(first, last);
        }
        Ok(())
    }

    /// `dup`.
    ///
    /// # Errors
    /// [`Errno::EBADF`], [`Errno::EMFILE`], [`Errno::ENOMEM`].
    pub fn dup(&self, number: u32) -> Result<u32> {
        self.table.add(self.table.get(number)?, false, 0)
    }

    /// `dup2`.
    ///
    /// # Errors
    /// [`Errno::EBADF`], [`Errno::ENOMEM`].
    pub fn dup2(&self, from: u32, to: u32) -> Result<u32> {
        if from == to {
            return self.table.get(from).map(|_| to);
        }
        self.table.copy_to(from, to, false)
    }

    /// `dup3`.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] if both are the same or for unknown flags, else as
    /// [`dup2`](Self::dup2).
    pub fn dup3(&self, from: u32, to: u32, flags: u32) -> Result<u32> {
        only(flags, raw::O_CLOEXEC)?;
        if from == to {
            return Err(Errno::EINVAL);
        }
        self.table.copy_to(from, to, flags & raw::O_CLOEXEC != 0)
    }

    /// `fcntl`. Record locks always succeed, but `F_GETLK`, which is not known.
    ///
    /// # Errors
    /// [`Errno::EBADF`], [`Errno::EINVAL`] for unknown commands, [`Errno::EMFILE`],
    /// [`Errno::EPERM`] for a pipe larger than all are; those of [`Data::seal`].
    pub fn fcntl(&self, number: u32, command: u32, argument: u64) -> Result<u32> {
        let open = self.table.get(number)?;
        // The argument is an int for all that look at it.
        let value = argument as u32;
        match command {
            raw::F_DUPFD => self.table.add(open, false, value),
            raw::F_DUPFD_CLOEXEC => self.table.add(open, true, value),
            raw::F_GETFD => Ok(u32::from(self.table.is_private(number)?)),
            raw::F_SETFD => {
                self.table.set_private(number, value & raw::FD_CLOEXEC != 0)?;
                Ok(0)
            }
            raw::F_GETFL => Ok(open.flags()),
            raw::F_SETFL if open.flags() & raw::O_PATH != 0 => Err(Errno::EBADF),
            raw::F_SETFL => {
                open.set_flags(value);
                Ok(0)
            }
            raw::F_GETPIPE_SZ | raw::F_SETPIPE_SZ if open.end().is_none() => Err(Errno::EBADF),
            raw::F_SETPIPE_SZ if value as usize > pipe::CAPACITY => Err(Errno::EPERM),
            raw::F_GETPIPE_SZ | raw::F_SETPIPE_SZ => Ok(pipe::CAPACITY as u32),
            raw::F_GET_SEALS => Ok(contents(&open)?.seals()),
            raw::F_ADD_SEALS => seal(&open, value),
            raw::F_SETLK | raw::F_SETLKW | raw::F_OFD_SETLK | raw::F_OFD_SETLKW => Ok(0),
            _ => Err(Errno::EINVAL),
        }
    }

    /// `flock`: always succeeds.
    ///
    /// # Errors
    /// [`Errno::EBADF`].
    pub fn flock(&self, number: u32) -> Result<()> {
        self.table.get(number).map(drop)
    }

    /// `ioctl`: `input` and `output` are both the memory at `argument`.
    ///
    /// # Errors
    /// [`Errno::EBADF`], [`Errno::ENOTTY`] for requests unknown to the file, [`Errno::EFAULT`],
    /// [`Errno::EINVAL`].
    pub fn ioctl(
        &self,
        number: u32,
        request: u32,
        argument: u64,
        input: &mut dyn Source,
        output: &mut dyn Sink,
    ) -> Result<u32> {
        let open = self.table.get(number)?;
        if open.flags() & raw::O_PATH != 0 {
            return Err(Errno::EBADF);
        }
        match request {
            request::FIOCLEX => self.table.set_private(number, true)?,
            request::FIONCLEX => self.table.set_private(number, false)?,
            request::FIONBIO => open.set_nonblocking(word(input)? != 0),
            request::FIONREAD => output.put(&available(&open)?.to_ne_bytes())?,
            _ => match open.node().body() {
                Body::Device(Device::Terminal(_, console)) => {
                    terminal(console, request, argument, input, output)?;
                }
                Body::Block(device) => block::control(self.who, &**device, request, output)?,
                Body::Object(object) => return object.control(self.who, request, input, output),
                Body::Generated(file) => return file.control(self.who, request, input, output),
                _ => return Err(Errno::ENOTTY),
            },
        }
        Ok(0)
    }

    /// `mount`: file systems that exist here are where they are already, and a `tmpfs` may be
    /// asked for at any directory, since all are in memory. A `hugetlbfs` begins at a directory in
    /// memory, whose entries it ends; of its `options`, those of the size of its folios count.
    ///
    /// # Errors
    /// [`Errno::ENODEV`] for other file systems, [`Errno::ENOTDIR`], [`Errno::EINVAL`] for options
    /// that make no sense, and those of paths.
    pub fn mount(&self, path: &[u8], kind: &[u8], flags: u64, options: &[u8]) -> Result<()> {
        const REMOUNT: u64 = 32;
        let node = self.node(raw::AT_FDCWD, path, 0)?;
        if !node.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        if kind == b"hugetlbfs" && flags & REMOUNT == 0 {
            return self.tree.set_reserved(&node, Some(folio_size(options)?));
        }
        let is_known = flags & REMOUNT != 0 || MOUNTED.contains(&kind);
        if is_known { Ok(()) } else { Err(Errno::ENODEV) }
    }

    /// `umount2`: ends a `hugetlbfs`, and does nothing else.
    ///
    /// # Errors
    /// Those of paths.
    pub fn umount2(&self, path: &[u8]) -> Result<()> {
        let node = self.node(raw::AT_FDCWD, path, 0)?;
        if node.reserved().is_some() { self.tree.set_reserved(&node, None) } else { Ok(()) }
    }
}

/// The size of reserved folios that mount options name: `pagesize=2M`.
fn folio_size(options: &[u8]) -> Result<Reserved> {
    let mut sizes = options.split(|byte| *byte == b',');
    let Some(size) = sizes.find_map(|option| option.strip_prefix(b"pagesize=")) else {
        return Ok(Reserved(0));
    };
    let text = core::str::from_utf8(size).map_err(|_| Errno::EINVAL)?;
    let digits = text.trim_end_matches(['K', 'k', 'M', 'm', 'G', 'g']);
    let shift = match &text.as_bytes()[digits.len()..] {
        [] => 0,
        [b'K' | b'k'] => 10,
        [b'M' | b'm'] => 20,
        [b'G' | b'g'] => 30,
        _ => return Err(Errno::EINVAL),
    };
    let count: u64 = digits.parse().map_err(|_| Errno::EINVAL)?;
    if !count.is_power_of_two() {
        return Err(Errno::EINVAL);
    }
    Ok(Reserved(count.trailing_zeros() + shift))
}

/// The contents of a file that may have seals.
fn contents(open: &Description) -> Result<&Data> {
    match open.node().body() {
        Body::File(file) if open.flags() & raw::O_PATH == 0 => Ok(file),
        _ => Err(Errno::EINVAL),
    }
}

/// Adds seals. A sealed program must not change in other ways, either.
fn seal(open: &Description, seals: u32) -> Result<u32> {
    let file = contents(open)?;
    if !open.may_write() {
        return Err(Errno::EPERM);
    }
    let is_program = seals & raw::F_SEAL_EXEC != 0 && open.node().meta().mode & 0o111 != 0;
    let others =
        raw::F_SEAL_SHRINK | raw::F_SEAL_GROW | raw::F_SEAL_WRITE | raw::F_SEAL_FUTURE_WRITE;
    file.seal(seals | if is_program { others } else { 0 })?;
    Ok(0)
}

/// Bytes that a read would have at once.
fn available(open: &Description) -> Result<u32> {
    let bytes = match open.node().body() {
        Body::Pipe(pipe) => pipe.available() as u64,
        Body::Object(object) => object.available().ok_or(Errno::ENOTTY)? as u64,
        Body::Device(Device::Terminal(_, console)) => console.available() as u64,
        Body::File(file) => file.len().saturating_sub(open.offset()),
        Body::Stored(file) => file.length().saturating_sub(open.offset()),
        _ => return Err(Errno::ENOTTY),
    };
    Ok(u32::try_from(bytes).unwrap_or(i32::MAX as u32).min(i32::MAX as u32))
}

/// All of the bytes.
fn fill(input: &mut dyn Source, bytes: &mut [u8]) -> Result<()> {
    if input.take(bytes)? == bytes.len() { Ok(()) } else { Err(Errno::EFAULT) }
}

fn word(input: &mut dyn Source) -> Result<u32> {
    let mut bytes = [0; 4];
    fill(input, &mut bytes)?;
    Ok(u32::from_ne_bytes(bytes))
}

fn terminal(
    console: &Console,
    request: u32,
    argument: u64,
    input: &mut dyn Source,
    output: &mut dyn Sink,
) -> Result<()> {
    match request {
        request::TCGETS => output.put(&console.termios().encode()[..BYTES])?,
        request::TCGETS2 => output.put(&console.termios().encode())?,
        request::TCSETS | request::TCSETSW | request::TCSETSF => {
            let mut bytes = [0; BYTES];
            fill(input, &mut bytes)?;
            console.set_termios(Termios::decode(&bytes)?, request == request::TCSETSF);
        }
        request::TCSETS2 | request::TCSETSW2 | request::TCSETSF2 => {
            let mut bytes = [0; BYTES2];
            fill(input, &mut bytes)?;
            console.set_termios(Termios::decode(&bytes)?, request == request::TCSETSF2);
        }
        // The queue to flush: 0 input, 1 output, 2 both.
        request::TCFLSH if argument == 0 || argument == 2 => console.flush(),
        request::TCFLSH if argument == 1 => {}
        request::TCFLSH => return Err(Errno::EINVAL),
        request::TIOCGWINSZ => {
            for word in console.window() {
                output.put(&word.to_ne_bytes())?;
            }
        }
        request::TIOCSWINSZ => {
            let mut bytes = [0; 8];
            fill(input, &mut bytes)?;
            let word = |at| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
            console.set_window([word(0), word(2), word(4), word(6)]);
        }
        // A shell without a foreground group does without job control; with a wrong one, it waits.
        request::TIOCGPGRP if console.group() == 0 => return Err(Errno::ENOTTY),
        request::TIOCGPGRP => output.put(&console.group().to_ne_bytes())?,
        request::TIOCSPGRP => match word(input)? {
            group @ 1..=0x7fff_ffff => console.set_group(group),
            _ => return Err(Errno::EINVAL),
        },
        request::TIOCSCTTY | request::TIOCNOTTY | request::TCSBRK | request::TCXONC => {}
        _ => return Err(Errno::ENOTTY),
    }
    Ok(())
}
