//! One thread.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use linux_raw_sys::general as abi;
use quire::units::CpuId;
use quire_linux::signal::{AltStack, Pending, Set};
use quire_linux::watch::Notice;
use quire_linux::{Errno, Wake};
use spin::mutex::SpinMutex;

use super::futex::Sleeper;
use super::{Process, queue};
use crate::isa::{self, Call, Context};

/// Real-time signals that may be pending for a thread or a process.
pub(super) const SIGNALS_MAX: usize = 1024;

/// A thread that runs, is ready, or is parked. It has one owner at a time.
pub(crate) struct Thread {
    pub(crate) context: Box<Context>,
    pub(crate) task: Arc<Task>,
    /// The call that it makes again when it is woken.
    pub(crate) call: Option<Call>,
    /// The progress of that call.
    pub(crate) resume: Resume,
    /// That call lacks pages of the disk: signals wait with it.
    pub(crate) reads: bool,
    /// Faults that brought something in, since a CPU took it last.
    pub(crate) faults: u64,
    /// The signals to be blocked again after the next handler, when a call has lifted them.
    pub(crate) saved_mask: Option<Set>,
}

/// The progress of a call that is made again.
#[derive(Default)]
pub(crate) enum Resume {
    /// Nothing: it is made for the first time.
    #[default]
    Fresh,
    /// It waits until then, in nanoseconds since boot; `None`: for ever.
    Until(Option<u64>),
    /// Bytes moved so far.
    Moved(usize),
    /// The same, and the end of the wait in nanoseconds since boot.
    Within(usize, u64),
    /// It waits for a word of memory.
    Futex(Arc<Sleeper>, Option<u64>),
    /// It waits for one of several.
    Futexes(Vec<Arc<Sleeper>>, Option<u64>),
    /// It waits for a child that borrows its memory.
    Borrowed(Arc<Process>),
    /// It waits until the watchers of its memory know of changes; then it has this result, or is
    /// made.
    Told(Vec<Arc<Notice>>, Option<usize>),
    /// They know, and it is made now.
    Announced,
}

impl Resume {
    /// The call is given up: it waits for no word any more.
    pub(crate) fn leave(&self) {
        match self {
            Self::Futex(sleeper, _) => drop(sleeper.leave()),
            Self::Futexes(sleepers, _) => drop(super::futex::leave_all(sleepers)),
            _ => {}
        }
    }
}

/// The reason a system call has no result yet.
pub(crate) enum Stop {
    /// It failed.
    Fail(Errno),
    /// It must wait: until woken, or until then (nanoseconds since boot).
    Wait(Option<u64>),
    /// It must wait for pages of the disk.
    Read,
    /// The registers are already what they should be.
    Same,
    /// Another thread should run first; the result is 0.
    Yield,
    /// The thread ends.
    Gone,
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        if errno == Errno::BLOCKED { Stop::Read } else { Stop::Fail(errno) }
    }
}

/// The outcome of a system call.
pub(crate) type Answer = core::result::Result<usize, Stop>;

/// The part of a thread that others see.
pub(crate) struct Task {
    pub(crate) tid: u32,
    pub(crate) process: Arc<Process>,
    pub(crate) signals: SpinMutex<TaskSignals>,
    /// The address at which its end writes zero and wakes a futex waiter; 0 is nowhere.
    pub(crate) clear_tid: AtomicU64,
    /// The address of its list of locks that its end gives up; 0 is nowhere.
    pub(crate) robust: AtomicU64,
    pub(crate) name: SpinMutex<[u8; 16]>,
    /// It was woken since its call began.
    token: AtomicBool,
    /// The CPU it runs on, plus 1; 0 when on none.
    cpu: AtomicU32,
    /// A bit for each CPU that it may run on.
    cpus: AtomicU32,
    /// It is to end.
    pub(crate) doomed: AtomicBool,
    /// Its class of scheduling, and its priority there; they are kept and shown.
    pub(crate) schedule: SpinMutex<(u32, u32)>,
}

/// A thread's signals.
pub(crate) struct TaskSignals {
    pub(crate) pending: Pending,
    pub(crate) blocked: Set,
    pub(crate) alt_stack: AltStack,
}

/// All CPUs.
pub(super) const EVERYWHERE: u32 = u32::MAX;

impl Task {
    /// A task that is not listed yet. It may run on any CPU.
    pub(crate) fn new(tid: u32, process: Arc<Process>, blocked: Set, name: [u8; 16]) -> Arc<Self> {
        let signals =
            TaskSignals { pending: Pending::new(SIGNALS_MAX), blocked, alt_stack: AltStack::NONE };
        Arc::new(Self {
            tid,
            process,
            signals: SpinMutex::new(signals),
            clear_tid: AtomicU64::new(0),
            robust: AtomicU64::new(0),
            name: SpinMutex::new(name),
            token: AtomicBool::new(false),
            cpu: AtomicU32::new(0),
            cpus: AtomicU32::new(EVERYWHERE),
            doomed: AtomicBool::new(false),
            schedule: SpinMutex::new((0, 0)),
        })
    }

    /// Whether a signal waits that is not blocked, or it is to end.
    #[inline]
    pub(crate) fn is_summoned(&self) -> bool {
        if self.doomed.load(Ordering::Acquire) {
            return true;
        }
        if !self.process.has_signals.load(Ordering::Acquire) {
            return false;
        }
        let shared = self.process.signals.lock().pending.set();
        let own = self.signals.lock();
        !shared.or(own.pending.set()).and_not(own.blocked.blockable()).is_empty()
    }

    /// Makes it look at its signals, wherever it is.
    pub(crate) fn summon(&self) {
        self.wake();
        let cpu = self.cpu.load(Ordering::SeqCst);
        if cpu != 0 && cpu as usize - 1 != isa::cpu().index() {
            isa::interrupt(CpuId::new(cpu as usize - 1));
        }
    }

    /// The CPUs that it may run on, a bit for each. Bits of CPUs that are not there mean nothing.
    #[inline]
    pub(crate) fn cpus(&self) -> u32 {
        self.cpus.load(Ordering::SeqCst)
    }

    /// It may run where `other` may.
    pub(crate) fn inherit_cpus(&self, other: &Self) {
        self.cpus.store(other.cpus(), Ordering::SeqCst);
    }

    /// It is scheduled as `other` is, or as usual where that says so for children.
    pub(crate) fn inherit_schedule(&self, other: &Self) {
        let (class, priority) = *other.schedule.lock();
        if class & abi::SCHED_RESET_ON_FORK == 0 {
            *self.schedule.lock() = (class, priority);
        }
    }

    /// From now on it runs on `cpus` only, of which one must be there. It leaves another CPU at
    /// the next interrupt there, which this sends.
    pub(crate) fn set_cpus(&self, cpus: u32) {
        self.cpus.store(cpus, Ordering::SeqCst);
        queue::look_again(cpus);
        let cpu = self.cpu.load(Ordering::SeqCst);
        if cpu != 0 && cpu as usize - 1 != isa::cpu().index() {
            isa::interrupt(CpuId::new(cpu as usize - 1));
        }
    }

    /// A call begins: earlier wakes do not count for it.
    pub(super) fn drop_token(&self) {
        self.token.store(false, Ordering::SeqCst);
    }

    pub(super) fn take_token(&self) -> bool {
        self.token.swap(false, Ordering::SeqCst)
    }

    pub(super) fn set_cpu(&self, cpu: Option<CpuId>) {
        self.cpu.store(cpu.map_or(0, |cpu| cpu.index() as u32 + 1), Ordering::SeqCst);
    }
}

impl Wake for Task {
    fn wake(&self) {
        self.token.store(true, Ordering::SeqCst);
        queue::unpark(self.tid);
    }
}

impl Thread {
    /// A thread that begins with these registers.
    pub(crate) fn new(context: Box<Context>, task: Arc<Task>) -> Box<Self> {
        let (resume, saved_mask) = (Resume::Fresh, None);
        let reads = false;
        Box::new(Self { context, task, call: None, resume, reads, faults: 0, saved_mask })
    }

    /// The process it belongs to.
    #[inline]
    pub(crate) fn process(&self) -> &Arc<Process> {
        &self.task.process
    }

    /// As a waiter that can be woken.
    pub(crate) fn waker(&self) -> Arc<dyn Wake> {
        self.task.clone()
    }

    /// Begins to make a call, for the first time or again.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.reads = false;
        self.task.drop_token();
    }

    /// This CPU runs it from now on.
    pub(crate) fn enter(&self) {
        self.task.set_cpu(Some(isa::cpu()));
    }

    /// No CPU runs it from now on; it ran for `ns` nanoseconds.
    pub(crate) fn leave(&mut self, ns: u64) {
        self.task.set_cpu(None);
        self.task.process.ran.fetch_add(ns, Ordering::Relaxed);
        let faults = core::mem::take(&mut self.faults);
        self.task.process.faults.fetch_add(faults, Ordering::Relaxed);
    }

    /// Whether a signal has stopped its process.
    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.task.process.is_stopped.load(Ordering::Relaxed)
    }
}
