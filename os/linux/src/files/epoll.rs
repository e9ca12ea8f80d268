//! Sets of files to wait for (`epoll`).
//!
//! ```text
//!   Set ── entries, by descriptor ──► Entry ── registered as a waiter with ──► its file
//!    ▲                                  │ woken: `is_news`, and wakes the set's waiters
//!    └──────────────────────────────────┘
//!   a pass: each entry with news registers again, then looks; without events it has no news left
//! ```
//!
//! So a pass costs a look at the entries with news only. An entry that triggers at levels keeps its
//! news while it has events; one that triggers at edges loses it with each report.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicBool, Ordering};

use linux_raw_sys::general as raw;
use spin::mutex::SpinMutex;

use super::node::{Body, Kind};
use super::object::Object;
use super::open::Description;
use super::poll::{PollEvents, readiness, wait_on};
use crate::{Errno, Result, Waiters, Wake};

/// A report, or a wish: events with their flags, and a word of the program's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// `EPOLL` bits; the lower 16 are those of `poll`.
    pub events: u32,
    /// The program's own.
    pub data: u64,
}

/// The deepest chain of sets within sets.
const DEPTH_MAX: u32 = 5;

struct Entry {
    file: Weak<Description>,
    wish: SpinMutex<Event>,
    is_news: AtomicBool,
    news: Arc<Waiters>,
}

impl Wake for Entry {
    fn wake(&self) {
        self.is_news.store(true, Ordering::SeqCst);
        self.news.wake();
    }
}

impl Entry {
    /// Its events now, which count as reported if `reports`; `None` when its file is gone.
    fn look(self: &Arc<Self>, reports: bool) -> Result<Option<Event>> {
        let Some(file) = self.file.upgrade() else { return Ok(None) };
        let wish = *self.wish.lock();
        self.is_news.store(false, Ordering::SeqCst);
        let who: Arc<dyn Wake> = self.clone();
        wait_on(&file, &who)?;
        let always = PollEvents::ERR | PollEvents::HUP;
        let wanted = PollEvents::from_bits_truncate(wish.events as u16) | always;
        let found = readiness(&file) & wanted;
        // After a report at once, nothing of this entry is wanted: its bits are gone.
        let is_off = wish.events & !MODES == 0;
        let events = if is_off { PollEvents::empty() } else { found };
        if !events.is_empty() && (!reports || wish.events & raw::EPOLLET == 0) {
            self.is_news.store(true, Ordering::SeqCst);
        }
        if !events.is_empty() && reports && wish.events & raw::EPOLLONESHOT != 0 {
            self.wish.lock().events &= MODES;
        }
        Ok(Some(Event { events: events.bits().into(), data: wish.data }))
    }
}

/// Bits that say how, and not what.
const MODES: u32 = raw::EPOLLET | raw::EPOLLONESHOT | raw::EPOLLWAKEUP | raw::EPOLLEXCLUSIVE;

/// A set of files.
#[derive(Default)]
pub struct Epoll {
    entries: SpinMutex<BTreeMap<u32, Arc<Entry>>>,
    news: Arc<Waiters>,
}

impl Epoll {
    /// The set that is open.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] if it is something else.
    pub fn of(open: &Description) -> Result<&Self> {
        let Body::Object(object) = open.node().body() else { return Err(Errno::EINVAL) };
        let object: &dyn Any = &**object;
        object.downcast_ref().ok_or(Errno::EINVAL)
    }

    /// Adds, changes or removes (`EPOLL_CTL_`) the entry of descriptor `fd`, which is `file`.
    ///
    /// # Errors
    /// [`Errno::EPERM`] for files that are always ready, [`Errno::ELOOP`], [`Errno::EEXIST`],
    /// [`Errno::ENOENT`], [`Errno::EINVAL`] for an unknown operation.
    pub fn control(
        &self,
        operation: u32,
        fd: u32,
        file: &Arc<Description>,
        wish: Event,
    ) -> Result<()> {
        if matches!(file.node().kind(), Kind::File | Kind::Directory | Kind::Block) {
            return Err(Errno::EPERM);
        }
        let is_it = |entry: &Entry| entry.file.as_ptr() == Arc::as_ptr(file);
        let mut entries = self.entries.lock();
        let there = entries.get(&fd).filter(|entry| is_it(entry)).cloned();
        match (operation, there) {
            (raw::EPOLL_CTL_ADD, Some(_)) => return Err(Errno::EEXIST),
            (raw::EPOLL_CTL_ADD, None) => {
                if depth(file, self, 0)? >= DEPTH_MAX {
                    return Err(Errno::ELOOP);
                }
                let entry = Entry {
                    file: Arc::downgrade(file),
                    wish: SpinMutex::new(wish),
                    is_news: AtomicBool::new(true),
                    news: self.news.clone(),
                };
                entries.insert(fd, Arc::new(entry));
            }
            (raw::EPOLL_CTL_MOD, Some(entry)) => {
                *entry.wish.lock() = wish;
                entry.is_news.store(true, Ordering::SeqCst);
            }
            (raw::EPOLL_CTL_DEL, Some(_)) => drop(entries.remove(&fd)),
            (raw::EPOLL_CTL_MOD | raw::EPOLL_CTL_DEL, None) => return Err(Errno::ENOENT),
            _ => return Err(Errno::EINVAL),
        }
        drop(entries);
        self.news.wake();
        Ok(())
    }

    /// Registers `who`, if given, then looks: at most `most` reports.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub fn wait(&self, who: Option<&Arc<dyn Wake>>, most: usize) -> Result<Vec<Event>> {
        if let Some(who) = who {
            self.news.add(who)?;
        }
        let mut found = Vec::new();
        for (fd, entry) in self.with_news()? {
            if found.len() >= most {
                break;
            }
            match entry.look(true)? {
                None => {
                    let mut entries = self.entries.lock();
                    if entries.get(&fd).is_some_and(|there| Arc::ptr_eq(there, &entry)) {
                        entries.remove(&fd);
                    }
                }
                Some(event) if event.events == 0 => {}
                Some(event) => {
                    found.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                    found.push(event);
                }
            }
        }
        Ok(found)
    }

    /// The entries that may have events.
    fn with_news(&self) -> Result<Vec<(u32, Arc<Entry>)>> {
        let entries = self.entries.lock();
        let is_new = |(_, entry): &(&u32, &Arc<Entry>)| entry.is_news.load(Ordering::SeqCst);
        let mut all = Vec::new();
        all.try_reserve_exact(entries.iter().filter(is_new).count()).map_err(|_| Errno::ENOMEM)?;
        all.extend(entries.iter().filter(is_new).map(|(fd, entry)| (*fd, entry.clone())));
        Ok(all)
    }
}

/// How deep the sets are within `file`.
///
/// # Errors
/// [`Errno::ELOOP`] when `top` is one of them; [`Errno::EINVAL`] when it is `file` itself.
fn depth(file: &Arc<Description>, top: &Epoll, above: u32) -> Result<u32> {
    let Ok(set) = Epoll::of(file) else { return Ok(above) };
    if core::ptr::eq(set, top) {
        return Err(if above == 0 { Errno::EINVAL } else { Errno::ELOOP });
    }
    if above >= DEPTH_MAX {
        return Err(Errno::ELOOP);
    }
    let mut deepest = above + 1;
    let files: Vec<Weak<Description>> =
        set.entries.lock().values().map(|entry| entry.file.clone()).collect();
    for file in files.iter().filter_map(Weak::upgrade) {
        deepest = deepest.max(depth(&file, top, above + 1)?);
    }
    Ok(deepest)
}

impl Object for Epoll {
    fn name(&self) -> &'static str {
        "[eventpoll]"
    }

    fn readiness(&self) -> PollEvents {
        let is_ready = |(_, entry): &(u32, Arc<Entry>)| {
            entry.look(false).is_ok_and(|event| event.is_some_and(|event| event.events != 0))
        };
        let ready = self.with_news().is_ok_and(|entries| entries.iter().any(is_ready));
        let mut events = PollEvents::empty();
        events.set(PollEvents::IN | PollEvents::RDNORM, ready);
        events
    }

    fn wait_on(&self, who: &Arc<dyn Wake>) -> Result<()> {
        self.news.add(who)
    }
}
