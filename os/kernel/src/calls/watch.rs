//! Watchers of memory (`userfaultfd`): registering areas, and answers for their missing pages.

use alloc::sync::{Arc, Weak};

use linux_raw_sys::general as abi;
use quire::cache::Store;
use quire::hw::FrameRun;
use quire::space::{Area, AreaFlags, Backing, Watch, WatchFor, Watched, Watcher};
use quire::units::{PageSpan, Prot, Vpn};
use quire::{Answer as Given, Answered, Error, Shield, Stop as Halt};
use quire_linux::files::{Body, Caller, Description, Object, Outcome, PollEvents, Sink, Source};
use quire_linux::watch::{Ask, Features, Mode, Queue, Range, Request, Then};
use quire_linux::{Errno, Result, Wake};

use crate::isa;
use crate::memory::{self, Memory, PAGE, Waits, errno, mm, reserved, user};
use crate::task::tree::{time, tree, with_calls};
use crate::task::{Answer, Stop, Thread, find};

/// `USERFAULTFD_IOC_NEW`: what `userfaultfd` does, for those who may open the device.
pub(super) const NEW: u32 = 0xaa << 8;

/// The capability to watch children as well.
const CAP_SYS_PTRACE: u32 = 19;

/// `UFFD_USER_MODE_ONLY`: faults of the kernel's own copies are errors.
const USER_MODE_ONLY: u32 = 1;

pub(super) fn userfaultfd(thread: &mut Thread, [flags, ..]: [usize; 6]) -> Answer {
    let flags = flags as u32;
    if flags & USER_MODE_ONLY == 0 && !thread.process().may().can(abi::CAP_SYS_PTRACE) {
        return Err(Errno::EPERM.into());
    }
    make(thread, flags)
}

/// Makes a watcher, for callers that may.
pub(super) fn make(thread: &Thread, flags: u32) -> Answer {
    if flags & !(abi::O_CLOEXEC | abi::O_NONBLOCK | USER_MODE_ONLY) != 0 {
        return Err(Errno::EINVAL.into());
    }
    memory::admit()?;
    let memory = memory::current().ok_or(Errno::ESRCH)?;
    let queue = Arc::new(Queue::new(flags & USER_MODE_ONLY != 0));
    let file = Arc::new(WatcherFile { queue, memory: Arc::downgrade(&memory) });
    let open = described(file, flags & abi::O_NONBLOCK);
    let is_private = flags & abi::O_CLOEXEC != 0;
    Ok(with_calls(thread, |calls| calls.table.add(open, is_private, 0))? as usize)
}

fn described(file: Arc<dyn Object>, nonblocking: u32) -> Arc<Description> {
    let node = tree().make(Body::Object(file), 0o600, time());
    Arc::new(Description::new(node, None, abi::O_RDWR | nonblocking, None))
}

/// Opens the watcher of a child for the process that reads of it; returns its number there.
fn open(who: &Caller<'_>, child: &Arc<dyn Object>) -> Result<u32> {
    let process = find(who.pid).ok_or(Errno::ESRCH)?;
    process.files().add(described(child.clone(), 0), false, 0)
}

/// A watcher: its queue of faults, and the memory that it watches.
pub(super) struct WatcherFile {
    queue: Arc<Queue>,
    memory: Weak<Memory>,
}

impl WatcherFile {
    /// The watcher of a child that was forked from the memory that `queue` watches, as the same
    /// number there.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn inherited(queue: &Queue, child: &Arc<Memory>, watcher: Watcher) -> Result<Self> {
        let queue = Arc::new(queue.another());
        child.set_queue(watcher, &queue)?;
        Ok(Self { queue, memory: Arc::downgrade(child) })
    }
}

impl Drop for WatcherFile {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.upgrade() {
            memory.unwatch(&self.queue);
        }
        self.queue.close();
    }
}

impl Object for WatcherFile {
    fn name(&self) -> &'static str {
        "[userfaultfd]"
    }

    fn read(
        &self,
        who: &Caller<'_>,
        nonblocking: bool,
        count: usize,
        sink: &mut dyn Sink,
    ) -> Outcome<usize> {
        self.queue.read(who, nonblocking, count, sink, &mut |child| open(who, child))
    }

    fn readiness(&self) -> PollEvents {
        self.queue.readiness()
    }

    fn wait_on(&self, who: &Arc<dyn Wake>) -> Result<()> {
        self.queue.wait_on(who)
    }

    fn control(
        &self,
        who: &Caller<'_>,
        request: u32,
        input: &mut dyn Source,
        output: &mut dyn Sink,
    ) -> Result<u32> {
        let request = Request::of(request).ok_or(Errno::EINVAL)?;
        if request != Request::Api {
            self.queue.features()?;
        }
        let words = request.read(input)?;
        let told = Told { request, words, output };
        // Else the answer would be about what was before the change.
        if request.maps() && self.queue.is_changing() {
            return told.fail(Errno::EAGAIN);
        }
        match Ask::of(request, &words, isa::USER_END, PAGE)? {
            Ask::Api(version, features) => {
                let forks = features & Features::FORK.bits() != 0;
                if forks && !who.may.can(CAP_SYS_PTRACE) {
                    return Err(Errno::EPERM);
                }
                self.choose(version, features, told)
            }
            Ask::Register(range, mode) => self.register(range, mode, told),
            Ask::Unregister(range) => self.unregister(range),
            Ask::Wake(range) => {
                self.queue.wake(Some(range));
                Ok(0)
            }
            Ask::Protect(range, then) => self.protect(range, then),
            Ask::Copy(range, from, then) => {
                let copy = &mut |pages: PageSpan, run: &FrameRun| {
                    let ahead = pages.start.get() * PAGE - range.start;
                    user::read_frames(from + ahead, run).is_ok()
                };
                self.answer(who, range, then, &mut Given::Copy(copy), told)
            }
            Ask::Zero(range, then) => self.answer(who, range, then, &mut Given::Zeroes, told),
            Ask::Continue(range, then) => self.answer(who, range, then, &mut Given::Cached, told),
            Ask::Poison(range, then) => self.answer(who, range, then, &mut Given::Poison, told),
            Ask::Move(range, from, holes, then) => self.take_over(range, from, holes, then, told),
        }
    }
}

/// A request, and where its answer goes.
struct Told<'a> {
    request: Request,
    words: [u64; 4],
    output: &'a mut dyn Sink,
}

impl Told<'_> {
    fn put(self, answer: u64) -> Result<()> {
        self.request.answer(&self.words, answer, self.output)
    }

    /// Tells an error in place of a number of bytes.
    fn fail(self, error: Errno) -> Result<u32> {
        self.put((-i64::from(error.number())) as u64)?;
        Err(error)
    }
}

/// The bits of requests, as masks of them have it.
fn bits(requests: &[Request]) -> u64 {
    requests.iter().fold(0, |bits, request| bits | request.bit())
}

fn pages(range: Range) -> PageSpan {
    PageSpan::new(Vpn::new(range.start / PAGE), Vpn::new(range.end / PAGE))
}

/// The bytes of `pages`.
pub(super) fn range(pages: PageSpan) -> Range {
    Range { start: pages.start.get() * PAGE, end: pages.end.get() * PAGE }
}

impl WatcherFile {
    fn memory(&self) -> Result<Arc<Memory>> {
        self.memory.upgrade().ok_or(Errno::ESRCH)
    }

    fn choose(&self, version: u64, features: u64, told: Told<'_>) -> Result<u32> {
        let chosen = self.queue.choose(version, features);
        let requests = bits(&[Request::Api, Request::Register, Request::Unregister]);
        let answer = match chosen {
            Ok(()) => [version, Features::all().bits(), requests],
            Err(_) => [0; 3],
        };
        told.output.put(answer.map(u64::to_ne_bytes).as_flattened())?;
        chosen.map(|()| 0)
    }

    /// The areas of `range` get this watcher, for these events.
    ///
    /// # Errors
    /// `EINVAL` where an area cannot have the events, or there is none; `EPERM` where the program
    /// may never write; `EBUSY` where another watches; `ENOMEM`.
    fn register(&self, range: Range, mode: Mode, told: Told<'_>) -> Result<u32> {
        let (memory, span) = (self.memory()?, pages(range));
        let (mut events, features) = (WatchFor::empty(), self.queue.features()?);
        events.set(WatchFor::MISSING, mode.contains(Mode::MISSING));
        events.set(WatchFor::MINOR, mode.contains(Mode::MINOR));
        if mode.contains(Mode::PROTECTED) {
            events |= WatchFor::WRITE;
            events.set(WatchFor::ASYNC, features.contains(Features::PROTECT_ASYNC));
        }
        events.set(WatchFor::MOVED, features.contains(Features::REMAP));
        events.set(WatchFor::FORKED, features.contains(Features::FORK));
        let watch = Watch { watcher: memory.watcher(&self.queue)?, events };
        let areas = || mm().spaces().areas(memory.space(), span);
        if areas().next().is_none() {
            return Err(Errno::EINVAL);
        }
        for area in areas() {
            may_watch(&area, watch)?;
        }
        for area in areas() {
            let part = area.span.intersect(span);
            mm().spaces().watch(memory.space(), part, Some(watch)).map_err(errno)?;
        }
        let mut answers = bits(&[Request::Wake, Request::Copy, Request::Poison]);
        if areas().all(|area| reserved::of_area(&area).is_none()) {
            answers |= bits(&[Request::Zero, Request::Move]);
        }
        let minor = if mode.contains(Mode::MINOR) { Request::Continue.bit() } else { 0 };
        let write = if mode.contains(Mode::PROTECTED) { Request::Protect.bit() } else { 0 };
        told.put(answers | minor | write)?;
        Ok(0)
    }

    fn unregister(&self, range: Range) -> Result<u32> {
        let (memory, span) = (self.memory()?, pages(range));
        let watcher = memory.watcher(&self.queue)?;
        let mut found = false;
        for area in mm().spaces().areas(memory.space(), span) {
            let other = area.flags.watch().is_some_and(|watch| watch.watcher != watcher);
            if other || area.is_of_frames() {
                return Err(Errno::EINVAL);
            }
            found = true;
        }
        if !found {
            return Err(Errno::EINVAL);
        }
        memory.unwatch_span(span, watcher);
        self.queue.wake(Some(range));
        Ok(0)
    }

    /// Protects pages from writes; or ends that, and wakes their threads.
    ///
    /// # Errors
    /// `ENOENT` where this is not watched, `ENOMEM`; `EAGAIN` during a change that it has not read.
    fn protect(&self, range: Range, then: Then) -> Result<u32> {
        let features = self.queue.features()?;
        let all = features.intersects(Features::PROTECT_ABSENT | Features::PROTECT_ASYNC);
        let shield = match then.protects {
            false => Shield::Off,
            true if all => Shield::All,
            true => Shield::Present,
        };
        if self.queue.is_changing() {
            return Err(Errno::EAGAIN);
        }
        self.memory()?.write_protect(pages(range), shield)?;
        if then.wakes {
            self.queue.wake(Some(range));
        }
        Ok(0)
    }

    /// Maps pages, tells how many bytes, and wakes their threads.
    ///
    /// # Errors
    /// `EAGAIN` where only a part was mapped; `EEXIST` where a page is there, `ENOENT` where none
    /// watches, `EFAULT` without content, `EINVAL` for zeroes in reserved folios, `ENOMEM`.
    fn answer(
        &self,
        who: &Caller<'_>,
        range: Range,
        then: Then,
        given: &mut Given<'_>,
        told: Told<'_>,
    ) -> Result<u32> {
        let memory = self.memory()?;
        let shield = if then.protects { Shield::Present } else { Shield::Off };
        let watched = |area: Area| area.flags.contains(AreaFlags::WATCH_WRITE);
        if then.protects && !mm().spaces().areas(memory.space(), pages(range)).all(watched) {
            return Err(Errno::EINVAL);
        }
        let is_reserved = |area: Area| reserved::of_area(&area).is_some();
        let mut areas = mm().spaces().areas(memory.space(), pages(range));
        if matches!(given, Given::Zeroes) && areas.any(is_reserved) {
            return told.fail(Errno::EINVAL);
        }
        let done = memory.answer(pages(range), given, shield);
        if let (0, Err(Halt::Refuse(Error::Busy(_)))) = (done.pages, done.end) {
            // Another thread is about to fill the page: after it has run, this call is made again.
            who.wake.wake();
            return Err(Errno::BLOCKED);
        }
        self.conclude(range, then, done, told)
    }

    /// Moves pages from the page at `from` on into missing ones.
    ///
    /// # Errors
    /// As for [`answer`](Self::answer); `ENOENT` where a page is missing there; `EINVAL` for areas
    /// that are not alike, private and anonymous, and the target's with this watcher.
    fn take_over(
        &self,
        range: Range,
        from: u64,
        holes: bool,
        then: Then,
        told: Told<'_>,
    ) -> Result<u32> {
        let (memory, target) = (self.memory()?, pages(range));
        let watcher = memory.watcher(&self.queue)?;
        let mine = |area: Area| area.flags.watch().is_some_and(|watch| watch.watcher == watcher);
        if !mm().spaces().areas(memory.space(), target).all(mine) {
            return told.fail(Errno::EINVAL);
        }
        let start = Vpn::new(from / PAGE);
        let source = PageSpan::new(start, start.add(target.count()));
        let mut done = memory.move_pages(source, target.start, holes);
        // A page without an area is one of the source, or of the target, as well.
        done.end = done.end.map_err(|stop| match stop {
            Halt::Refuse(Error::NoArea(_)) => Error::Invalid.into(),
            Halt::Refuse(Error::Missing(page)) => Error::NoArea(page).into(),
            other => other,
        });
        self.conclude(range, then, done, told)
    }

    /// Wakes the threads of the pages that are there now, and tells how many bytes they are.
    fn conclude(&self, range: Range, then: Then, done: Answered, told: Told<'_>) -> Result<u32> {
        let bytes = done.pages * PAGE;
        if then.wakes && bytes > 0 {
            self.queue.wake(Some(Range { start: range.start, end: range.start + bytes }));
        }
        let error = match done.end {
            Ok(()) => None,
            Err(_) if bytes > 0 => Some(Errno::EAGAIN),
            Err(Halt::Refuse(Error::NoArea(_))) => Some(Errno::ENOENT),
            Err(Halt::Refuse(Error::Missing(_))) => Some(Errno::EFAULT),
            Err(stop) => Some(errno(stop)),
        };
        match error {
            Some(error) if bytes == 0 => told.fail(error),
            error => {
                told.put(bytes)?;
                error.map_or(Ok(0), Err)
            }
        }
    }
}

/// Whether an area may be watched so.
fn may_watch(area: &Area, watch: Watch) -> Result<()> {
    let is_reserved = reserved::of_area(area).is_some();
    // No watcher is told of these, so that any file can have them.
    let notes = WatchFor::WRITE | WatchFor::ASYNC;
    let notes_only = watch.events - WatchFor::MOVED - WatchFor::FORKED == notes;
    let in_memory = |id| mm().files().get(id).and_then(|file| file.store()) == Some(Store::Memory);
    let fits = match area.backing {
        Backing::Anon => !watch.events.contains(WatchFor::MINOR),
        Backing::File { id, .. } => is_reserved || in_memory(id) || notes_only,
        Backing::Frames { .. } => false,
    };
    if !fits {
        return Err(Errno::EINVAL);
    }
    if !area.max_prot.contains(Prot::WRITE) {
        return Err(Errno::EPERM);
    }
    match area.flags.watch() {
        Some(other) if other.watcher != watch.watcher => Err(Errno::EBUSY),
        _ => Ok(()),
    }
}

/// A call cannot go on until a watcher has answered for a page: it is made again then.
///
/// # Errors
/// [`Stop::Wait`]; `EFAULT` where the program has chosen a signal; `ENOMEM`.
pub(super) fn wait(thread: &Thread, event: Watched) -> Stop {
    let Some(memory) = memory::current() else { return Errno::EFAULT.into() };
    let address = event.page.get() * PAGE;
    let told = with_calls(thread, |calls| {
        memory.tell_watcher(event, address, thread.task.tid, calls.who.wake)
    });
    match told {
        Ok(Waits::GetsSignal) => Errno::EFAULT.into(),
        Ok(Waits::Sleeps | Waits::TriesAgain) => Stop::Wait(None),
        Err(error) => error.into(),
    }
}
