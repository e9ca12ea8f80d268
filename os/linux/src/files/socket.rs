//! Pairs of sockets (`socketpair`): two pipes, crosswise. Each end reads what the other writes, as
//! bytes or packet by packet.
//!
//! Programs read and write them, and wait for them, as they do with pipes. They have no addresses,
//! no options and no messages with rights in them.

use alloc::sync::Arc;

use super::call::{Caller, Outcome, Sink, Source, zeroes};
use super::pipe::{End, PACKET_MOST, Pipe};
use super::poll::PollEvents;
use crate::{Errno, Result, Wake};

/// One end of a pair.
pub struct Socket {
    from: End,
    to: End,
    /// One call reads the bytes of one write.
    packets: bool,
}

impl Socket {
    /// Two ends that are connected.
    pub fn pair(packets: bool) -> [Self; 2] {
        let pipes = [Arc::new(Pipe::new()), Arc::new(Pipe::new())];
        [0, 1].map(|at| Self {
            from: pipes[at].end(true, false),
            to: pipes[1 - at].end(false, true),
            packets,
        })
    }

    /// Reads the bytes that are there, at most `count`. No bytes: the other end is gone.
    ///
    /// # Errors
    /// As for [`Pipe::read`].
    pub fn read(
        &self,
        who: &Caller<'_>,
        nonblocking: bool,
        count: usize,
        sink: &mut dyn Sink,
    ) -> Outcome<usize> {
        match self.packets {
            true => self.from.pipe().read_packet(who, nonblocking, count, sink),
            false => self.from.pipe().read(who, nonblocking, count, sink),
        }
    }

    /// Writes the rest of the source: a part of it where these are bytes, and then a blocking call
    /// is to go on with the rest.
    ///
    /// # Errors
    /// As for [`Pipe::write`]; [`Errno::EMSGSIZE`] for a packet that is too large.
    pub fn write(
        &self,
        who: &Caller<'_>,
        nonblocking: bool,
        source: &mut dyn Source,
    ) -> Outcome<usize> {
        if !self.packets {
            return self.to.pipe().write(who, nonblocking, source);
        }
        if source.left() > PACKET_MOST {
            return Err(Errno::EMSGSIZE.into());
        }
        let mut bytes = zeroes(source.left())?;
        if source.take(&mut bytes)? < bytes.len() {
            return Err(Errno::EFAULT.into());
        }
        self.to.pipe().write_packet(who, nonblocking, &bytes)
    }

    /// Whether a short write is to go on.
    pub fn is_stream(&self) -> bool {
        !self.packets
    }

    /// The events now.
    pub fn readiness(&self) -> PollEvents {
        // A missing reader is no error here: the other end has hung up.
        (self.from.readiness() | self.to.readiness()) - PollEvents::ERR
    }

    /// Registers a waiter for any change.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub fn wait_on(&self, who: &Arc<dyn Wake>) -> Result<()> {
        self.from.pipe().wait_on(who)?;
        self.to.pipe().wait_on(who)
    }
}
