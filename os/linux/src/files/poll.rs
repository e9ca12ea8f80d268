//! The readiness of open files. `poll` and `select` are the kernel's.

use alloc::sync::Arc;

use bitflags::bitflags;
use linux_raw_sys::general as raw;

use super::device::Device;
use super::node::Body;
use super::open::Description;
use crate::{Result, Wake};

bitflags! {
    /// Events of `poll`, with Linux's bits.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PollEvents: u16 {
        /// Bytes, or the end of file, can be read.
        const IN = raw::POLLIN as u16;
        /// Something urgent; never so here.
        const PRI = raw::POLLPRI as u16;
        /// Bytes can be written.
        const OUT = raw::POLLOUT as u16;
        /// The pipe has no reader. Always reported.
        const ERR = raw::POLLERR as u16;
        /// The pipe has no writer. Always reported.
        const HUP = raw::POLLHUP as u16;
        /// The other end writes no more.
        const RDHUP = raw::POLLRDHUP as u16;
        /// No such open file. Always reported.
        const NVAL = raw::POLLNVAL as u16;
        /// As [`IN`](Self::IN).
        const RDNORM = raw::POLLRDNORM as u16;
        /// As [`OUT`](Self::OUT).
        const WRNORM = raw::POLLWRNORM as u16;
    }
}

impl PollEvents {
    /// Reading and writing both go on at once, as for files.
    pub const ALWAYS: Self = Self::IN.union(Self::OUT).union(Self::RDNORM).union(Self::WRNORM);
}

/// The events now. Call [`wait_on`] before, or a change may be missed.
pub fn readiness(open: &Description) -> PollEvents {
    if let Some(end) = open.end() {
        return end.readiness();
    }
    match open.node().body() {
        Body::Object(object) => object.readiness(),
        Body::Generated(file) => file.readiness(),
        Body::Device(Device::Terminal(_, console)) => console.readiness(),
        _ => PollEvents::ALWAYS,
    }
}

/// Registers a waiter: `who` is woken once when [`readiness`] may have changed.
///
/// # Errors
/// [`ENOMEM`](crate::Errno::ENOMEM).
pub fn wait_on(open: &Description, who: &Arc<dyn Wake>) -> Result<()> {
    if let Some(end) = open.end() {
        return end.pipe().wait_on(who);
    }
    match open.node().body() {
        Body::Object(object) => object.wait_on(who),
        Body::Generated(file) => file.wait_on(who),
        Body::Device(Device::Terminal(_, console)) => console.wait_on(who),
        _ => Ok(()),
    }
}
