//! Calls that move bytes. `readv` and `writev` are `read` and `write` with a sink or source that
//! goes over several pieces of memory.

use alloc::sync::Arc;

use linux_raw_sys::general as raw;

use super::calls::{Calls, only};
use crate::files::call::{Halt, Outcome, Sink, Source, moved};
use crate::files::dirent::records;
use crate::files::node::{Body, Kind};
use crate::files::open::Description;
use crate::{Errno, Result};

/// Bytes that `sendfile` moves in one step.
const STEP: usize = 4096;

/// Bytes of records that one `getdents64` gives at most.
const RECORDS: usize = 32 << 10;

impl Calls<'_> {
    /// `read`, `readv`: at most `count` bytes.
    ///
    /// # Errors
    /// Those of [`Description::read`].
    pub fn read(&self, number: u32, count: usize, sink: &mut dyn Sink) -> Outcome<usize> {
        self.with(number, |open| open.read(self.who, count, sink))
    }

    /// `write`, `writev`: the rest of the source. A short count from a blocking pipe means that the
    /// thread is to go on with the rest; see [`must_go_on`](Self::must_go_on).
    ///
    /// # Errors
    /// Those of [`Description::write`]; with [`Errno::EPIPE`] the kernel sends SIGPIPE.
    pub fn write(&self, number: u32, source: &mut dyn Source) -> Outcome<usize> {
        self.with(number, |open| open.write(self.who, source))
    }

    /// Whether a short `write` to `number` is not over: it is a pipe, and may wait.
    ///
    /// # Errors
    /// [`Errno::EBADF`].
    pub fn must_go_on(&self, number: u32) -> Result<bool> {
        let open = self.table.get(number)?;
        let goes_on = match open.node().body() {
            Body::Object(object) => object.is_stream(),
            _ => open.end().is_some(),
        };
        Ok(goes_on && !open.is_nonblocking())
    }

    /// Nanoseconds that a read of `number`, or a write to it, waits at most.
    ///
    /// # Errors
    /// [`Errno::EBADF`].
    pub fn patience(&self, number: u32, writes: bool) -> Result<Option<u64>> {
        Ok(match self.table.get(number)?.node().body() {
            Body::Object(object) => object.patience(writes),
            _ => None,
        })
    }

    /// Whether a short read of `number` is not over: it is a file, and a part of it, or of where
    /// its bytes go, was not in memory; or it has ended.
    ///
    /// # Errors
    /// [`Errno::EBADF`].
    pub fn is_regular(&self, number: u32) -> Result<bool> {
        let open = self.table.get(number)?;
        Ok(matches!(open.node().body(), Body::File(_) | Body::Stored(_) | Body::Block(_)))
    }

    /// `pread64`, `preadv`: at most `count` bytes from `offset` on.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a negative offset, and those of [`Description::read_at`].
    pub fn pread64(
        &self,
        number: u32,
        offset: i64,
        count: usize,
        sink: &mut dyn Sink,
    ) -> Outcome<usize> {
        let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
        self.with(number, |open| open.read_at(self.who, offset, count, sink))
    }

    /// `pwrite64`, `pwritev`: the rest of the source, at `offset`.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a negative offset, and those of [`Description::write_at`].
    pub fn pwrite64(&self, number: u32, offset: i64, source: &mut dyn Source) -> Outcome<usize> {
        let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
        self.with(number, |open| open.write_at(self.who, offset, source))
    }

    /// `lseek`: the new offset in bytes.
    ///
    /// # Errors
    /// [`Errno::EBADF`] and those of [`Description::seek`].
    pub fn lseek(&self, number: u32, offset: i64, whence: u32) -> Result<u64> {
        self.table.get(number)?.seek(offset, whence)
    }

    /// `fsync`, `fdatasync`, `syncfs`, `fadvise64`, `readahead`: there is nothing to do, but for
    /// block devices.
    ///
    /// # Errors
    /// [`Errno::EBADF`]; [`Errno::EINVAL`] for files that cannot be synchronized; those of
    /// [`Block::sync`](crate::files::Block::sync).
    pub fn fsync(&self, number: u32) -> Result<()> {
        let open = self.table.get(number)?;
        if let Body::Block(block) = open.node().body() {
            return block.sync(self.who);
        }
        match open.node().kind() {
            Kind::Pipe | Kind::Socket | Kind::Object | Kind::Device => Err(Errno::EINVAL),
            _ => Ok(()),
        }
    }

    /// `getdents64`: records of at most `count` bytes, and how many bytes these were.
    ///
    /// # Errors
    /// [`Errno::EBADF`], [`Errno::ENOTDIR`], [`Errno::EINVAL`] if not one fits, the sink's.
    pub fn getdents64(&self, number: u32, count: usize, sink: &mut dyn Sink) -> Result<usize> {
        let open = self.table.get(number)?;
        if !open.may_read() {
            return Err(Errno::EBADF);
        }
        let room = count.min(RECORDS);
        let (bytes, next) = records(self.who, open.node(), open.offset(), room)?;
        sink.put(&bytes)?;
        open.set_offset(next);
        Ok(bytes.len())
    }

    /// `pipe2`: descriptors of a new pipe, the one that reads first. `O_CLOEXEC` and `O_NONBLOCK`.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for other flags, [`Errno::EMFILE`], [`Errno::ENOMEM`].
    pub fn pipe2(&self, flags: u32) -> Result<[u32; 2]> {
        only(flags, raw::O_CLOEXEC | raw::O_NONBLOCK | raw::O_DIRECT)?;
        if flags & raw::O_DIRECT != 0 {
            // Packets are not known here.
            return Err(Errno::EINVAL);
        }
        let (pipe, node) = self.tree.make_pipe(self.who.now);
        let end = |reads: bool| {
            let mode = if reads { raw::O_RDONLY } else { raw::O_WRONLY };
            let end = pipe.end(reads, !reads);
            let status = flags & raw::O_NONBLOCK;
            Arc::new(Description::new(node.clone(), None, mode | status, Some(end)))
        };
        self.table.add_two([end(true), end(false)], flags & raw::O_CLOEXEC != 0)
    }

    /// `sendfile`: at most `count` bytes from one open file to another, from `offset` on, or from
    /// the description's own offset, which moves on then. Returns how many bytes these were.
    ///
    /// # Errors
    /// [`Errno::EBADF`]; [`Errno::EINVAL`] if `from` is no file, or `to` appends; those of the
    /// reads and writes, [`Halt::Blocked`] included, when nothing was moved.
    pub fn sendfile(
        &self,
        to: u32,
        from: u32,
        offset: Option<u64>,
        count: usize,
    ) -> Outcome<usize> {
        let (to, from) = (self.table.get(to)?, self.table.get(from)?);
        let is_file = matches!(
            from.node().body(),
            Body::File(_) | Body::Generated(_) | Body::Stored(_) | Body::Block(_)
        );
        if !is_file || to.flags() & raw::O_APPEND != 0 {
            return Err(Errno::EINVAL.into());
        }
        let start = offset.unwrap_or_else(|| from.offset());
        let mut done = 0;
        while done < count {
            match self.send_step(&to, &from, start + done as u64, STEP.min(count - done)) {
                Ok(0) => break,
                Ok(step) => done += step,
                Err(halt) if done == 0 => return Err(halt),
                Err(Halt::Blocked) => break,
                Err(Halt::Failed(errno)) => {
                    done = moved(done, Some(errno))?;
                    break;
                }
            }
        }
        if offset.is_none() {
            from.set_offset(start + done as u64);
        }
        Ok(done)
    }

    fn send_step(
        &self,
        to: &Description,
        from: &Description,
        offset: u64,
        count: usize,
    ) -> Outcome<usize> {
        let mut bytes = alloc::vec::Vec::new();
        from.read_at(self.who, offset, count, &mut bytes)?;
        if bytes.is_empty() {
            return Ok(0);
        }
        to.write(self.who, &mut &bytes[..])
    }
}
