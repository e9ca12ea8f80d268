//! A process that has the layout of another, and forks: what copies cost on this Linux.
//!
//! The command runs itself once more, as `quire stand`, which has one thread. It maps areas of the
//! same sizes at addresses that are aligned alike, touches the same pages, and forks. Each copy
//! writes its pages, stops, and is looked at.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use clap::Args;
use memmap2::{Advice, MmapMut, MmapOptions};
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_parent_process_death_signal, waitpid,
};
use serde::{Deserialize, Serialize};

use crate::advise::layout::Layout;
use crate::stats::{Summary, thread_ns};
use crate::watch;

/// Options of the hidden command `stand`.
#[derive(Args, Debug)]
pub(crate) struct StandArgs {
    /// How many copies
    clones: u32,
    /// Each copy writes each such page, or none where it is 0
    every: u64,
}

/// Bytes of a block.
const BLOCK: usize = 2 << 20;
const PAGE: usize = 4096;

/// The figures of copies.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(in crate::advise) struct Stood {
    /// Nanoseconds of each fork.
    pub(in crate::advise) fork: Summary,
    /// Bytes of each that no other process has, and of the tables of the layout.
    pub(in crate::advise) private: Summary,
    pub(in crate::advise) tables: Summary,
}

/// The figures as the process prints them.
#[derive(Serialize, Deserialize)]
struct Raw {
    fork: Vec<f64>,
    private: Vec<f64>,
    tables: Vec<f64>,
}

/// Runs a process with `layout` that copies itself `clones` times.
pub(in crate::advise) fn run(layout: &Layout, clones: u32, every: u64) -> Result<Stood> {
    let own = env::current_exe().context("the command does not find itself")?;
    let mut command = Command::new(own);
    command.arg("stand").arg(clones.to_string()).arg(every.to_string());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().context("the process has no input")?;
    stdin.write_all(&serde_json::to_vec(layout)?)?;
    drop(stdin);
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "the process that copies itself failed");
    let raw: Raw = serde_json::from_slice(&output.stdout)?;
    let sum = |all: &[f64]| Summary::of(all).context("there were no copies");
    Ok(Stood { fork: sum(&raw.fork)?, private: sum(&raw.private)?, tables: sum(&raw.tables)? })
}

/// The process.
pub(crate) fn stand(args: &StandArgs) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let layout: Layout = serde_json::from_reader(std::io::stdin().lock())?;
    let own_tables = figure(getpid().as_raw_nonzero().get(), "status", "VmPTE")?;
    let mut memory = Standing::new(&layout)?;
    let mut raw = Raw { fork: Vec::new(), private: Vec::new(), tables: Vec::new() };
    // The first writes nothing: the rest have as many pages that are not of the layout.
    let mut usual = 0.0;
    let mut pids = Vec::new();
    for clone in 0..=args.clones {
        let every = if clone == 0 { 0 } else { args.every };
        let start = thread_ns();
        let pid = watch::fork().context("the host does not fork")?;
        if pid == 0 {
            memory.copy(&layout, every)?;
        }
        let ns = thread_ns() - start;
        let of = Pid::from_raw(pid).context("a copy has no number")?;
        pids.push(of);
        waitpid(Some(of), WaitOptions::UNTRACED)?;
        let private = figure(pid, "smaps_rollup", "Private_Dirty")?;
        let tables = figure(pid, "status", "VmPTE")?;
        if clone == 0 {
            usual = private;
            continue;
        }
        raw.fork.push(ns);
        raw.private.push((private - usual).max(0.0));
        raw.tables.push((tables - own_tables).max(0.0));
    }
    for pid in pids {
        kill_process(pid, Signal::KILL)?;
        waitpid(Some(pid), WaitOptions::empty())?;
    }
    println!("{}", serde_json::to_string(&raw)?);
    Ok(())
}

/// A figure of a process, in bytes.
fn figure(pid: i32, file: &str, name: &str) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok());
    kib.map(|kib| kib * 1024.0).with_context(|| format!("the kernel does not tell {name}"))
}

/// Memory like that of a layout.
struct Standing {
    /// Each area with its first page in the layout, and where it begins in the map.
    areas: Vec<(u64, u64, MmapMut, usize)>,
}

impl Standing {
    fn new(layout: &Layout) -> Result<Standing> {
        let mut areas = Vec::new();
        for (start, count, huge) in &layout.areas {
            areas.push(area(*start, *count, *huge)?);
        }
        let mut memory = Standing { areas };
        for (start, count) in &layout.touched {
            (*start..start + count).for_each(|page| memory.write(page));
        }
        Ok(memory)
    }

    fn write(&mut self, page: u64) {
        let behind = self.areas.partition_point(|(start, ..)| *start <= page);
        let Some((start, _, map, offset)) = self.areas[..behind].last_mut() else { return };
        let at = *offset + (page - *start) as usize * PAGE;
        if let Some(byte) = map.get_mut(at) {
            *byte = 1;
        }
    }

    /// The work of a copy, which stays until it is killed.
    fn copy(&mut self, layout: &Layout, every: u64) -> Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        layout.written(every).for_each(|page| self.write(page));
        loop {
            kill_process(getpid(), Signal::STOP)?;
        }
    }
}

/// Maps an area, aligned to blocks as page `start` is. The rest of the map gets no large folios,
/// so that it is another area.
fn area(start: u64, count: u64, huge: Option<bool>) -> Result<(u64, u64, MmapMut, usize)> {
    let bytes = usize::try_from(count)? * PAGE;
    let wanted = start as usize * PAGE % BLOCK;
    let map = MmapOptions::new().len(bytes + 2 * BLOCK).no_reserve_swap().map_anon()?;
    let base = map.as_ptr().addr();
    // Never 0: the map before this one must not become one area with it.
    let offset = match (wanted + BLOCK - base % BLOCK) % BLOCK {
        0 => BLOCK,
        offset => offset,
    };
    let rest = offset + bytes;
    map.advise_range(Advice::NoHugePage, 0, offset)?;
    map.advise_range(Advice::NoHugePage, rest, bytes + 2 * BLOCK - rest)?;
    match huge {
        Some(true) => map.advise_range(Advice::HugePage, offset, bytes)?,
        Some(false) => map.advise_range(Advice::NoHugePage, offset, bytes)?,
        None => {}
    }
    Ok((start, count, map, offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f1_an_area_is_aligned_to_blocks_as_its_model_is() {
        for start in [512, 513, 1023, 5000] {
            let (_, count, map, offset) = area(start, 700, None).unwrap();
            let place = map.as_ptr().addr() + offset;
            assert_eq!(place / PAGE % 512, start as usize % 512);
            assert!(offset + count as usize * PAGE <= map.len());
        }
    }

    #[test]
    fn f1_pages_are_written_where_the_layout_has_them() {
        let mut layout = Layout::scattered(3);
        layout.areas[1].1 = 5;
        let mut memory = Standing::new(&layout).unwrap();
        memory.write(2 * 512 + 4);
        let (_, _, map, offset) = &memory.areas[1];
        assert_eq!([0, 1, 4].map(|page| map[offset + page * PAGE]), [1, 0, 1]);
    }
}
