//! A process as `/proc` shows it: its areas, its figures, its children.

use std::fs;

use quire_linux::text::AreaLine;

use crate::host::smaps;

/// An area of a process, as the kernel prints it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Line {
    /// Addresses; the end does not belong to it.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// May be read, written, executed.
    pub(crate) rights: [bool; 3],
    pub(crate) shared: bool,
    /// Where in the file it begins, in bytes.
    pub(crate) offset: u64,
    /// Whether a file of some file system is behind it.
    pub(crate) inode: u64,
    /// A path, or a word in brackets; empty when it has none.
    pub(crate) name: String,
}

/// The areas of a process at a moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Snapshot {
    pub(crate) pid: u32,
    pub(crate) areas: Vec<Line>,
}

/// The memory and time that a process had used when it ended, or at another moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Figures {
    /// The process: its first thread.
    pub(crate) process: u32,
    /// The highest number of resident bytes since its last exec.
    pub(crate) peak: u64,
    /// Page faults, of both kinds, since it began.
    pub(crate) faults: u64,
    /// Time on CPUs in milliseconds, in the program and in the kernel.
    pub(crate) user_ms: u64,
    pub(crate) kernel_ms: u64,
}

/// The areas of process `pid`; none where it is gone.
pub(crate) fn areas(pid: u32) -> Vec<Line> {
    let text = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let all = smaps::parse(&String::from_utf8_lossy(&text));
    all.into_iter().map(|area| line(&area.line, area.name)).collect()
}

fn line(line: &AreaLine<'_>, name: String) -> Line {
    Line {
        start: line.start,
        end: line.end,
        rights: [line.rights.read, line.rights.write, line.rights.execute],
        shared: line.shared,
        offset: line.offset,
        inode: line.inode,
        name,
    }
}

impl Figures {
    /// Of the process of thread `thread`; `None` where it is gone.
    pub(crate) fn of(thread: u32) -> Option<Figures> {
        let status = fs::read(format!("/proc/{thread}/status")).ok()?;
        let status = String::from_utf8_lossy(&status);
        let process = field(&status, "Tgid")?;
        let peak = field(&status, "VmHWM").unwrap_or(0) * 1024;
        let stat = fs::read(format!("/proc/{process}/stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat);
        // The name in parentheses may hold anything; the third field follows it.
        let rest: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |field: usize| rest.get(field - 3)?.parse::<u64>().ok();
        let tick = 1000 / rustix::param::clock_ticks_per_second().max(1);
        Some(Figures {
            process: u32::try_from(process).ok()?,
            peak,
            faults: number(10)? + number(12)?,
            user_ms: number(14)? * tick,
            kernel_ms: number(15)? * tick,
        })
    }
}

/// The number behind `name` in a `status`.
fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The threads of a process and of all that it started.
pub(crate) fn tree(pid: u32) -> Vec<u32> {
    let mut threads = Vec::new();
    let mut processes = vec![pid];
    while let Some(process) = processes.pop() {
        for entry in fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten() {
            let Some(thread) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            threads.push(thread);
            let children = fs::read_to_string(entry.path().join("children")).unwrap_or_default();
            processes.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
    }
    threads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f1_a_process_tells_its_areas_and_figures() {
        let own = std::process::id();
        let areas = areas(own);
        assert!(areas.iter().any(|area| area.name == "[stack]" && area.rights[1]));
        assert!(areas.iter().any(|area| area.rights[2] && area.inode != 0));
        let figures = Figures::of(own).unwrap();
        assert!(figures.process == own && figures.peak > 1 << 20 && figures.faults > 100);
        assert!(tree(own).contains(&own));
        assert_eq!(field("Name:\ta\nVmHWM:\t  12 kB\n", "VmHWM"), Some(12));
    }
}
