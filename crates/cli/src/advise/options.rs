//! The options of the command, and the tape that they name.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};

use super::memory::Limit;
use crate::bench::Format;
use crate::host::{Host, thp};
use crate::isa::Isa;
use crate::recorder::{self, Bounds};
use crate::refused::Refused;
use crate::size::Size;
use crate::tape::{self, Tape};

/// Options of `advise`.
#[derive(Args, Debug)]
pub(crate) struct AdviseArgs {
    /// Recordings of all memory, made by `quire record --memory`, of one program's runs; otherwise
    /// the program is recorded now
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "pid")]
    recording: Vec<PathBuf>,
    /// How often the program is recorded: runs of programs with threads differ
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with_all = ["recording", "pid"],
          value_parser = clap::value_parser!(u32).range(1..=9))]
    recordings: u32,
    /// Record this process, which runs already, and its children
    #[arg(long, value_name = "PID", conflicts_with = "command")]
    pid: Option<u32>,
    /// End the recording after this time: 500ms, 60s, 5m
    #[arg(long = "for", value_name = "TIME", value_parser = recorder::duration)]
    time: Option<Duration>,
    /// End the recording when it has this size
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    limit: Size,
    /// Also sample which pages are used, each time after this: 500ms, 5s (see `quire record`)
    #[arg(long, value_name = "TIME", value_parser = recorder::duration,
          conflicts_with = "recording")]
    uses: Option<Duration>,
    /// Keep the first recording in this file
    #[arg(long, value_name = "FILE", conflicts_with = "recording")]
    keep: Option<PathBuf>,
    /// The quantity that counts most
    #[arg(long, value_enum, default_value_t = Weigh::Faults)]
    pub(super) weigh: Weigh,
    /// The most memory that the program may use: 512M, 2G
    #[arg(long, value_name = "SIZE")]
    pub(super) memory: Option<Size>,
    /// It is paged out to a swap device of this size, in compressed memory, to keep within
    /// --memory; otherwise settings that need more are left out
    #[arg(long, value_name = "SIZE", requires = "memory")]
    swap: Option<Size>,
    /// The share of attempts that find no free block of 2M, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    pub(super) fragmented: f64,
    /// Run the program under each setting that is shown, and compare
    #[arg(long, requires = "command")]
    pub(super) verify: bool,
    /// With --verify, also run it under each single size
    #[arg(long, requires = "verify")]
    pub(super) single: bool,
    /// With --verify, how often it runs under each setting
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(super) runs: u32,
    /// Measure this host's faults and walks first, and say how long those of the program take
    #[arg(long)]
    pub(super) costs: bool,
    /// Also say what this number of copies of the largest process cost, as it is at its end
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) clones: Option<u32>,
    /// The share of its pages that each copy writes, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.1, value_parser = share,
          requires = "clones")]
    clone_writes: f64,
    /// Instead, write a map of the program's hot text to this file, for `quire launch`
    #[arg(long, value_name = "FILE")]
    pub(super) text: Option<PathBuf>,
    /// Instead, compare ways to restore the process from a snapshot, by its first seconds; a second
    /// recording gives the recorded set
    #[arg(long, value_name = "TIME", value_parser = recorder::duration, conflicts_with = "text")]
    pub(super) snapshot: Option<Duration>,
    /// The page-table format of Quire's column: a CPU of another kind
    #[arg(long, value_enum, default_value_t = Isa::X86_64)]
    pub(super) isa: Isa,
    /// A table for people or one JSON object
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
    /// The command is in a mount namespace of its own
    #[arg(long, hide = true)]
    inside: bool,
    /// The program and its arguments
    #[arg(last = true, required_unless_present_any = ["recording", "pid"])]
    pub(super) command: Vec<OsString>,
}

/// The quantity that counts most when a setting is chosen.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Weigh {
    /// The fewest page faults for at most a tenth more memory than the least
    Faults,
    /// The least memory; among equals, the fewest page faults
    Memory,
    /// The fewest translations for at most a quarter more memory than the least
    Tlb,
}

impl AdviseArgs {
    /// The tapes, at least one: read, or recorded now.
    pub(super) fn tapes(&self, host: &Host) -> Result<Vec<Tape>> {
        if !self.recording.is_empty() {
            return self.recording.iter().map(|path| tape::load(path)).collect();
        }
        recorder::prepare("advise", self.inside)?;
        let (time, uses) = (self.time, self.uses);
        // The object is all that is printed.
        let quiet = self.format == Format::Json;
        let bounds = Bounds { time, bytes: self.limit.len(), random: false, uses, quiet };
        let mut tapes = Vec::new();
        for _ in 0..self.recordings {
            tapes.push(recorder::tape(&self.command, self.pid, &bounds, host)?);
        }
        if let (Some(path), Some(tape)) = (&self.keep, tapes.first()) {
            tape::save(tape, path)?;
        }
        Ok(tapes)
    }

    /// The bound of memory under which a tape of pages of `page` bytes is replayed.
    pub(super) fn limit(&self, page: u64, host: &Host) -> Option<Limit> {
        let (memory, swap) = self.memory.zip(self.swap)?;
        let defrag = thp::switches(host).defrag;
        Some(Limit::new(memory.bytes() / page, swap.bytes() / page, defrag.as_deref()))
    }

    /// The most bytes that a setting may need: all, where memory beyond them is paged out.
    pub(super) fn most(&self) -> Option<u64> {
        self.memory.filter(|_| self.swap.is_none()).map(|size| size.bytes())
    }

    /// How many copies, and which of the touched pages each writes: each such, none where it is 0.
    pub(super) fn copies(&self) -> Option<(u32, u64)> {
        let every = if self.clone_writes > 0.0 { (1.0 / self.clone_writes).round() } else { 0.0 };
        Some((self.clones?, every as u64))
    }

    /// Refuses what can be seen to be impossible before anything is recorded.
    pub(super) fn check(&self, host: &Host) -> Result<(), Refused> {
        let folder = "sys/kernel/mm/transparent_hugepage";
        let why = if !host.path(folder).exists() {
            "the host's kernel has no transparent huge pages (CONFIG_TRANSPARENT_HUGEPAGE)"
        } else if !host.path(folder).join("hugepages-2048kB/enabled").exists() {
            "the host's kernel has no switch for each size; those came with Linux 6.8"
        } else {
            return Ok(());
        };
        if self.verify { Err(Refused(why.to_owned())) } else { Ok(()) }
    }
}

fn share(text: &str) -> Result<f64, String> {
    let share: Option<f64> = text.parse().ok();
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "a share is a number from 0 to 1".to_owned())
}
