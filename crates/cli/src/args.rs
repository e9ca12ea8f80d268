//! What may be typed: commands, options, and the one sentence said about what may not.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::bench::entries::Task;
use crate::bench::pageout::PageoutArgs;
use crate::bench::read::ReadArgs;
use crate::isa::Isa;
use crate::sim::SimArgs;
use crate::size::Size;

/// Large-folio memory management, measured and explained.
#[derive(Parser, Debug)]
#[command(name = "quire", version, about)]
pub(crate) struct Cli {
    /// Where `/proc`, `/sys` and `/run` are found
    #[arg(long, hide = true, global = true, default_value = "/")]
    pub(crate) host_root: PathBuf,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Measure how fast memory is cleared and faulted in
    #[command(subcommand)]
    Bench(Bench),
    /// Tell how something works by doing it
    #[command(subcommand)]
    Explain(Explain),
    /// Show a process's memory by the sizes of its folios (Linux, as root)
    Maps(MapsArgs),
    /// Record in which order a program touches the pages of its files (Linux, as root)
    Record(RecordArgs),
    /// Make one self-contained HTML page with plots of the last runs
    Report(ReportArgs),
    /// Run random scripts of many processes on a simulated machine, and check every step
    Sim(SimArgs),
    /// Measure the host's kernel in a process of its own, for the benches
    #[command(hide = true)]
    Helper(HelperArgs),
}

/// The benches.
#[derive(Subcommand, Debug)]
pub(crate) enum Bench {
    /// GB/s of clearing against the size of the extent, for each way to clear
    Clear(ClearArgs),
    /// The cost of a page fault against the size of the folio, on demand and populated
    Fault(FaultArgs),
    /// The cost of copying a space and of ending the copy, for each entry of its tables
    Fork(EntriesArgs),
    /// The cost of unmapping and freeing memory, for each entry of its tables
    Zap(EntriesArgs),
    /// The cost of taking and giving the right to write, for each entry of the tables
    Protect(EntriesArgs),
    /// What becomes of real programs' text under different ways to read it, by replay
    Exec(ExecArgs),
    /// The cost of reading a file that is in memory, beside the bare copy
    Read(ReadArgs),
    /// The cost of paging anonymous memory out and bringing it back, for each page
    Pageout(PageoutArgs),
}

/// Options every bench takes.
#[derive(Args, Debug)]
pub(crate) struct Shared {
    /// Sizes, powers of two from 4K on: 4K,64K,2M,1G
    #[arg(long, value_delimiter = ',', num_args = 1.., value_parser = folio_size)]
    pub(crate) sizes: Vec<Size>,
    /// How often each thing is measured
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) loops: Option<u32>,
    /// How many threads work at the same time, each on memory of its own
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: u32,
    /// A table for people or one JSON object per line
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
    /// Only these variants: chosen, page-at-a-time, raw-<backend>, linux
    #[arg(long, value_delimiter = ',', num_args = 1..)]
    pub(crate) variants: Vec<String>,
}

/// How results are printed.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    /// Tables with units, settings and what the figures leave out
    Table,
    /// One record per line
    Json,
}

/// Options of `bench clear`.
#[derive(Args, Debug)]
pub(crate) struct ClearArgs {
    #[command(flatten)]
    pub(crate) shared: Shared,
    /// Cross {one extent, units of 32M and 8M} with {no check, flag check, sched_yield} and say
    /// which of the two costs the bandwidth
    #[arg(long)]
    pub(crate) sweep: bool,
}

/// Options of `bench fault`.
#[derive(Args, Debug)]
pub(crate) struct FaultArgs {
    #[command(flatten)]
    pub(crate) shared: Shared,
    /// How much memory each thread faults in per measurement [default: four last-level caches]
    #[arg(long)]
    pub(crate) region: Option<Size>,
    /// The page-table format in which Quire faults
    #[arg(long, value_enum, default_value_t = Isa::X86_64)]
    pub(crate) isa: Isa,
}

/// Options of `bench fork`, `bench zap` and `bench protect`.
#[derive(Args, Debug)]
pub(crate) struct EntriesArgs {
    /// Sizes of folios: a base page to a block [default: 4K,16K,64K,2M or what a format has]
    #[arg(long, value_delimiter = ',', num_args = 1.., value_parser = folio_size)]
    pub(crate) sizes: Vec<Size>,
    /// How much memory is populated [default: 1G, or less where memory is short]
    #[arg(long)]
    pub(crate) region: Option<Size>,
    /// Page-table formats [default: x86_64,arm64_4k; fork: arm64_16k,riscv64_sv48 as well]
    #[arg(long, value_enum, value_delimiter = ',', num_args = 1..)]
    pub(crate) isa: Vec<Isa>,
    /// How often each thing is measured
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) loops: Option<u32>,
    /// A table for people or one JSON object per line
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
    /// Only these variants: by-runs, page-at-a-time, linux
    #[arg(long, value_delimiter = ',', num_args = 1..)]
    pub(crate) variants: Vec<String>,
}

/// Options of `bench exec`.
#[derive(Args, Debug)]
pub(crate) struct ExecArgs {
    /// Recordings made by `quire record` [default: five that come with the command]
    pub(crate) recordings: Vec<PathBuf>,
    /// The page-table format, with pages of 4K
    #[arg(long, value_enum, default_value_t = Isa::Arm4k)]
    pub(crate) isa: Isa,
    /// A table for people or one JSON object per line
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
    /// Only these variants: page-at-a-time, read-around, read-ahead, exec-64K, tiers-2M
    #[arg(long, value_delimiter = ',')]
    pub(crate) variants: Vec<String>,
}

/// What a helper measures.
#[derive(Args, Debug)]
pub(crate) struct HelperArgs {
    /// What is measured
    pub(crate) task: Task,
    /// The size of the folios
    pub(crate) size: Size,
    /// How much memory is populated
    pub(crate) region: Size,
    /// How often it is measured
    pub(crate) rounds: u32,
    /// Whether blocks map the folios
    #[arg(long)]
    pub(crate) block: bool,
}

/// What can be explained.
#[derive(Subcommand, Debug)]
pub(crate) enum Explain {
    /// One page fault, step by step through the rooms, with the files it passes
    Fault(ExplainArgs),
}

/// Options of `explain fault`.
#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// The size of the folio that the program gets
    #[arg(long, default_value = "64K", value_parser = folio_size)]
    pub(crate) size: Size,
    /// The page-table format
    #[arg(long, value_enum, default_value_t = Isa::X86_64)]
    pub(crate) isa: Isa,
}

/// Options of `maps`.
#[derive(Args, Debug)]
pub(crate) struct MapsArgs {
    /// The process
    #[arg(required_unless_present = "all")]
    pub(crate) pid: Option<u32>,
    /// All processes: a line for each, and the table of all together
    #[arg(long, conflicts_with_all = ["pid", "areas"])]
    pub(crate) all: bool,
    /// The blocks that are counted as contiguous, a power of two from the page size on
    #[arg(long, default_value = "64K", value_parser = folio_size)]
    pub(crate) cont: Size,
    /// A line for each area as well
    #[arg(long)]
    pub(crate) areas: bool,
}

/// Options of `record`.
#[derive(Args, Debug)]
pub(crate) struct RecordArgs {
    /// Where to write the recording [default: the program's name, with .recording]
    #[arg(long, short)]
    pub(crate) output: Option<PathBuf>,
    /// What the program does, in one line
    #[arg(long, default_value = "")]
    pub(crate) note: String,
    /// The command is in a mount namespace of its own
    #[arg(long, hide = true)]
    pub(crate) inside: bool,
    /// The program, which runs twice, and its arguments
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// Options of `report`.
#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// Where to write the page; otherwise beside the saved runs
    #[arg(long, short)]
    pub(crate) output: Option<PathBuf>,
    /// Print the main figures of all benches as one table, and what was left out
    #[arg(long)]
    pub(crate) summary: bool,
}

/// The smallest size that anything is cleared or mapped in.
const SMALLEST: u64 = 4096;
/// Beyond this no machine clears memory as one extent.
const LARGEST: u64 = 1 << 36;

fn folio_size(text: &str) -> Result<Size, String> {
    let size: Size = text.parse().map_err(|e: crate::size::BadSize| e.to_string())?;
    if !size.bytes().is_power_of_two() || !(SMALLEST..=LARGEST).contains(&size.bytes()) {
        return Err(format!(
            "sizes are powers of two from {} to {}",
            Size(SMALLEST),
            Size(LARGEST)
        ));
    }
    Ok(size)
}

/// What clap has to say about a wrong command line, as one sentence without its usage lines.
pub(crate) fn sentence(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "a command is missing; `quire --help` lists them".to_owned();
    }
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let first: Vec<&str> =
        text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
    first.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes_come_with_commas_and_with_spaces() {
        for words in [&["--sizes", "4K,2M"][..], &["--sizes", "4K", "2M"]] {
            let cli = Cli::try_parse_from(["quire", "bench", "clear"].iter().chain(words)).unwrap();
            let Command::Bench(Bench::Clear(clear)) = cli.command else { panic!("not clear") };
            assert_eq!(clear.shared.sizes, [Size(4096), Size(2 << 20)]);
        }
    }

    #[test]
    fn every_refusal_is_one_line() {
        for line in [
            "quire",
            "quire bench",
            "quire bench nosuch",
            "quire bench clear --sizes 3K",
            "quire bench clear --sizes",
            "quire bench clear --format xml",
            "quire bench fault --loops 0",
            "quire bench fault --nosuch",
            "quire bench fork --isa",
            "quire bench zap --threads 2",
            "quire maps",
            "quire maps 1 --all",
            "quire maps --all --areas",
            "quire maps me",
            "quire record",
            "quire record --",
            "quire record true",
            "quire bench read --size",
            "quire bench read --chunk 4K",
            "quire bench pageout --size",
            "quire bench pageout --isa x86_64",
            "quire sim --seed x",
            "quire sim --ops 0",
            "quire sim --swarm 0",
            "quire sim --swarm soon",
            "quire sim --isa z80",
            "quire sim --replay",
            "quire sim --replay a.script --swarm 1",
            "quire sim --replay a.script --isa x86_64",
            "quire sim --swarm 1 --trace a",
        ] {
            let error = Cli::try_parse_from(line.split(' ')).unwrap_err();
            let sentence = sentence(&error);
            assert!(!sentence.is_empty() && !sentence.contains('\n'), "{line}: {sentence:?}");
        }
    }
}
