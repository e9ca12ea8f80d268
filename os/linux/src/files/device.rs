//! Character devices, by Linux's numbers.

use alloc::sync::Arc;

use super::call::{Caller, Outcome, Sink, Source, moved};
use super::console::Console;
use crate::{Errno, Result};

/// Fills a buffer with random bytes.
pub type Random = fn(&mut [u8]);

/// Major and minor number.
pub type Number = (u32, u32);

/// A character device.
#[derive(Clone)]
pub enum Device {
    /// Takes everything, has nothing.
    Null,
    /// Physical memory, to be mapped: what the kernel allows of it.
    Memory,
    /// Takes everything, gives zeroes.
    Zero,
    /// Has no room, gives zeroes.
    Full,
    /// Gives random bytes; its number and their source.
    Random(Number, Random),
    /// The terminal, under one of its numbers.
    Terminal(Number, Arc<Console>),
    /// The kernel's log: writes appear on the screen.
    Log(Arc<Console>),
    /// Makes watchers of memory (`userfaultfd`), by `ioctl` alone.
    Watchers,
    /// There is no device of this number: it cannot be opened.
    Absent(Number),
}

/// The devices, and the objects behind them.
#[derive(Clone)]
pub struct Devices {
    /// The terminal.
    pub console: Arc<Console>,
    /// Where random bytes come from.
    pub random: Random,
}

/// Names in /dev, and numbers.
pub(super) const NAMES: [(&str, Number); 10] = [
    ("mem", (1, 1)),
    ("null", (1, 3)),
    ("zero", (1, 5)),
    ("full", (1, 7)),
    ("random", (1, 8)),
    ("urandom", (1, 9)),
    ("kmsg", (1, 11)),
    ("tty", (5, 0)),
    ("console", (5, 1)),
    ("userfaultfd", (10, 126)),
];

impl Devices {
    /// The device of this number.
    pub fn find(&self, number: Number) -> Device {
        match number {
            (1, 1) => Device::Memory,
            (1, 3) => Device::Null,
            (1, 5) => Device::Zero,
            (1, 7) => Device::Full,
            (1, 8 | 9) => Device::Random(number, self.random),
            (1, 11) => Device::Log(self.console.clone()),
            (10, 126) => Device::Watchers,
            (5, 0 | 1) | (4, 64) => Device::Terminal(number, self.console.clone()),
            _ => Device::Absent(number),
        }
    }
}

impl Device {
    /// Its major and minor number.
    pub fn number(&self) -> Number {
        match self {
            Self::Memory => (1, 1),
            Self::Null => (1, 3),
            Self::Zero => (1, 5),
            Self::Full => (1, 7),
            Self::Log(_) => (1, 11),
            Self::Watchers => (10, 126),
            Self::Random(number, _) | Self::Terminal(number, _) | Self::Absent(number) => *number,
        }
    }

    /// Reads at most `count` bytes.
    ///
    /// # Errors
    /// [`Blocked`](super::Halt::Blocked) and [`Errno::EAGAIN`] from the terminal,
    /// [`Errno::EINVAL`] from the log and from that of watchers, [`Errno::EPERM`] from memory,
    /// [`Errno::ENXIO`] if there is no such device; the sink's error when it took nothing.
    pub fn read(
        &self,
        who: &Caller<'_>,
        nonblocking: bool,
        count: usize,
        sink: &mut dyn Sink,
    ) -> Outcome<usize> {
        match self {
            Self::Null => Ok(0),
            Self::Memory => Err(Errno::EPERM.into()),
            Self::Zero | Self::Full => Ok(pour(count, sink, |_| {})?),
            Self::Random(_, fill) => Ok(pour(count, sink, fill)?),
            Self::Terminal(_, console) => console.read(who, nonblocking, count, sink),
            Self::Log(_) | Self::Watchers => Err(Errno::EINVAL.into()),
            Self::Absent(_) => Err(Errno::ENXIO.into()),
        }
    }

    /// Writes what the source has left.
    ///
    /// # Errors
    /// [`Errno::ENOSPC`] from the full device, [`Errno::EPERM`] from memory, [`Errno::EINVAL`] from
    /// that of watchers, [`Errno::ENXIO`] if there is no such device; the source's error when it
    /// gave nothing.
    pub fn write(&self, source: &mut dyn Source) -> Result<usize> {
        match self {
            Self::Null | Self::Zero | Self::Random(..) => Ok(source.left()),
            Self::Full => Err(Errno::ENOSPC),
            Self::Memory => Err(Errno::EPERM),
            Self::Terminal(_, console) => console.write(source),
            Self::Log(console) => console.log(source),
            Self::Watchers => Err(Errno::EINVAL),
            Self::Absent(_) => Err(Errno::ENXIO),
        }
    }
}

/// Puts `count` bytes into `sink` that `fill` made; it gets zeroes.
fn pour(count: usize, sink: &mut dyn Sink, fill: impl Fn(&mut [u8])) -> Result<usize> {
    let mut bytes = [0; 256];
    let mut done = 0;
    while done < count {
        let part = &mut bytes[..(count - done).min(256)];
        fill(part);
        if let Err(errno) = sink.put(part) {
            return moved(done, Some(errno));
        }
        done += part.len();
    }
    Ok(done)
}
