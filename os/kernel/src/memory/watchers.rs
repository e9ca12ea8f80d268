//! The watchers of a space's memory (`userfaultfd`), by the numbers that its areas have.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use quire::space::{WatchFor, Watched, Watcher};
use quire::units::{Access, Order, PageSpan, Vpn};
use quire::{Answer, Answered, Error, Shield, Stop};
use quire_linux::watch::{Features, Flags, Queue, Told};
use quire_linux::{Errno, Result, Wake};
use spin::mutex::SpinMutex;

use super::space::ALL;
use super::{Memory, PAGE_SHIFT, errno, lend, mm, reserved, shrink};

/// The queue of each watcher, at its number less one.
pub(super) type Watchers = SpinMutex<Vec<Weak<Queue>>>;

/// How often an answer is tried again after reclaim.
const TRIES: usize = 16;

/// The state of a thread that a watcher answers for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    /// It is registered, and sleeps until woken.
    Sleeps,
    /// It tries again: the watcher has just ended.
    TriesAgain,
    /// It gets no page: the program has chosen SIGBUS.
    GetsSignal,
}

impl Memory {
    /// The number of a watcher here.
    ///
    /// # Errors
    /// `ENOMEM`, also when there are too many.
    pub(crate) fn watcher(&self, queue: &Arc<Queue>) -> Result<Watcher> {
        let mut watchers = self.watchers.lock();
        let is_it = |known: &Weak<Queue>| core::ptr::eq(known.as_ptr(), Arc::as_ptr(queue));
        let free = |known: &Weak<Queue>| known.strong_count() == 0;
        let place = watchers.iter().position(is_it);
        let at = match place.or_else(|| watchers.iter().position(free)) {
            Some(at) => {
                watchers[at] = Arc::downgrade(queue);
                at
            }
            None => {
                watchers.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                watchers.push(Arc::downgrade(queue));
                watchers.len() - 1
            }
        };
        u8::try_from(at + 1).ok().and_then(Watcher::new).ok_or(Errno::ENOMEM)
    }

    /// The queue of a watcher, if it has not ended.
    pub(crate) fn queue(&self, watcher: Watcher) -> Option<Arc<Queue>> {
        self.watchers.lock().get(usize::from(watcher.get()) - 1)?.upgrade()
    }

    /// Makes `queue` that of a watcher.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn set_queue(&self, watcher: Watcher, queue: &Arc<Queue>) -> Result<()> {
        let (mut watchers, at) = (self.watchers.lock(), usize::from(watcher.get()) - 1);
        let lacks = (at + 1).saturating_sub(watchers.len());
        watchers.try_reserve(lacks).map_err(|_| Errno::ENOMEM)?;
        while watchers.len() <= at {
            watchers.push(Weak::new());
        }
        watchers[at] = Arc::downgrade(queue);
        Ok(())
    }

    /// Tells a watcher of a fault at `address` by thread `tid`, which is registered to be woken.
    /// The caller looks again after that, so that no answer is missed.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn tell_watcher(
        &self,
        event: Watched,
        address: u64,
        tid: u32,
        who: &Arc<dyn Wake>,
    ) -> Result<Waits> {
        let Some(queue) = self.queue(event.watcher) else { return Ok(Waits::TriesAgain) };
        if queue.features().is_ok_and(|features| features.contains(Features::SIGBUS)) {
            return Ok(Waits::GetsSignal);
        }
        let mut flags = Flags::empty();
        flags.set(Flags::WRITE, event.access == Access::Write);
        flags.set(Flags::MINOR, event.event == WatchFor::MINOR);
        flags.set(Flags::PROTECTED, event.event == WatchFor::WRITE);
        queue.tell(Told { address, unit: self.unit_at(event.page), flags, tid }, who)?;
        Ok(Waits::Sleeps)
    }

    /// How many bytes are mapped at once at `page`: a page, or a reserved folio.
    fn unit_at(&self, page: Vpn) -> u64 {
        let mut areas = mm().spaces().areas(self.space(), PageSpan::block(page, Order::ZERO));
        let order = areas.find_map(|area| reserved::of_area(&area));
        order.unwrap_or_default().bytes(PAGE_SHIFT)
    }

    /// Whether the watcher of `event` answers for the kernel's own copies.
    pub(crate) fn hears_kernel(&self, event: Watched) -> bool {
        self.queue(event.watcher).is_none_or(|queue| queue.hears_kernel())
    }

    /// The thread does not wait for that watcher any more.
    pub(crate) fn untell_watcher(&self, event: Watched, tid: u32) {
        if let Some(queue) = self.queue(event.watcher) {
            queue.forget(tid);
        }
    }

    /// Maps pages as a watcher says, and takes memory from others where that is needed.
    pub(crate) fn answer(
        &self,
        span: PageSpan,
        answer: &mut Answer<'_>,
        shield: Shield,
    ) -> Answered {
        let mut pages = 0;
        for _ in 0..TRIES {
            let left = PageSpan::new(span.start.add(pages), span.end);
            let done = mm().files().answer(self.space(), left, answer, shield);
            pages += done.pages;
            let is_eased = match done.end {
                Err(Stop::Refuse(Error::NoMemory(_))) => shrink(),
                Err(Stop::Refuse(Error::OverLimit(group))) => lend(group),
                _ => false,
            };
            if !is_eased {
                return Answered { pages, end: done.end };
            }
        }
        let left = PageSpan::new(span.start.add(pages), span.end);
        let done = mm().files().answer(self.space(), left, answer, shield);
        Answered { pages: pages + done.pages, end: done.end }
    }

    /// Moves pages into missing ones as a watcher says, and takes memory from others where that is
    /// needed.
    pub(crate) fn move_pages(&self, from: PageSpan, to: Vpn, holes: bool) -> Answered {
        let mut tries = 0;
        loop {
            let done = mm().spaces().move_pages(self.space(), from, to, holes);
            let lacks = matches!(done.end, Err(Stop::Refuse(Error::NoMemory(_))));
            if !lacks || tries == TRIES || !shrink() {
                return done;
            }
            tries += 1;
        }
    }

    /// Protects pages from writes, or ends that, and takes memory from others where that is needed.
    ///
    /// # Errors
    /// `ENOENT` where a page is not watched for writes; `ENOMEM`, `EINVAL`.
    pub(crate) fn write_protect(&self, span: PageSpan, shield: Shield) -> Result<()> {
        for tried in 0.. {
            match mm().spaces().write_protect(self.space(), span, shield) {
                Ok(()) => break,
                Err(Error::NoMemory(_)) if tried < TRIES && shrink() => {}
                Err(Error::NoArea(_)) => return Err(Errno::ENOENT),
                Err(error) => return Err(errno(error)),
            }
        }
        Ok(())
    }

    /// A watcher ends: no area has it any more.
    pub(crate) fn unwatch(&self, queue: &Arc<Queue>) {
        if let Ok(watcher) = self.watcher(queue) {
            self.unwatch_span(ALL, watcher);
        }
        queue.wake(None);
    }

    /// The areas of `span` that have this watcher have none any more.
    pub(crate) fn unwatch_span(&self, span: PageSpan, watcher: Watcher) {
        let spaces = mm().spaces();
        if !spaces.was_watched(self.space()) {
            return;
        }
        for area in spaces.areas(self.space(), span) {
            if area.flags.watch().is_some_and(|watch| watch.watcher == watcher) {
                // Without memory to split an area, it stays watched: its faults try again.
                let _ = spaces.watch(self.space(), area.span.intersect(span), None);
            }
        }
    }
}
