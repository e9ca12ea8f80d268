//! The tracer: it sees each process begin, execute and end.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait, waitpid};

use super::call;
use super::hold::Manner;
use super::process::{Figures, Snapshot, areas, tree};
use crate::refused::Refused;

/// Those who want to know.
pub(crate) trait Audience {
    /// A process has executed a program.
    fn executed(&mut self, snapshot: Snapshot);
    /// A thread is about to end; these are its process's figures so far.
    fn ending(&mut self, thread: u32, figures: Figures);
}

/// Children of threads are waited for as well (`__WALL`).
const ALL: WaitOptions = WaitOptions::from_bits_retain(0x4000_0000);
/// The kinds of stops (`PTRACE_EVENT_…`).
const EXEC: i32 = 4;
const EXIT: i32 = 6;
const STOP: i32 = 128;

/// A traced program. All its methods are for the thread that made it.
pub(crate) struct Tracer {
    /// The first process.
    pub(crate) pid: u32,
    /// Whether it was running before: it is no child, and lives on.
    attached: bool,
    threads: HashSet<i32>,
    /// The figures of processes, the latest.
    figures: HashMap<u32, Figures>,
}

impl Tracer {
    /// Starts a program; it stands before its first instruction until [`run`](Tracer::run).
    pub(crate) fn start(command: &[OsString], manner: Manner) -> Result<Tracer> {
        let child = manner.start(command)?;
        let pid = child.id();
        let of = Pid::from_child(&child);
        let stopped = waitpid(Some(of), WaitOptions::UNTRACED)?;
        if !stopped.is_some_and(|(_, status)| status.stopped()) {
            bail!("the program ended before it began");
        }
        let seized = call::seize(pid as i32, call::MOMENTS | call::END_WITH_US);
        if let Err(e) = seized {
            let _ = kill_process(of, Signal::KILL);
            let why = format!("the host does not let processes be traced (ptrace): {e}");
            return Err(Refused(why).into());
        }
        Ok(Tracer::of(pid, false, HashSet::from([pid as i32])))
    }

    /// Traces a process that runs, and all that it has started.
    pub(crate) fn attach(pid: u32) -> Result<Tracer> {
        let mut threads = HashSet::new();
        for thread in tree(pid) {
            // It may have ended since; another may trace it.
            match call::seize(thread as i32, call::MOMENTS) {
                Ok(()) => drop(threads.insert(thread as i32)),
                Err(e) if e.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
                Err(e) => {
                    let why = format!("process {pid} cannot be traced: {e}");
                    return Err(Refused(why).into());
                }
            }
        }
        if threads.is_empty() {
            return Err(Refused(format!("there is no process {pid}")).into());
        }
        Ok(Tracer::of(pid, true, threads))
    }

    fn of(pid: u32, attached: bool, threads: HashSet<i32>) -> Tracer {
        Tracer { pid, attached, threads, figures: HashMap::new() }
    }

    /// Lets the program run until its last process has ended; the exit status of the first.
    pub(crate) fn run(&mut self, audience: &mut impl Audience) -> Result<Option<ExitStatus>> {
        let mut status = None;
        if !self.attached
            && let Some(pid) = Pid::from_raw(self.pid as i32)
        {
            kill_process(pid, Signal::CONT).context("the program cannot be continued")?;
        }
        while !self.threads.is_empty() {
            let (pid, what) = match wait(ALL) {
                Ok(Some((pid, what))) => (pid.as_raw_nonzero().get(), what.as_raw()),
                Ok(None) | Err(Errno::INTR) => continue,
                Err(Errno::CHILD) => break,
                Err(e) => return Err(e).context("the program cannot be waited for"),
            };
            if what & 0xff == 0x7f {
                self.stopped(pid, what, audience);
            } else {
                self.threads.remove(&pid);
                if pid == self.pid as i32 {
                    status = Some(ExitStatus::from_raw(what));
                }
            }
        }
        Ok(status)
    }

    /// A thread has stopped; it goes on.
    fn stopped(&mut self, pid: i32, what: i32, audience: &mut impl Audience) {
        self.threads.insert(pid);
        let (signal, event) = (what >> 8 & 0xff, what >> 16);
        let mut given = 0;
        match event {
            0 => given = signal,
            EXEC => {
                audience.executed(Snapshot { pid: pid as u32, areas: areas(pid as u32) });
            }
            EXIT => {
                if let Some(figures) = Figures::of(pid as u32) {
                    let known = self.figures.entry(figures.process).or_default();
                    known.process = figures.process;
                    known.peak = known.peak.max(figures.peak);
                    known.faults = known.faults.max(figures.faults);
                    known.user_ms = known.user_ms.max(figures.user_ms);
                    known.kernel_ms = known.kernel_ms.max(figures.kernel_ms);
                    audience.ending(pid as u32, figures);
                }
            }
            STOP if [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU]
                .contains(&signal)
                && self.attached =>
            {
                let _ = call::listen(pid);
                return;
            }
            _ => {}
        }
        // The thread may have been killed since: then this fails, and its end is reported.
        let _ = call::go_on(pid, given);
    }

    /// The figures of all processes that ended.
    pub(crate) fn figures(&self) -> Vec<Figures> {
        let mut all: Vec<Figures> = self.figures.values().copied().collect();
        all.sort_by_key(|figures| figures.process);
        all
    }
}
