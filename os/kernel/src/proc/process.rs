//! `/proc` itself, the directory of a process, and of a thread.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use quire_linux::files::{Caller, Kind, Text, What};
use quire_linux::text::number;
use quire_linux::{Errno, Result};

use super::table::{Fixed, Is, Many, Numbers, Owned, Row, link};
use super::{about, cgroup, contents, folios, links, maps, pagemap, scan, smaps, system};
use crate::memory::Memory;
use crate::task::{Process, Task, find, find_task, processes};

/// The subject of a directory of `/proc`.
#[derive(Clone)]
pub(super) struct Subject {
    pub(super) process: Arc<Process>,
    /// The thread: the one it is about, or the first of the process; none once it has ended.
    pub(super) task: Option<Arc<Task>>,
    /// Its number: a tid, or a pid.
    pub(super) id: u32,
    /// Whether it is about one thread only.
    pub(super) is_thread: bool,
}

impl Subject {
    /// A whole process; or one thread, by its tid, which no directory lists.
    fn process(pid: u32) -> Result<Self> {
        let Some(process) = find(pid) else {
            let task = find_task(pid).ok_or(Errno::ENOENT)?;
            let process = task.process.clone();
            return Ok(Self { process, task: Some(task), id: pid, is_thread: true });
        };
        let task = process.threads.lock().first().cloned();
        Ok(Self { process, task, id: pid, is_thread: false })
    }

    /// A thread of `process`.
    fn task(process: &Arc<Process>, tid: u32) -> Result<Self> {
        let task = find_task(tid).filter(|task| task.process.pid == process.pid);
        let task = Some(task.ok_or(Errno::ENOENT)?);
        Ok(Self { process: process.clone(), task, id: tid, is_thread: true })
    }

    /// Its memory; none once it has ended.
    pub(super) fn memory(&self) -> Option<Arc<Memory>> {
        self.process.memory()
    }

    /// Its name: at most 15 bytes.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn name(&self) -> Result<Vec<u8>> {
        if let Some(task) = &self.task {
            let name = *task.name.lock();
            let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
            return super::table::copied(&name[..end]);
        }
        // It has ended: the last part of its program's path.
        let program = self.process.program.lock();
        let name = program.path.rsplit(|byte| *byte == b'/').next().unwrap_or(&[]);
        super::table::copied(&name[..name.len().min(15)])
    }
}

impl Owned for Subject {
    fn owner(&self) -> Option<(u32, u32)> {
        let may = self.process.may();
        Some((may.users.effective, may.groups.effective))
    }
}

/// The root of `/proc`.
pub(super) fn root() -> Many<Processes> {
    Many { rows: Fixed { rows: system::ROWS, of: (), inode: 0 }, of: Processes }
}

/// All processes.
pub(super) struct Processes;

impl Numbers for Processes {
    const KIND: Kind = Kind::Directory;

    fn next(&self, from: u32) -> Option<u32> {
        processes(from).map(|process| process.pid)
    }

    fn has(&self, pid: u32) -> bool {
        find(pid).is_some() || find_task(pid).is_some()
    }

    fn inode(&self, pid: u32) -> u64 {
        u64::from(pid) << 32
    }

    fn make(&self, _: &Caller<'_>, pid: u32) -> Result<What> {
        let of = Subject::process(pid)?;
        Ok(What::Directory(Arc::new(Fixed { rows: ROWS, of, inode: self.inode(pid) })))
    }
}

/// The threads of a process.
struct Tasks(Arc<Process>);

impl Numbers for Tasks {
    const KIND: Kind = Kind::Directory;

    fn next(&self, from: u32) -> Option<u32> {
        let threads = self.0.threads.lock();
        threads.iter().map(|task| task.tid).filter(|tid| *tid >= from).min()
    }

    fn inode(&self, tid: u32) -> u64 {
        u64::from(tid) << 32 | 1 << 28
    }

    fn make(&self, _: &Caller<'_>, tid: u32) -> Result<What> {
        let of = Subject::task(&self.0, tid)?;
        Ok(What::Directory(Arc::new(Fixed { rows: THREAD_ROWS, of, inode: self.inode(tid) })))
    }
}

/// The files of a process: first those that a thread does not have.
const ROWS: &[Row<Subject>] = &[
    Row { name: "task", is: Is::Directory(|of, _, _| directory(Tasks(of.process.clone()))) },
    Row { name: "cgroup", is: Is::Text(cgroup::show) },
    Row { name: "clear_refs", is: Is::Action(contents::clear_refs) },
    Row { name: "cmdline", is: Is::Bytes(contents::cmdline) },
    Row { name: "comm", is: Is::Setting(about::comm, about::set_comm) },
    Row { name: "cwd", is: Is::Link(links::working_directory) },
    Row { name: "environ", is: Is::Bytes(contents::environ) },
    Row { name: "exe", is: Is::Link(links::program) },
    Row { name: "fd", is: Is::Directory(|of, _, _| links::descriptors(of)) },
    Row { name: "fdinfo", is: Is::Directory(|of, _, _| links::positions(of)) },
    Row { name: "folios", is: Is::Text(folios::show) },
    Row { name: "limits", is: Is::Text(about::limits) },
    Row { name: "maps", is: Is::Asked(&Is::Text(maps::show), maps::ask) },
    Row { name: "mem", is: Is::Memory(contents::read, contents::write) },
    Row { name: "mountinfo", is: Is::Text(|_, _, out| system::mount_info(out)) },
    Row { name: "mounts", is: Is::Text(|_, _, out| system::mounts(out)) },
    Row { name: "oom_score", is: Is::Text(|_, _, out| out.push(b"0\n")) },
    Row { name: "oom_score_adj", is: Is::Setting(oom_score_adj, set_oom_score_adj) },
    Row { name: "pagemap", is: Is::Asked(&Is::Bytes(pagemap::read), scan::ask) },
    Row { name: "personality", is: Is::Text(|_, _, out| out.push(b"00000000\n")) },
    Row { name: "root", is: Is::Link(links::root) },
    Row { name: "smaps", is: Is::Text(smaps::show) },
    Row { name: "smaps_rollup", is: Is::Text(smaps::show_rollup) },
    Row { name: "stat", is: Is::Text(about::stat) },
    Row { name: "statm", is: Is::Text(about::statm) },
    Row { name: "status", is: Is::Text(about::status) },
    Row { name: "wchan", is: Is::Text(|_, _, out| out.push(b"0")) },
];

/// The files of a thread.
const THREAD_ROWS: &[Row<Subject>] = match ROWS {
    [_, rows @ ..] => rows,
    [] => &[],
};

/// A directory of numbers.
///
/// # Errors
/// None.
pub(super) fn directory(of: impl Numbers) -> Result<What> {
    Ok(What::Directory(Arc::new(Many::only(of))))
}

/// `/proc/self`, and `/proc/thread-self` with the thread.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn own(pid: u32, tid: Option<u32>) -> Result<What> {
    match tid {
        None => link(format_args!("{pid}")),
        Some(tid) => link(format_args!("{pid}/task/{tid}")),
    }
}

fn oom_score_adj(of: &Subject, _: &Caller<'_>, out: &mut Text) -> Result<()> {
    out.print(format_args!("{}\n", of.process.oom_adjust.load(Ordering::Relaxed)))
}

/// Stores the value for the OOM killer and for later reads.
fn set_oom_score_adj(of: &Subject, _: &Caller<'_>, bytes: &[u8]) -> Result<()> {
    let (digits, sign) = bytes.strip_prefix(b"-").map_or((bytes, 1), |digits| (digits, -1));
    let value = number(digits)?;
    if value > 1000 {
        return Err(Errno::EINVAL);
    }
    of.process.oom_adjust.store(value as i32 * sign, Ordering::Relaxed);
    Ok(())
}
