//! The `quire` command: benches, and reports of what they found.
//!
//! Exit status: 0 done, 1 something failed on the way, 2 the command line asks for something
//! impossible (an unknown name, a wrong size, more memory than there is), told by one sentence on
//! stderr.

mod advise;
mod args;
mod bench;
mod explain;
mod host;
mod isa;
mod maps;
mod plot;
mod record;
mod recorder;
mod recording;
mod refused;
mod report;
mod sim;
mod size;
mod stats;
mod table;
mod tape;
mod text;
mod threads;
mod tlb;
mod watch;

use std::io;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use crate::args::{Cli, Command};
use crate::host::Host;
use crate::refused::Refused;

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => finish(run(&cli)),
        // Help and version: clap prints them on stdout, where a reader may be gone.
        Err(e) if !e.use_stderr() => finish(e.print().map_err(Into::into)),
        Err(e) => finish(Err(Refused(args::sentence(&e)).into())),
    }
}

fn run(cli: &Cli) -> Result<()> {
    let host = Host::new(&cli.host_root);
    match &cli.command {
        Command::Bench(bench) => bench::run(bench, &host),
        Command::Explain(explain) => explain::run(explain, &host),
        Command::Maps(maps) => maps::run(maps, &host),
        Command::Record(record) => recorder::run(record, &host),
        Command::Advise(args) => advise::run(args, &host),
        Command::Hold(args) => watch::hold(args),
        Command::Launch(args) => text::launch(args),
        Command::Stand(args) => advise::stand(args),
        Command::Report(report) => report::run(report),
        Command::Sim(sim) => sim::run(sim),
        Command::Helper(helper) => bench::run_helper(helper),
    }
}

/// Prints the error, and turns it into the exit status.
fn finish(result: Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    if error.is::<Refused>() {
        eprintln!("quire: {error}.");
        return ExitCode::from(2);
    }
    let gone = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    };
    if error.chain().any(gone) {
        // The reader has seen enough (`quire … | head`).
        return ExitCode::SUCCESS;
    }
    eprintln!("quire: {error:#}.");
    ExitCode::FAILURE
}
