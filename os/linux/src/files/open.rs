//! An open description: an open file with an offset and flags. Descriptors that were copied by
//! `dup` or `fork` share it.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use linux_raw_sys::general as raw;
use spin::mutex::SpinMutex;

use super::block;
use super::call::{Caller, Outcome, Sink, Source, copied, zeroes};
use super::data::{self, PIECE};
use super::generated::{Generated, Text};
use super::node::{Body, Kind, Node};
use super::pipe::End;
use super::stored;
use crate::{Errno, Result};

/// Flags that `F_SETFL` changes.
const CHANGEABLE: u32 = raw::O_APPEND | raw::O_NONBLOCK | raw::O_DIRECT | raw::O_NOATIME;

/// The directory that a file was found in, and its name there.
pub type Place = Option<(Arc<Node>, Arc<[u8]>)>;

#[derive(Default)]
struct Position {
    offset: u64,
    /// The text of a generated file, since it was first read.
    text: Option<Text>,
}

/// An open file description.
pub struct Description {
    node: Arc<Node>,
    place: Place,
    /// `O_` flags. The access mode never changes; relaxed, as nothing else hangs on them.
    flags: AtomicU32,
    position: SpinMutex<Position>,
    end: Option<End>,
}

impl Description {
    /// An open file at offset 0. A pipe has an `end`, which says whether it reads or writes.
    pub fn new(node: Arc<Node>, place: Place, flags: u32, end: Option<End>) -> Self {
        let gone = raw::O_CREAT | raw::O_EXCL | raw::O_TRUNC | raw::O_NOCTTY | raw::O_CLOEXEC;
        let position = SpinMutex::new(Position::default());
        Self { node, place, flags: AtomicU32::new(flags & !gone), position, end }
    }

    /// The open node.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Its end, if it is a pipe.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Where it was found, if it has a name.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The `O_` flags, as `F_GETFL` returns them.
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Changes those flags that can be changed, as `F_SETFL` does.
    pub fn set_flags(&self, flags: u32) {
        let kept = self.flags() & !CHANGEABLE;
        self.flags.store(kept | flags & CHANGEABLE, Ordering::Relaxed);
    }

    /// Sets or clears `O_NONBLOCK` only.
    pub fn set_nonblocking(&self, on: bool) {
        if on {
            self.flags.fetch_or(raw::O_NONBLOCK, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!raw::O_NONBLOCK, Ordering::Relaxed);
        }
    }

    /// Whether calls return instead of waiting.
    pub fn is_nonblocking(&self) -> bool {
        self.flags() & raw::O_NONBLOCK != 0
    }

    /// Whether it was opened to be read.
    pub fn may_read(&self) -> bool {
        let flags = self.flags();
        flags & raw::O_PATH == 0 && flags & raw::O_ACCMODE != raw::O_WRONLY
    }

    /// Whether it was opened to be written.
    pub fn may_write(&self) -> bool {
        let flags = self.flags();
        flags & raw::O_PATH == 0 && flags & raw::O_ACCMODE != raw::O_RDONLY
    }

    /// The offset in bytes at which the next read or write begins.
    pub fn offset(&self) -> u64 {
        self.position.lock().offset
    }

    /// Sets it. In a directory, it is where the listing goes on.
    pub(super) fn set_offset(&self, offset: u64) {
        self.position.lock().offset = offset;
    }

    /// Reads at most `count` bytes at the offset, which moves on.
    ///
    /// # Errors
    /// [`Errno::EBADF`], [`Errno::EISDIR`], the sink's, and those of the pipe, device or generated
    /// file; [`Blocked`](super::Halt::Blocked) from pipes and the terminal.
    pub fn read(&self, who: &Caller<'_>, count: usize, sink: &mut dyn Sink) -> Outcome<usize> {
        self.check_read()?;
        match self.node.body() {
            Body::Pipe(pipe) => pipe.read(who, self.is_nonblocking(), count, sink),
            Body::Object(object) => object.read(who, self.is_nonblocking(), count, sink),
            Body::Device(device) => device.read(who, self.is_nonblocking(), count, sink),
            Body::File(file) => {
                let mut position = self.position.lock();
                let moved = data::read_to(file, position.offset, count, sink)?;
                position.offset += moved as u64;
                self.note_access(who);
                Ok(moved)
            }
            Body::Stored(file) => {
                let mut position = self.position.lock();
                let moved = stored::read_to(who, &**file, position.offset, count, sink)?;
                position.offset += moved as u64;
                Ok(moved)
            }
            Body::Block(block) => {
                let mut position = self.position.lock();
                let moved = stored::read_to(who, &**block, position.offset, count, sink)?;
                position.offset += moved as u64;
                Ok(moved)
            }
            Body::Generated(file) => {
                let offset = self.offset();
                let moved = self.read_generated(who, &**file, offset, count, sink)?;
                self.position.lock().offset = offset + moved as u64;
                Ok(moved)
            }
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// Reads at most `count` bytes at `offset`; the description's own does not matter.
    ///
    /// # Errors
    /// [`Errno::ESPIPE`] for pipes and the terminal, else as [`read`](Self::read).
    pub fn read_at(
        &self,
        who: &Caller<'_>,
        offset: u64,
        count: usize,
        sink: &mut dyn Sink,
    ) -> Outcome<usize> {
        self.check_read()?;
        self.check_seekable()?;
        match self.node.body() {
            Body::Device(device) => device.read(who, true, count, sink),
            Body::File(file) => {
                let moved = data::read_to(file, offset, count, sink)?;
                self.note_access(who);
                Ok(moved)
            }
            Body::Stored(file) => Ok(stored::read_to(who, &**file, offset, count, sink)?),
            Body::Block(block) => Ok(stored::read_to(who, &**block, offset, count, sink)?),
            Body::Generated(file) => Ok(self.read_generated(who, &**file, offset, count, sink)?),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// Notes that the contents were read, or shown to a program.
    pub fn note_access(&self, who: &Caller<'_>) {
        if self.flags() & raw::O_NOATIME == 0 {
            self.node.note_access(who.now);
        }
    }

    /// Notes that a program changed the contents through an area.
    pub fn note_change(&self, who: &Caller<'_>) {
        if self.node.check_changeable().is_ok() {
            self.node.touch(who.now);
        }
    }

    /// Writes what the source has left at the offset, which moves on, or at the end of the file
    /// if it was opened with `O_APPEND`. A pipe may take a part only, and then a blocking call
    /// is to go on with the rest.
    ///
    /// # Errors
    /// [`Errno::EBADF`], the source's, and those of the file, pipe, device or generated file;
    /// [`Blocked`](super::Halt::Blocked) from pipes.
    pub fn write(&self, who: &Caller<'_>, source: &mut dyn Source) -> Outcome<usize> {
        self.check_write()?;
        match self.node.body() {
            Body::Pipe(pipe) => pipe.write(who, self.is_nonblocking(), source),
            Body::Object(object) => object.write(who, self.is_nonblocking(), source),
            Body::Device(device) => Ok(device.write(source)?),
            Body::File(file) => {
                let mut position = self.position.lock();
                let offset = Some(position.offset).filter(|_| !self.appends());
                let (moved, end) = data::write_from(file, offset, who.longest, source)?;
                if moved > 0 {
                    position.offset = end;
                    self.node.touch(who.now);
                }
                Ok(moved)
            }
            Body::Block(block) => {
                let mut position = self.position.lock();
                let moved = block::write_from(who, &**block, position.offset, source)?;
                position.offset += moved as u64;
                Ok(moved)
            }
            Body::Generated(file) => {
                let offset = self.offset();
                let moved = write_generated(who, &**file, offset, source)?;
                self.position.lock().offset = offset + moved as u64;
                Ok(moved)
            }
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// Writes what the source has left at `offset`; the description's own does not matter. As on
    /// Linux, `O_APPEND` overrides it.
    ///
    /// # Errors
    /// [`Errno::ESPIPE`] for pipes and the terminal, else as [`write`](Self::write).
    pub fn write_at(
        &self,
        who: &Caller<'_>,
        offset: u64,
        source: &mut dyn Source,
    ) -> Outcome<usize> {
        self.check_write()?;
        self.check_seekable()?;
        match self.node.body() {
            Body::Device(device) => Ok(device.write(source)?),
            Body::File(file) => {
                let offset = Some(offset).filter(|_| !self.appends());
                let (moved, _) = data::write_from(file, offset, who.longest, source)?;
                if moved > 0 {
                    self.node.touch(who.now);
                }
                Ok(moved)
            }
            Body::Block(block) => Ok(block::write_from(who, &**block, offset, source)?),
            Body::Generated(file) => Ok(write_generated(who, &**file, offset, source)?),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// Moves the offset as `lseek` does, and returns it.
    ///
    /// # Errors
    /// [`Errno::EBADF`], [`Errno::ESPIPE`], [`Errno::EINVAL`] for a negative offset or an unknown
    /// `whence`, [`Errno::ENXIO`] when there is no data or hole there, [`Errno::EOVERFLOW`].
    pub fn seek(&self, offset: i64, whence: u32) -> Result<u64> {
        if self.flags() & raw::O_PATH != 0 {
            return Err(Errno::EBADF);
        }
        self.check_seekable()?;
        let mut position = self.position.lock();
        let from = match whence {
            raw::SEEK_SET => 0,
            raw::SEEK_CUR => position.offset,
            raw::SEEK_END => self.length().ok_or(Errno::EINVAL)?,
            raw::SEEK_DATA | raw::SEEK_HOLE => {
                position.offset = self.seek_data(offset, whence == raw::SEEK_DATA)?;
                return Ok(position.offset);
            }
            _ => return Err(Errno::EINVAL),
        };
        let to = i64::try_from(from).ok().and_then(|from| from.checked_add(offset));
        let to = to.ok_or(Errno::EOVERFLOW)?;
        position.offset = u64::try_from(to).map_err(|_| Errno::EINVAL)?;
        if position.offset == 0 {
            position.text = None;
        }
        Ok(position.offset)
    }

    /// Its path from the root, as in `/proc/self/fd`.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`], [`Errno::ENOENT`] if its directory is gone.
    pub fn path(&self) -> Result<Vec<u8>> {
        let Some((above, name)) = &self.place else {
            let mut text = Text::new();
            if let Body::Object(object) = self.node.body()
                && object.kind() == Kind::Object
            {
                text.print(format_args!("anon_inode:{}", object.name()))?;
                return copied(text.bytes());
            }
            let kind = match self.node.kind() {
                Kind::Socket => "socket",
                _ if self.end.is_some() => "pipe",
                _ => "anon",
            };
            text.print(format_args!("{kind}:[{}]", self.node.inode()))?;
            return copied(text.bytes());
        };
        if self.node.is_directory() {
            return super::path::path_of(&self.node);
        }
        let mut path = super::path::path_of(above)?;
        if path.last() != Some(&b'/') {
            path.put(b"/")?;
        }
        path.put(name)?;
        if self.node.meta().links == 0 {
            path.put(b" (deleted)")?;
        }
        Ok(path)
    }

    fn appends(&self) -> bool {
        self.flags() & raw::O_APPEND != 0
    }

    fn length(&self) -> Option<u64> {
        match self.node.body() {
            Body::File(file) => Some(file.len()),
            Body::Stored(file) => Some(file.length()),
            Body::Block(block) => Some(block.length()),
            Body::Device(_) => Some(0),
            _ => None,
        }
    }

    fn seek_data(&self, offset: i64, data: bool) -> Result<u64> {
        let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
        let file = match self.node.body() {
            Body::File(file) => file,
            // All of it counts as data; its only hole is its end.
            Body::Stored(file) if offset < file.length() => {
                return Ok(if data { offset } else { file.length() });
            }
            Body::Stored(_) => return Err(Errno::ENXIO),
            _ => return Err(Errno::EINVAL),
        };
        let to = if data { file.next_data(offset) } else { file.next_hole(offset) };
        to.ok_or(Errno::ENXIO)
    }

    fn check_read(&self) -> Result<()> {
        if !self.may_read() {
            return Err(Errno::EBADF);
        }
        if self.node.is_directory() {
            return Err(Errno::EISDIR);
        }
        Ok(())
    }

    fn check_write(&self) -> Result<()> {
        if self.may_write() { Ok(()) } else { Err(Errno::EBADF) }
    }

    fn check_seekable(&self) -> Result<()> {
        use super::device::Device;
        match self.node.body() {
            Body::Pipe(_) | Body::Object(_) | Body::Device(Device::Terminal(..)) => {
                Err(Errno::ESPIPE)
            }
            _ => Ok(()),
        }
    }

    /// Reads a generated file. Its text is made without any lock held, as the kernel takes its
    /// own to do so.
    fn read_generated(
        &self,
        who: &Caller<'_>,
        file: &dyn Generated,
        offset: u64,
        count: usize,
        sink: &mut dyn Sink,
    ) -> Result<usize> {
        if file.is_binary() {
            return file.read_at(who, offset, count, sink);
        }
        if offset == 0 || self.position.lock().text.is_none() {
            let mut text = Text::new();
            file.text(who, &mut text)?;
            self.position.lock().text = Some(text);
        }
        let position = self.position.lock();
        let bytes = position.text.as_ref().map_or(&[][..], Text::bytes);
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let end = start.saturating_add(count).min(bytes.len());
        if start < end {
            sink.put(&bytes[start..end])?;
        }
        Ok(end - start)
    }
}

fn write_generated(
    who: &Caller<'_>,
    file: &dyn Generated,
    offset: u64,
    source: &mut dyn Source,
) -> Result<usize> {
    let mut bytes = zeroes(source.left().min(PIECE))?;
    let count = source.take(&mut bytes)?;
    file.write(who, offset, &bytes[..count])
}
