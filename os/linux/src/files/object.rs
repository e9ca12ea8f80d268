//! Objects of the kernel that have a descriptor and no name: counters of events, timers, signals as
//! a file, sets of files to wait for, watchers of memory, and sockets.

use alloc::sync::Arc;
use core::any::Any;

use super::call::{Caller, Outcome, Sink, Source};
use super::node::Kind;
use super::poll::PollEvents;
use crate::{Errno, Result, Wake};

/// Such an object. Like a pipe, it never waits: see [`Halt`](super::Halt).
pub trait Object: Any + Send + Sync {
    /// Its name after `anon_inode:`, as in `/proc/self/fd`.
    fn name(&self) -> &'static str;

    /// Its kind: [`Kind::Object`], or that of a socket.
    fn kind(&self) -> Kind {
        Kind::Object
    }

    /// Whether a short write is to go on, as it does to a pipe.
    fn is_stream(&self) -> bool {
        false
    }

    /// Nanoseconds that a read, or a write, waits at most.
    fn patience(&self, writes: bool) -> Option<u64> {
        let _ = writes;
        None
    }

    /// Bytes that a read would have at once (`FIONREAD`).
    fn available(&self) -> Option<usize> {
        None
    }

    /// Reads at most `count` bytes.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] if it cannot be read or `count` is too small, [`Errno::EAGAIN`] if
    /// `nonblocking`, [`Blocked`](super::Halt::Blocked), the sink's.
    fn read(
        &self,
        who: &Caller<'_>,
        nonblocking: bool,
        count: usize,
        sink: &mut dyn Sink,
    ) -> Outcome<usize> {
        let _ = (who, nonblocking, count, sink);
        Err(Errno::EINVAL.into())
    }

    /// Writes what the source has left.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    fn write(
        &self,
        who: &Caller<'_>,
        nonblocking: bool,
        source: &mut dyn Source,
    ) -> Outcome<usize> {
        let _ = (who, nonblocking, source);
        Err(Errno::EINVAL.into())
    }

    /// Carries out `request` (`ioctl`): `input` and `output` are both the memory at its argument.
    ///
    /// # Errors
    /// [`Errno::ENOTTY`] for unknown requests, and its own errors.
    fn control(
        &self,
        who: &Caller<'_>,
        request: u32,
        input: &mut dyn Source,
        output: &mut dyn Sink,
    ) -> Result<u32> {
        let _ = (who, request, input, output);
        Err(Errno::ENOTTY)
    }

    /// The events now.
    fn readiness(&self) -> PollEvents;

    /// Registers a waiter for any change of [`readiness`](Self::readiness).
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    fn wait_on(&self, who: &Arc<dyn Wake>) -> Result<()>;
}
