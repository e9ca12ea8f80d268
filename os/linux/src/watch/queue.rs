//! The faults that wait for a watcher, and the messages about them.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use bitflags::bitflags;
use spin::mutex::SpinMutex;

use super::ask::{Features, Range};
use super::notice::{Change, Notice};
use crate::files::{Caller, Halt, Object, Outcome, PollEvents, Sink};
use crate::{Errno, Result, Waiters, Wake};

bitflags! {
    /// The kind of a fault, as messages say it.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Flags: u64 {
        /// The program wrote.
        const WRITE = 1 << 0;
        /// The page is protected.
        const PROTECTED = 1 << 1;
        /// The file has the page.
        const MINOR = 1 << 2;
    }
}

/// A fault to tell a watcher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Told {
    /// Its address.
    pub address: u64,
    /// How many bytes are mapped at once there, a power of two.
    pub unit: u64,
    /// Its kind.
    pub flags: Flags,
    /// The thread.
    pub tid: u32,
}

/// A thread that waits.
struct Sleeper {
    told: Told,
    /// The watcher has its message.
    is_read: bool,
    who: Weak<dyn Wake>,
}

/// A watcher's queue.
pub struct Queue {
    /// The features that the program has chosen; [`UNSET`] before that.
    features: AtomicU64,
    sleepers: SpinMutex<Vec<Sleeper>>,
    /// The changes that were not read, the oldest first; `None` once the watcher has ended.
    notices: SpinMutex<Option<Vec<Arc<Notice>>>>,
    readers: Waiters,
    /// It is not told of faults of the kernel's own copies.
    users_only: bool,
}

/// No features were chosen yet.
const UNSET: u64 = u64::MAX;

/// The version of the interface.
const VERSION: u64 = 0xaa;

/// Bytes of a message.
const MESSAGE: usize = 32;

/// The event of a message: a fault.
const FAULT: u8 = 0x12;

/// A message of an event, with its words.
fn message(event: u8, words: [u64; 3]) -> [u8; MESSAGE] {
    let mut message = [0; MESSAGE];
    message[0] = event;
    message[8..].copy_from_slice(words.map(u64::to_ne_bytes).as_flattened());
    message
}

impl Queue {
    /// A queue without faults; with `users_only`, of none of the kernel's own copies.
    #[must_use]
    pub const fn new(users_only: bool) -> Self {
        Self {
            features: AtomicU64::new(UNSET),
            sleepers: SpinMutex::new(Vec::new()),
            notices: SpinMutex::new(Some(Vec::new())),
            readers: Waiters::new(),
            users_only,
        }
    }

    /// The queue of a child: without faults, with the same features.
    #[must_use]
    pub fn another(&self) -> Self {
        let features = AtomicU64::new(self.features.load(Ordering::Acquire));
        Self { features, ..Self::new(self.users_only) }
    }

    /// Whether it is told of faults of the kernel's own copies.
    #[must_use]
    pub const fn hears_kernel(&self) -> bool {
        !self.users_only
    }

    /// Chooses version and features, once.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a version or features that do not exist, and for the second time.
    pub fn choose(&self, version: u64, features: u64) -> Result<()> {
        if version != VERSION || Features::from_bits(features).is_none() {
            return Err(Errno::EINVAL);
        }
        let chosen =
            self.features.compare_exchange(UNSET, features, Ordering::AcqRel, Ordering::Acquire);
        chosen.map(drop).map_err(|_| Errno::EINVAL)
    }

    /// The features that were chosen.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] before that.
    pub fn features(&self) -> Result<Features> {
        match self.features.load(Ordering::Acquire) {
            UNSET => Err(Errno::EINVAL),
            bits => Ok(Features::from_bits_truncate(bits)),
        }
    }

    /// Notes a fault of a thread, and registers it to be woken with its page; an earlier fault of
    /// the thread is over.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub fn tell(&self, told: Told, who: &Arc<dyn Wake>) -> Result<()> {
        {
            let mut sleepers = self.sleepers.lock();
            let is_same = |other: &Told| other.tid == told.tid;
            let known = sleepers.iter().position(|sleeper| is_same(&sleeper.told));
            let is_read = known.is_some_and(|at| {
                let old = sleepers.remove(at);
                old.is_read && old.told == told
            });
            sleepers.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            sleepers.push(Sleeper { told, is_read, who: Arc::downgrade(who) });
        }
        self.readers.wake();
        Ok(())
    }

    /// Tells the watcher of a change. `None` if it has ended.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub fn announce(&self, change: Change) -> Result<Option<Arc<Notice>>> {
        let notice = Arc::new(Notice::new(change));
        {
            let mut notices = self.notices.lock();
            let Some(notices) = notices.as_mut() else { return Ok(None) };
            notices.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            notices.push(notice.clone());
        }
        self.readers.wake();
        Ok(Some(notice))
    }

    /// Whether a change was not read yet: until then, answers would be about what was before it.
    pub fn is_changing(&self) -> bool {
        self.waiting().is_some()
    }

    /// The oldest change that was not read and that a thread waits with.
    fn waiting(&self) -> Option<Arc<Notice>> {
        let mut notices = self.notices.lock();
        let notices = notices.as_mut()?;
        // A thread that was killed does not wait.
        notices.retain(|notice| Arc::strong_count(notice) > 1);
        notices.first().cloned()
    }

    /// A change was read: its thread goes on.
    fn done_with(&self, read: &Arc<Notice>) {
        if let Some(notices) = self.notices.lock().as_mut() {
            notices.retain(|notice| !Arc::ptr_eq(notice, read));
        }
        read.is_over();
    }

    /// The watcher ends: all threads go on.
    pub fn close(&self) {
        let notices = self.notices.lock().take();
        notices.iter().flatten().for_each(|notice| notice.is_over());
        self.wake(None);
    }

    /// A thread does not wait any more.
    pub fn forget(&self, tid: u32) {
        self.sleepers.lock().retain(|sleeper| sleeper.told.tid != tid);
    }

    /// Wakes the threads that wait for pages of `range`; `None`: all.
    pub fn wake(&self, range: Option<Range>) {
        let woken = {
            let mut sleepers = self.sleepers.lock();
            let all = core::mem::take(&mut *sleepers);
            let is_in = |address: u64| {
                range.is_none_or(|range| (range.start..range.end).contains(&address))
            };
            let (woken, rest): (Vec<_>, _) =
                all.into_iter().partition(|sleeper| is_in(sleeper.told.address));
            *sleepers = rest;
            woken
        };
        woken.iter().filter_map(|sleeper| sleeper.who.upgrade()).for_each(|who| who.wake());
    }

    /// Reads the messages of faults and changes that were not read, at most `count` bytes. `file`
    /// makes the number of a child's file.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] before features are chosen, or when `count` has no room for a message;
    /// [`Errno::EAGAIN`] if `nonblocking`, [`Halt::Blocked`], the sink's, those of `file`.
    pub fn read(
        &self,
        who: &Caller<'_>,
        nonblocking: bool,
        count: usize,
        sink: &mut dyn Sink,
        file: &mut dyn FnMut(&Arc<dyn Object>) -> Result<u32>,
    ) -> Outcome<usize> {
        let features = self.features()?;
        if count < MESSAGE {
            return Err(Errno::EINVAL.into());
        }
        if !nonblocking {
            self.readers.add(who.wake)?;
        }
        let mut done = 0;
        while done + MESSAGE <= count
            && let Some(told) = self.next()
        {
            if let Err(error) = sink.put(&self.message(told, features)) {
                self.unread(told);
                return if done > 0 { Ok(done) } else { Err(error.into()) };
            }
            done += MESSAGE;
        }
        while done + MESSAGE <= count
            && let Some(notice) = self.waiting()
        {
            let put = notice
                .change
                .words(file)
                .and_then(|(number, words)| sink.put(&message(number, words)));
            match put {
                Err(error) if done == 0 => return Err(error.into()),
                Err(_) => break,
                Ok(()) => self.done_with(&notice),
            }
            done += MESSAGE;
        }
        match done {
            0 if nonblocking => Err(Errno::EAGAIN.into()),
            0 => Err(Halt::Blocked),
            _ => Ok(done),
        }
    }

    /// The first fault whose message was not read; it is read now.
    fn next(&self) -> Option<Told> {
        let mut sleepers = self.sleepers.lock();
        // A thread that has ended does not wait.
        sleepers.retain(|sleeper| sleeper.who.strong_count() > 0);
        let first = sleepers.iter_mut().find(|sleeper| !sleeper.is_read)?;
        first.is_read = true;
        Some(first.told)
    }

    fn unread(&self, told: Told) {
        let mut sleepers = self.sleepers.lock();
        if let Some(sleeper) = sleepers.iter_mut().find(|sleeper| sleeper.told == told) {
            sleeper.is_read = false;
        }
    }

    fn message(&self, told: Told, features: Features) -> [u8; MESSAGE] {
        let address = match features.contains(Features::EXACT_ADDRESS) {
            true => told.address,
            false => told.address & !(told.unit - 1),
        };
        let tid = if features.contains(Features::THREAD_ID) { told.tid } else { 0 };
        message(FAULT, [told.flags.bits(), address, tid.into()])
    }

    /// The events now: it can be read when there is a message.
    pub fn readiness(&self) -> PollEvents {
        if self.features().is_err() {
            return PollEvents::ERR;
        }
        let faults = self.sleepers.lock().iter().any(|sleeper| !sleeper.is_read);
        match faults || self.is_changing() {
            true => PollEvents::IN | PollEvents::RDNORM,
            false => PollEvents::empty(),
        }
    }

    /// Registers a waiter for a message.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub fn wait_on(&self, who: &Arc<dyn Wake>) -> Result<()> {
        self.readers.add(who)
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU32;

    use super::*;
    use crate::files::Time;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn woken(who: &Arc<Count>) -> u32 {
        who.0.load(Ordering::Relaxed)
    }

    fn read(queue: &Queue, count: usize) -> Outcome<Vec<u8>> {
        let wake: Arc<dyn Wake> = Arc::new(Count::default());
        let may = &crate::credentials::ROOT;
        let who =
            Caller { pid: 1, tid: 1, may, now: Time::default(), longest: u64::MAX, wake: &wake };
        let mut bytes = Vec::new();
        queue.read(&who, true, count, &mut bytes, &mut |_| Ok(9)).map(|_| bytes)
    }

    fn told(address: u64, tid: u32) -> Told {
        Told { address, unit: 4096, flags: Flags::WRITE, tid }
    }

    #[test]
    fn d8_features_are_chosen_once_and_only_those_that_exist() {
        let queue = Queue::new(false);
        assert_eq!(queue.features(), Err(Errno::EINVAL));
        assert_eq!(queue.readiness(), PollEvents::ERR);
        assert_eq!(read(&queue, 32), Err(Errno::EINVAL.into()));
        assert_eq!(queue.choose(0xab, 0), Err(Errno::EINVAL));
        assert_eq!(queue.choose(0xaa, 1 << 17), Err(Errno::EINVAL));
        assert_eq!(queue.choose(0xaa, 1 << 8), Ok(()));
        assert_eq!(queue.choose(0xaa, 1 << 8), Err(Errno::EINVAL));
        assert_eq!(queue.features(), Ok(Features::THREAD_ID));
    }

    #[test]
    fn d8_a_fault_is_told_once_and_its_thread_is_woken_with_its_page() {
        let queue = Queue::new(false);
        queue.choose(0xaa, (Features::THREAD_ID | Features::SIGBUS).bits()).unwrap();
        let own = [Arc::new(Count::default()), Arc::new(Count::default())];
        let who: [Arc<dyn Wake>; 2] = [own[0].clone(), own[1].clone()];
        queue.tell(told(0x5123, 7), &who[0]).unwrap();
        queue.tell(told(0x9000, 8), &who[1]).unwrap();
        assert_eq!(queue.readiness(), PollEvents::IN | PollEvents::RDNORM);
        let bytes = read(&queue, 63).unwrap();
        assert_eq!((bytes.len(), bytes[0], bytes[8]), (32, 0x12, 1));
        assert_eq!((&bytes[16..24], bytes[24]), (&0x5000_u64.to_ne_bytes()[..], 7));
        // A thread that was disturbed faults again: the watcher knows.
        queue.tell(told(0x5123, 7), &who[0]).unwrap();
        assert_eq!(read(&queue, 64).map(|bytes| bytes[17]), Ok(0x90));
        assert_eq!(read(&queue, 64), Err(Errno::EAGAIN.into()));
        queue.wake(Some(Range { start: 0x5000, end: 0x6000 }));
        assert_eq!((woken(&own[0]), woken(&own[1])), (1, 0));
        queue.wake(None);
        assert_eq!((woken(&own[0]), woken(&own[1])), (1, 1));
    }

    #[test]
    fn d8_a_change_is_told_after_the_faults_and_its_thread_goes_on_then() {
        let queue = Queue::new(false);
        queue.choose(0xaa, 0).unwrap();
        let own = Arc::new(Count::default());
        let who: Arc<dyn Wake> = own.clone();
        let gone = Range { start: 0x4000, end: 0x6000 };
        let notice = queue.announce(Change::Unmap(gone)).unwrap().unwrap();
        assert!(queue.is_changing());
        assert_eq!(notice.wait(&who), Ok(false));
        queue.tell(told(0x5123, 7), &who).unwrap();
        assert_eq!(read(&queue, 32).map(|bytes| bytes[0]), Ok(0x12));
        assert_eq!((woken(&own), queue.readiness()), (0, PollEvents::IN | PollEvents::RDNORM));
        let bytes = read(&queue, 64).unwrap();
        assert_eq!((bytes.len(), bytes[0]), (32, 0x16));
        assert_eq!(bytes[8..], [0x4000_u64, 0x6000, 0].map(u64::to_ne_bytes).as_flattened()[..]);
        assert_eq!((woken(&own), notice.wait(&who)), (1, Ok(true)));
        assert!(!queue.is_changing());
        // A thread that was killed does not wait, and a watcher that ended hears nothing.
        drop(queue.announce(Change::Remove(gone)).unwrap());
        assert!(!queue.is_changing());
        let last = queue.announce(Change::Remap { from: 1, to: 2, bytes: 3 }).unwrap().unwrap();
        queue.close();
        assert_eq!(last.wait(&who), Ok(true));
        assert!(queue.announce(Change::Remove(gone)).unwrap().is_none());
    }

    #[test]
    fn d8_a_thread_that_does_not_wait_any_more_is_not_told() {
        let queue = Queue::new(false);
        queue.choose(0xaa, Features::EXACT_ADDRESS.bits()).unwrap();
        let who: Arc<dyn Wake> = Arc::new(Count::default());
        queue.tell(told(0x5123, 7), &who).unwrap();
        queue.forget(7);
        assert_eq!(queue.readiness(), PollEvents::empty());
        queue.tell(told(0x5123, 9), &who).unwrap();
        let bytes = read(&queue, 32).unwrap();
        assert_eq!((&bytes[16..24], bytes[24]), (&0x5123_u64.to_ne_bytes()[..], 0));
    }
}
