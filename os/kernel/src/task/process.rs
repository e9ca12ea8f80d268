//! One process: what its threads share.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use quire_linux::Waiters;
use quire_linux::credentials::Credentials;
use quire_linux::files::{Description, Here, Table};
use quire_linux::signal::status::{Status, Usage};
use quire_linux::signal::{Actions, Pending};
use spin::mutex::SpinMutex;

use super::attributes::Attributes;
use super::limits::Limits;
use super::thread::SIGNALS_MAX;
use super::timer::{RunTimers, Timers};
use super::{Task, Thread, queue};
use crate::memory::Memory;

/// The state that the threads of a process share.
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// Replaced as a whole by `execve`; gone when it has ended.
    pub(crate) memory: SpinMutex<Option<Arc<Memory>>>,
    /// Shared with other processes after `clone` with `CLONE_FILES`.
    pub(crate) files: SpinMutex<Arc<Table>>,
    /// Working directory and umask; shared after `clone` with `CLONE_FS`.
    pub(crate) here: SpinMutex<Arc<Here>>,
    pub(crate) signals: SpinMutex<ProcessSignals>,
    /// Whether any signal may be pending, for the process or one of its threads. A hint: set when
    /// one is added, cleared when none is found, each with the lock held under which it is.
    pub(crate) has_signals: AtomicBool,
    /// A signal stopped it, and none has continued it. Changes with `signals` locked.
    pub(crate) is_stopped: AtomicBool,
    pub(crate) family: SpinMutex<Family>,
    pub(crate) threads: SpinMutex<Vec<Arc<Task>>>,
    pub(crate) ids: SpinMutex<Ids>,
    /// Threads that wait for a child of this process to change.
    pub(crate) child_news: Waiters,
    /// Its parent waits until it runs another program or ends (`vfork`).
    pub(crate) borrows: AtomicBool,
    /// Threads that wait for that, or through a pidfd for its end.
    pub(crate) returned: Waiters,
    /// The program, and where on the stack its arguments are, for `/proc`.
    pub(crate) program: SpinMutex<Program>,
    /// Nanoseconds since boot when it began.
    pub(crate) began: u64,
    /// Nanoseconds that its threads ran, kernel and program together.
    pub(crate) ran: AtomicU64,
    /// Faults of its threads that brought something in, but those since a CPU took a thread last.
    pub(crate) faults: AtomicU64,
    /// Threads and sets that wait for its signals as a file.
    pub(crate) signal_news: Waiters,
    /// Its timers.
    pub(crate) timers: SpinMutex<Timers>,
    pub(crate) run_timers: RunTimers,
    /// Where its memory is to come from (`set_mempolicy`); there is one node.
    pub(crate) policy: AtomicU32,
    /// Facts that it states about itself.
    pub(crate) attributes: Attributes,
    /// Faults of its threads that had to wait for a device.
    pub(crate) major_faults: AtomicU64,
    /// How often its threads waited.
    pub(crate) waits: AtomicU64,
    /// Its limits.
    pub(crate) limits: Limits,
    /// Its users, groups and capabilities; see [`may`](Self::may).
    may: SpinMutex<Arc<Credentials>>,
    /// The value of `oom_score_adj`, -1000 to 1000.
    pub(crate) oom_adjust: AtomicI32,
    /// The control group that it is in. Changes with all groups locked.
    pub(crate) cgroup: AtomicU32,
}

/// A process's signals.
pub(crate) struct ProcessSignals {
    pub(crate) pending: Pending,
    pub(crate) actions: Actions,
}

/// Its parent and its children.
#[derive(Default)]
pub(crate) struct Family {
    pub(crate) parent: Weak<Process>,
    pub(crate) children: Vec<Arc<Process>>,
    /// How it is to end, once that is decided.
    pub(crate) fate: Option<Status>,
    /// Its exit status, once it has ended.
    pub(crate) ended: Option<Status>,
    /// It stopped or went on, and its parent has not waited for that.
    pub(crate) news: Option<Status>,
    /// Its own usage, and that of the children it has waited for.
    pub(crate) usage: Usage,
    pub(crate) children_usage: Usage,
}

/// Its process group and session.
#[derive(Clone, Copy)]
pub(crate) struct Ids {
    pub(crate) group: u32,
    pub(crate) session: u32,
}

/// The program that it runs.
#[derive(Clone, Default)]
pub(crate) struct Program {
    /// The file: links to it lead here, not to its name, which may be such a link itself.
    pub(crate) file: Option<Arc<Description>>,
    /// The path that the file had.
    pub(crate) path: Vec<u8>,
    /// Where the strings of arguments and environment are, half-open.
    pub(crate) args: core::ops::Range<u64>,
    pub(crate) envs: core::ops::Range<u64>,
    /// The top of its stack.
    pub(crate) stack: u64,
    /// From its lowest segment to its highest one, half-open.
    pub(crate) image: core::ops::Range<u64>,
}

/// All processes that have not been waited for, by pid.
static PROCESSES: SpinMutex<BTreeMap<u32, Arc<Process>>> = SpinMutex::new(BTreeMap::new());
/// All tasks, by tid.
static TASKS: SpinMutex<BTreeMap<u32, Weak<Task>>> = SpinMutex::new(BTreeMap::new());
/// Faults of all processes that needed a device.
pub(crate) static MAJOR_FAULTS: AtomicU64 = AtomicU64::new(0);
static NEXT: AtomicU32 = AtomicU32::new(1);

/// The most threads that may be; pids and tids lie below.
pub(crate) const IDS_MAX: u32 = 1 << 22;

/// A number that no process and no thread has.
pub(crate) fn new_id() -> u32 {
    loop {
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        if id >= IDS_MAX {
            NEXT.store(300, Ordering::Relaxed);
            continue;
        }
        if !PROCESSES.lock().contains_key(&id) && !TASKS.lock().contains_key(&id) {
            return id;
        }
    }
}

impl Process {
    /// A process that is not listed yet, with the groups and limits of `from`.
    pub(crate) fn new(
        pid: u32,
        memory: Arc<Memory>,
        files: Arc<Table>,
        here: Arc<Here>,
        actions: Actions,
        from: Option<&Process>,
    ) -> Arc<Self> {
        let ids = from.map_or(Ids { group: pid, session: pid }, |from| *from.ids.lock());
        Arc::new(Self {
            pid,
            memory: SpinMutex::new(Some(memory)),
            files: SpinMutex::new(files),
            here: SpinMutex::new(here),
            signals: SpinMutex::new(ProcessSignals { pending: Pending::new(SIGNALS_MAX), actions }),
            has_signals: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            family: SpinMutex::new(Family::default()),
            threads: SpinMutex::new(Vec::new()),
            ids: SpinMutex::new(ids),
            child_news: Waiters::new(),
            borrows: AtomicBool::new(false),
            returned: Waiters::new(),
            program: SpinMutex::new(from.map_or(Program::default(), |f| f.program.lock().clone())),
            began: crate::isa::now(),
            ran: AtomicU64::new(0),
            faults: AtomicU64::new(0),
            signal_news: Waiters::new(),
            timers: SpinMutex::new(Timers::default()),
            run_timers: RunTimers::default(),
            policy: AtomicU32::new(from.map_or(0, |from| from.policy.load(Ordering::Relaxed))),
            attributes: from.map_or_else(Attributes::new, |from| from.attributes.copy()),
            major_faults: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            limits: from.map_or_else(Limits::new, |from| from.limits.copy()),
            may: SpinMutex::new(
                from.map_or_else(|| Arc::new(Credentials::root()), |from| from.may()),
            ),
            oom_adjust: AtomicI32::new(
                from.map_or(0, |from| from.oom_adjust.load(Ordering::Relaxed)),
            ),
            cgroup: AtomicU32::new(super::cgroup::ROOT),
        })
    }

    /// Its rights: its users, groups and capabilities.
    pub(crate) fn may(&self) -> Arc<Credentials> {
        self.may.lock().clone()
    }

    /// Changes what it may do.
    pub(crate) fn set_may(&self, new: Arc<Credentials>) {
        let old = core::mem::replace(&mut *self.may.lock(), new);
        drop(old);
    }

    /// Its memory; none once it has ended.
    pub(crate) fn memory(&self) -> Option<Arc<Memory>> {
        self.memory.lock().clone()
    }

    /// Its descriptors.
    pub(crate) fn files(&self) -> Arc<Table> {
        self.files.lock().clone()
    }

    /// Whether it has ended.
    pub(crate) fn is_zombie(&self) -> bool {
        self.family.lock().ended.is_some()
    }

    /// The pid of its parent; 0 when it has none.
    pub(crate) fn parent_pid(&self) -> u32 {
        self.family.lock().parent.upgrade().map_or(0, |parent| parent.pid)
    }

    /// No longer borrows its parent's memory.
    pub(crate) fn give_back(&self) {
        if self.borrows.swap(false, Ordering::SeqCst) {
            self.returned.wake();
        }
    }
}

/// Makes a process with its first thread known, as a child of `parent`, and ready to run. It is in
/// the control group of its `maker`.
pub(crate) fn start(
    process: &Arc<Process>,
    parent: Option<&Arc<Process>>,
    maker: Option<&Process>,
    thread: alloc::boxed::Box<Thread>,
) {
    if let Some(parent) = parent {
        process.family.lock().parent = Arc::downgrade(parent);
        parent.family.lock().children.push(process.clone());
    }
    super::cgroup::enter(process, maker, || {
        PROCESSES.lock().insert(process.pid, process.clone());
    });
    enlist(thread);
}

/// Makes a thread known, and ready to run.
pub(crate) fn enlist(thread: alloc::boxed::Box<Thread>) {
    let task = thread.task.clone();
    task.process.threads.lock().push(task.clone());
    TASKS.lock().insert(task.tid, Arc::downgrade(&task));
    queue::ready(thread);
}

/// Takes a thread that ends off the lists. Whether it was the last of its process.
pub(super) fn delist(task: &Task) -> bool {
    TASKS.lock().remove(&task.tid);
    let mut threads = task.process.threads.lock();
    threads.retain(|other| other.tid != task.tid);
    threads.is_empty()
}

/// Forgets a process that was waited for.
pub(super) fn forget(pid: u32) {
    PROCESSES.lock().remove(&pid);
}

/// The process `pid`, zombies included.
pub(crate) fn find(pid: u32) -> Option<Arc<Process>> {
    PROCESSES.lock().get(&pid).cloned()
}

/// The thread `tid`.
pub(crate) fn find_task(tid: u32) -> Option<Arc<Task>> {
    TASKS.lock().get(&tid)?.upgrade()
}

/// The process with the lowest pid from `from` on.
pub(crate) fn processes(from: u32) -> Option<Arc<Process>> {
    PROCESSES.lock().range(from..).next().map(|(_, process)| process.clone())
}
