//! The benches: each measures in shuffled rounds, saves its figures, and prints them.
//!
//! [`driver`] has the trait that all share, and runs them; [`sheet`] takes their figures; [`scene`]
//! and [`lanes`] set memory up. The benches know these, and none knows another's goals or words.

pub(crate) mod options;
pub(crate) mod sheet;
mod driver;
mod lanes;
pub(crate) mod scene;
mod clear;
mod sweep;
mod fault;
mod entries;
mod exec;
mod read;
mod pageout;
mod scale;
mod together;
mod watch;
mod age;

use anyhow::Result;
use clap::Subcommand;

use self::driver::drive;
use self::entries::{EntriesArgs, Task};
use crate::host::Host;

pub(crate) use entries::{HelperArgs, run_helper};
pub(crate) use options::Format;

/// The benches.
#[derive(Subcommand, Debug)]
pub(crate) enum Bench {
    /// GB/s of clearing against the size of the extent, for each way to clear
    Clear(clear::ClearArgs),
    /// The cost of a page fault against the size of the folio, on demand and populated
    Fault(fault::FaultArgs),
    /// The cost of copying a space and of ending the copy, for each entry of its tables
    Fork(EntriesArgs),
    /// The cost of unmapping and freeing memory, for each entry of its tables
    Zap(EntriesArgs),
    /// The cost of taking and giving the right to write, for each entry of the tables
    Protect(EntriesArgs),
    /// The layout of real programs' text under different ways to read it, by replay
    Exec(exec::ExecArgs),
    /// The cost of reading a file that is in memory, beside the bare copy
    Read(read::ReadArgs),
    /// The cost of paging anonymous memory out and bringing it back, for each page
    Pageout(pageout::PageoutArgs),
    /// A snapshot through a watcher of writes: arm, a storm of writes, release
    Watch(watch::WatchArgs),
    /// Operations of several threads at the same time, beside one thread
    Together(together::TogetherArgs),
    /// The cache lines that many CPUs write in common, for each operation, by room and field
    Scale(scale::ScaleArgs),
    /// The share of wanted large folios that faults get over a machine's simulated life
    Age(age::AgeArgs),
}

/// Runs a bench, saves its figures and prints them.
pub(crate) fn run(bench: &Bench, host: &Host) -> Result<()> {
    let entries = |task: Task, args: &EntriesArgs| {
        drive::<entries::Entries>(&(task, args.clone()), args.common.format, host)
    };
    match bench {
        Bench::Clear(args) if args.sweep => {
            drive::<sweep::Sweep>(args, args.shared.common.format, host)
        }
        Bench::Clear(args) => drive::<clear::Clear>(args, args.shared.common.format, host),
        Bench::Fault(args) => drive::<fault::Fault>(args, args.shared.common.format, host),
        Bench::Fork(args) => entries(Task::Fork, args),
        Bench::Zap(args) => entries(Task::Zap, args),
        Bench::Protect(args) => entries(Task::Protect, args),
        Bench::Exec(args) => drive::<exec::Exec>(args, args.format, host),
        Bench::Read(args) => drive::<read::Read>(args, args.common.format, host),
        Bench::Watch(args) => drive::<watch::Watch>(args, args.common.format, host),
        Bench::Together(args) => drive::<together::Together>(args, args.common.format, host),
        Bench::Scale(args) => scale::run(args),
        Bench::Age(args) => drive::<age::Age>(args, args.common.format, host),
        Bench::Pageout(args) => drive::<pageout::Pageout>(args, args.common.format, host),
    }
}
