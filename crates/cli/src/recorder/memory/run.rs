//! One recording: the tracer in a thread of its own, the trace in this one.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::io::{IsTerminal, stderr};
use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};

use super::begin;
use super::pipes::Pipes;
use super::uses::Uses;
use super::weave::Weave;
use crate::host::Host;
use crate::refused::Refused;
use crate::tape::{Access, Event, Tape};
use crate::watch::{Audience, Figures, Line, Manner, Snapshot, Tracer, areas, tree};

/// The program to record, and the bounds of the recording.
pub(crate) struct Wanted<'a> {
    /// The program with its arguments; empty when a process is attached to.
    pub(crate) command: &'a [OsString],
    /// The process to attach to.
    pub(crate) pid: Option<u32>,
    /// The longest time.
    pub(crate) time: Option<Duration>,
    /// The most bytes of events.
    pub(crate) bytes: usize,
    /// Between two samples of use, if they are wanted.
    pub(crate) uses: Option<Duration>,
    pub(crate) manner: Manner,
    pub(crate) interrupted: Arc<AtomicBool>,
}

/// The pause between two looks at the trace: long, so that the program has the CPUs for itself, and
/// short against the time in which a buffer fills up.
const PAUSE: Duration = Duration::from_millis(20);
/// A look that finds this number of events is followed by the next at once.
const BUSY: usize = 1 << 17;
/// How long an exec's areas are waited for, and a program that was asked to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Moments that the tracer has seen and the recording has not used yet.
#[derive(Default)]
struct Moments {
    executed: HashMap<u32, VecDeque<Snapshot>>,
    /// Areas of processes that are about to end.
    ending: HashMap<u32, Vec<Line>>,
    /// Faults of the first process before its exec.
    before: Option<u64>,
}

/// The tracer's side.
struct Post(Arc<Mutex<Moments>>);

impl Audience for Post {
    fn executed(&mut self, snapshot: Snapshot) {
        let mut moments = lock(&self.0);
        if moments.before.is_none() {
            moments.before = Some(Figures::of(snapshot.pid).map_or(0, |figures| figures.faults));
        }
        moments.executed.entry(snapshot.pid).or_default().push_back(snapshot);
    }

    fn ending(&mut self, thread: u32, figures: Figures) {
        if thread == figures.process {
            lock(&self.0).ending.insert(thread, areas(thread));
        }
    }
}

/// The thread of the tracer.
struct Side {
    pid: u32,
    /// Told to let the program run.
    go: mpsc::Sender<()>,
    moments: Arc<Mutex<Moments>>,
    thread: JoinHandle<Result<(Option<ExitStatus>, Vec<Figures>)>>,
}

/// Records, below the folder `place`.
pub(crate) fn record(wanted: &Wanted<'_>, place: &Path, host: &Host) -> Result<Tape> {
    let uses = wanted.uses.map(|every| Uses::new(host, every)).transpose();
    let mut uses = uses.map_err(Refused)?;
    let side = Side::begin(wanted)?;
    let threads = if wanted.pid.is_some() { tree(side.pid) } else { vec![side.pid] };
    let page = rustix::param::page_size() as u64;
    let mut weave = Weave::new(page, access);
    let mut pipes = Pipes::new(place, &threads)?;
    match wanted.pid {
        Some(_) => find(&threads, page, &mut weave),
        None => weave.root(side.pid),
    }
    weave.writer.push(Event::Begin);
    side.go.send(()).context("the tracer has gone")?;
    let stop = follow(wanted, &side, &mut pipes, (&mut weave, uses.as_mut()))?;
    pipes.stop()?;
    // Twice: what is behind the first round's last event is read by the second.
    for _ in 0..2 {
        pipes.drain(u64::MAX, |seen| weave.add(seen, |pid| snapshot(&side.moments, pid)))?;
    }
    if stop != Stop::Ended {
        // These go on, or are about to be ended.
        tree(side.pid).into_iter().for_each(|thread| weave.name(thread, &areas(thread)));
    }
    let mut tape = Tape {
        page,
        processes: weave.processes(),
        files: weave.files(),
        limits: vec![stop.sentence()].into_iter().flatten().collect(),
        ..Tape::default()
    };
    let lost = pipes.lost()?;
    if lost > 0 {
        tape.limits.push(format!("The kernel's trace lost {lost} events."));
    }
    drop(pipes);
    tape.limits.extend(uses.as_ref().map(Uses::sentence));
    let before = lock(&side.moments).before.unwrap_or(0);
    tape.body = weave.writer.finish();
    if let Some((status, figures)) = side.end(wanted, &stop)? {
        let counted: u64 = figures.iter().map(|figures| figures.faults).sum();
        tape.counted = counted.saturating_sub(before);
        tape.peak = figures.iter().map(|figures| figures.peak).max().unwrap_or(0);
        if !uses.as_ref().is_none_or(Uses::keeps_counts) {
            (tape.counted, tape.peak) = (0, 0);
        }
        if let Some(status) = status.filter(|status| !status.success()) {
            eprintln!("quire: the program ended with {status}.");
        }
    }
    if tape.touches() == 0 {
        bail!("the program touched nothing that the kernel reported");
    }
    Ok(tape)
}

/// Why a recording ended.
#[derive(PartialEq, Eq)]
enum Stop {
    Ended,
    Time(Duration),
    Interrupted,
    Full,
}

impl Stop {
    fn sentence(&self) -> Option<String> {
        match self {
            Stop::Ended => None,
            Stop::Time(time) => {
                Some(format!("It has the first {} seconds of the program.", time.as_secs_f64()))
            }
            Stop::Interrupted => Some("It was interrupted before the program ended.".to_owned()),
            Stop::Full => Some("It was full before the program ended.".to_owned()),
        }
    }
}

/// Reads the trace until the recording is to end.
fn follow(
    wanted: &Wanted<'_>,
    side: &Side,
    pipes: &mut Pipes,
    (weave, mut uses): (&mut Weave, Option<&mut Uses>),
) -> Result<Stop> {
    let start = Instant::now();
    let mut shown = start;
    loop {
        let ended = side.thread.is_finished();
        // Before the events: those that mapped the files are among them.
        let names = std::mem::take(&mut lock(&side.moments).ending);
        let now = now();
        let count = pipes.drain(now, |seen| {
            weave.add(seen, |pid| snapshot(&side.moments, pid));
        })?;
        for (thread, areas) in names {
            weave.name(thread, &areas);
        }
        if ended {
            return Ok(Stop::Ended);
        }
        uses.iter_mut().for_each(|uses| uses.sample(side.pid, weave));
        if wanted.interrupted.load(Ordering::Relaxed) {
            return Ok(Stop::Interrupted);
        }
        if let Some(time) = wanted.time.filter(|time| start.elapsed() >= *time) {
            return Ok(Stop::Time(time));
        }
        if weave.writer.len() >= wanted.bytes {
            return Ok(Stop::Full);
        }
        if stderr().is_terminal() && shown.elapsed() > Duration::from_secs(1) {
            shown = Instant::now();
            let (seconds, touches) = (start.elapsed().as_secs(), weave.writer.touches());
            eprint!("\rquire: {seconds} s, {touches} touches ");
        }
        if count < BUSY {
            sleep(PAUSE);
        }
    }
}

/// Processes that run already.
fn find(threads: &[u32], page: u64, weave: &mut Weave) {
    let mut processes: HashMap<u32, Vec<u32>> = HashMap::new();
    for thread in threads {
        if let Some(figures) = Figures::of(*thread) {
            processes.entry(figures.process).or_default().push(*thread);
        }
    }
    for (pid, threads) in processes {
        let snapshot = Snapshot { pid, areas: areas(pid) };
        weave.found(&snapshot, &threads);
        begin::write(pid, &snapshot.areas, page, &mut weave.writer);
    }
}

/// The areas after an exec of process `pid`, which the tracer sees a moment after the trace.
fn snapshot(moments: &Mutex<Moments>, pid: u32) -> Option<Snapshot> {
    let start = Instant::now();
    loop {
        let found = lock(moments).executed.get_mut(&pid).and_then(VecDeque::pop_front);
        if found.is_some() || start.elapsed() > PATIENCE {
            return found;
        }
        sleep(Duration::from_micros(200));
    }
}

impl Side {
    /// Starts or attaches; the program waits until it is told to go.
    fn begin(wanted: &Wanted<'_>) -> Result<Side> {
        let (command, manner, pid) = (wanted.command.to_vec(), wanted.manner.clone(), wanted.pid);
        let moments = Arc::new(Mutex::new(Moments::default()));
        let (go, told) = mpsc::channel();
        let (tell, begun) = mpsc::channel();
        let mut post = Post(moments.clone());
        let run = move || {
            let tracer = match pid {
                Some(pid) => Tracer::attach(pid),
                None => Tracer::start(&command, manner),
            };
            let mut tracer = match tracer {
                Ok(tracer) => tracer,
                Err(e) => {
                    let _ = tell.send(Err(e));
                    return Ok((None, Vec::new()));
                }
            };
            let _ = tell.send(Ok(tracer.pid));
            told.recv().context("the recording ended before it began")?;
            let status = tracer.run(&mut post)?;
            Ok((status, tracer.figures()))
        };
        let thread = thread::Builder::new().name("tracer".to_owned()).spawn(run)?;
        let pid = begun.recv().context("the tracer has gone")??;
        Ok(Side { pid, go, moments, thread })
    }

    /// Ends a program that we started; how it ended and the figures of its processes, where all of
    /// them are known.
    fn end(
        self,
        wanted: &Wanted<'_>,
        stop: &Stop,
    ) -> Result<Option<(Option<ExitStatus>, Vec<Figures>)>> {
        if *stop != Stop::Ended {
            let start = Instant::now();
            let pid = Pid::from_raw(self.pid as i32).filter(|_| wanted.pid.is_none());
            for signal in [Signal::TERM, Signal::KILL] {
                if let Some(pid) = pid {
                    let _ = kill_process(pid, signal);
                }
                while pid.is_some() && !self.thread.is_finished() && start.elapsed() < PATIENCE {
                    sleep(PAUSE);
                }
            }
            // Processes that it leaves behind end with this process, which traces it.
            return Ok(None);
        }
        self.thread.join().map_err(|_| anyhow!("the tracer has failed"))?.map(Some)
    }
}

/// The clock of the trace, in nanoseconds.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The meaning of an error code: of x86 bits for a write and a fetch, of riscv a cause.
fn access(code: u64) -> Access {
    if cfg!(any(target_arch = "riscv64", target_arch = "riscv32")) {
        return match code {
            15 => Access::Write,
            12 => Access::Fetch,
            _ => Access::Read,
        };
    }
    match code {
        code if code & 1 << 4 != 0 => Access::Fetch,
        code if code & 1 << 1 != 0 => Access::Write,
        _ => Access::Read,
    }
}

fn lock(moments: &Mutex<Moments>) -> MutexGuard<'_, Moments> {
    moments.lock().unwrap_or_else(PoisonError::into_inner)
}
