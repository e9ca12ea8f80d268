//! The command line: the commands, and the one sentence about a wrong one.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use crate::advise::{AdviseArgs, StandArgs};
use crate::bench::{Bench, HelperArgs};
use crate::explain::Explain;
use crate::maps::MapsArgs;
use crate::recorder::RecordArgs;
use crate::report::ReportArgs;
use crate::sim::SimArgs;
use crate::text::LaunchArgs;
use crate::watch::HoldArgs;

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
    /// Show how something works, step by step
    #[command(subcommand)]
    Explain(Explain),
    /// Show a process's memory by the sizes of its folios (Linux, as root)
    Maps(MapsArgs),
    /// Record in which order a program touches the pages of its files, or all memory (Linux, as
    /// root)
    Record(RecordArgs),
    /// Make one self-contained HTML page with plots of the last runs
    Report(ReportArgs),
    /// Run random scripts of many processes on a simulated machine, and check every step
    Sim(SimArgs),
    /// Predict what each setting of the folio sizes means for a program, and say which to choose
    Advise(AdviseArgs),
    /// Start a program whose hot text is read ahead, by a map of it
    Launch(LaunchArgs),
    /// Become a program that is watched
    #[command(hide = true)]
    Hold(HoldArgs),
    /// Become a process that is copied
    #[command(hide = true)]
    Stand(StandArgs),
    /// Measure the host's kernel in a process of its own, for the benches
    #[command(hide = true)]
    Helper(HelperArgs),
}

/// The error of a wrong command line as one sentence, without usage lines.
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
            let sizes: Vec<u64> = clear.shared.sizes(&[]).iter().map(|size| size.bytes()).collect();
            assert_eq!(sizes, [4096, 2 << 20]);
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
