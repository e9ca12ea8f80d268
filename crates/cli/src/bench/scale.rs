//! Cache lines that CPUs write in common, for each operation: counted, not timed.

use anyhow::Result;
use clap::Args;

#[cfg(not(feature = "lines"))]
use crate::refused::Refused;

/// Options of `bench scale`.
#[derive(Args, Debug)]
pub(crate) struct ScaleArgs {
    /// How many simulated CPUs there are
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=256))]
    cpus: u32,
    /// The lines of code as well
    #[arg(long)]
    places: bool,
}

/// Counts and prints the table of docs/scaling.md.
#[cfg(feature = "lines")]
pub(crate) fn run(args: &ScaleArgs) -> Result<()> {
    use std::io::Write;

    let outcomes = quire_sim::lines::count(args.cpus as usize);
    let mut out = std::io::stdout().lock();
    write!(out, "{}", quire_sim::lines::table(&outcomes))?;
    for outcome in outcomes.iter().filter(|_| args.places) {
        for (field, shared) in &outcome.fields {
            writeln!(out, "{}: {field}: {:.2} written", outcome.name, shared.written)?;
            for (file, line) in &shared.places {
                writeln!(out, "    {file}:{line}")?;
            }
        }
    }
    for sentence in quire_sim::lines::unstated(&outcomes) {
        writeln!(out, "{sentence}")?;
    }
    Ok(())
}

/// Refuses: the library of this build tells nothing.
#[cfg(not(feature = "lines"))]
pub(crate) fn run(args: &ScaleArgs) -> Result<()> {
    let (cpus, places) = (args.cpus, if args.places { " --places" } else { "" });
    Err(Refused(format!(
        "lines are counted by a build of their own: cargo run --release --package quire-cli \
         --features lines -- bench scale --cpus {cpus}{places}"
    ))
    .into())
}
