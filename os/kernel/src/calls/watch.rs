//! Watchers of memory (`userfaultfd`): registering areas, and answers for their missing pages.

use alloc::sync::{Arc, Weak};

use linux_raw_sys::general as abi;
use quire::cache::Store;
use quire::hw::FrameRun;
use quire::space::{Area, AreaFlags, Backing, Watch, WatchFor, Watched};
use quire::units::{PageSpan, Prot, Vpn};
use quire::{Answer as Given, Error, Shield, Stop as Halt};
use quire_linux::files::{Body, Caller, Description, Object, Outcome, PollEvents, Sink, Source};
use quire_linux::watch::{Ask, Features, Mode, Queue, Range, Request, Then};
use quire_linux::{Errno, Result, Wake};

use crate::isa;
use crate::memory::{self, Memory, PAGE, Waits, errno, mm, user};
use crate::task::tree::{time, tree, with_calls};
use crate::task::{Answer, Stop, Thread};

/// `UFFD_USER_MODE_ONLY`: faults of the kernel's own copies are errors.
const USER_MODE_ONLY: u32 = 1;

pub(super) fn userfaultfd(thread: &mut Thread, [flags, ..]: [usize; 6]) -> Answer {
    let flags = flags as u32;
    if flags & !(abi::O_CLOEXEC | abi::O_NONBLOCK | USER_MODE_ONLY) != 0 {
        return Err(Errno::EINVAL.into());
    }
    memory::admit()?;
    let memory = memory::current().ok_or(Errno::ESRCH)?;
    let queue = Arc::new(Queue::new(PAGE, flags & USER_MODE_ONLY != 0));
    let file = WatcherFile { queue, memory: Arc::downgrade(&memory) };
    let node = tree().make(Body::Object(Arc::new(file)), 0o600, time());
    let status = abi::O_RDWR | flags & abi::O_NONBLOCK;
    let open = Arc::new(Description::new(node, None, status, None));
    let is_private = flags & abi::O_CLOEXEC != 0;
    Ok(with_calls(thread, |calls| calls.table.add(open, is_private, 0))? as usize)
}

/// A watcher: its queue of faults, and the memory that it watches.
struct WatcherFile {
    queue: Arc<Queue>,
    memory: Weak<Memory>,
}

impl Drop for WatcherFile {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.upgrade() {
            memory.unwatch(&self.queue);
        }
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
        self.queue.read(who, nonblocking, count, sink)
    }

    fn readiness(&self) -> PollEvents {
        self.queue.readiness()
    }

    fn wait_on(&self, who: &Arc<dyn Wake>) -> Result<()> {
        self.queue.wait_on(who)
    }

    fn control(
        &self,
        _: &Caller<'_>,
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
        match Ask::of(request, &words, isa::USER_END, PAGE)? {
            Ask::Api(version, features) => self.choose(version, features, told),
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
                self.answer(range, then, &mut Given::Copy(copy), told)
            }
            Ask::Zero(range, then) => self.answer(range, then, &mut Given::Zeroes, told),
            Ask::Continue(range, then) => self.answer(range, then, &mut Given::Cached, told),
            Ask::Poison(range, then) => self.answer(range, then, &mut Given::Poison, told),
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
}

/// The bits of requests, as masks of them have it.
fn bits(requests: &[Request]) -> u64 {
    requests.iter().fold(0, |bits, request| bits | request.bit())
}

fn pages(range: Range) -> PageSpan {
    PageSpan::new(Vpn::new(range.start / PAGE), Vpn::new(range.end / PAGE))
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
        let mut events = WatchFor::empty();
        events.set(WatchFor::MISSING, mode.contains(Mode::MISSING));
        events.set(WatchFor::MINOR, mode.contains(Mode::MINOR));
        if mode.contains(Mode::PROTECTED) {
            let is_async = self.queue.features()?.contains(Features::PROTECT_ASYNC);
            events |= WatchFor::WRITE;
            events.set(WatchFor::ASYNC, is_async);
        }
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
        let answers = bits(&[Request::Wake, Request::Copy, Request::Zero, Request::Poison]);
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
    /// `ENOENT` where this is not watched, `ENOMEM`.
    fn protect(&self, range: Range, then: Then) -> Result<u32> {
        let features = self.queue.features()?;
        let all = features.intersects(Features::PROTECT_ABSENT | Features::PROTECT_ASYNC);
        let shield = match then.protects {
            false => Shield::Off,
            true if all => Shield::All,
            true => Shield::Present,
        };
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
    /// watches, `EFAULT` without content, `ENOMEM`.
    fn answer(
        &self,
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
        let done = memory.answer(pages(range), given, shield);
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
        let number = |error: Errno| -i64::from(error.number());
        told.put(error.filter(|_| bytes == 0).map_or(bytes, |error| number(error) as u64))?;
        error.map_or(Ok(0), Err)
    }
}

/// Whether an area may be watched so.
fn may_watch(area: &Area, watch: Watch) -> Result<()> {
    let in_memory = |id| mm().files().get(id).and_then(|file| file.store()) == Some(Store::Memory);
    let fits = match area.backing {
        Backing::Anon => !watch.events.contains(WatchFor::MINOR),
        Backing::File { id, .. } => {
            let shared = area.flags.contains(AreaFlags::SHARED);
            in_memory(id) && (shared || !watch.events.contains(WatchFor::WRITE))
        }
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
