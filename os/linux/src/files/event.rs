//! Counters of events (`eventfd`): writes add, a read takes all, or one.

use alloc::sync::Arc;

use spin::mutex::SpinMutex;

use super::call::{Caller, Halt, Outcome, Sink, Source};
use super::object::Object;
use super::poll::PollEvents;
use crate::{Errno, Result, Waiters, Wake};

/// The most that a counter holds.
const MOST: u64 = u64::MAX - 1;

/// Bytes of a number that is read or written.
const BYTES: usize = 8;

/// A counter.
pub struct Events {
    count: SpinMutex<u64>,
    waiters: Waiters,
    /// A read takes one, and not all (`EFD_SEMAPHORE`).
    by_one: bool,
}

impl Events {
    /// A counter that begins at `count`.
    pub fn new(count: u64, by_one: bool) -> Self {
        Self { count: SpinMutex::new(count), waiters: Waiters::new(), by_one }
    }

    fn wait<T>(&self, who: &Caller<'_>, nonblocking: bool) -> Outcome<T> {
        if nonblocking {
            return Err(Errno::EAGAIN.into());
        }
        self.waiters.add(who.wake)?;
        Err(Halt::Blocked)
    }
}

impl Object for Events {
    fn name(&self) -> &'static str {
        "[eventfd]"
    }

    fn read(
        &self,
        who: &Caller<'_>,
        nonblocking: bool,
        room: usize,
        sink: &mut dyn Sink,
    ) -> Outcome<usize> {
        if room < BYTES {
            return Err(Errno::EINVAL.into());
        }
        let taken = {
            let mut count = self.count.lock();
            if *count == 0 {
                return self.wait(who, nonblocking);
            }
            let taken = if self.by_one { 1 } else { *count };
            *count -= taken;
            taken
        };
        self.waiters.wake();
        sink.put(&taken.to_ne_bytes())?;
        Ok(BYTES)
    }

    fn write(
        &self,
        who: &Caller<'_>,
        nonblocking: bool,
        source: &mut dyn Source,
    ) -> Outcome<usize> {
        let mut bytes = [0; BYTES];
        if source.left() < BYTES || source.take(&mut bytes)? < BYTES {
            return Err(Errno::EINVAL.into());
        }
        let more = u64::from_ne_bytes(bytes);
        if more > MOST {
            return Err(Errno::EINVAL.into());
        }
        {
            let mut count = self.count.lock();
            if more > MOST - *count {
                return self.wait(who, nonblocking);
            }
            *count += more;
        }
        self.waiters.wake();
        Ok(BYTES)
    }

    fn readiness(&self) -> PollEvents {
        let count = *self.count.lock();
        let mut events = PollEvents::empty();
        events.set(PollEvents::IN | PollEvents::RDNORM, count > 0);
        events.set(PollEvents::OUT | PollEvents::WRNORM, count < MOST);
        events
    }

    fn wait_on(&self, who: &Arc<dyn Wake>) -> Result<()> {
        self.waiters.add(who)
    }
}
