//! `quire sim`: scripts of a seed, swarms of seeds, and kept scripts once more.
//!
//! Best run as `cargo run --profile sim --package quire-cli -- sim`.

use std::fs::{self, File};
use std::io::{BufWriter, Write, stdout};
use std::panic;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use quire_sim::whole::{
    Failure, Format, Found, Generator, Moves, Options, Report, Script, Setup, Step, Violation,
    run_steps, shrink,
};

use crate::isa::Isa;
use crate::refused::Refused;

/// The most scripts that are tried to find the shortest.
const TRIES: u64 = 4000;

/// Options of `sim`.
#[derive(Args, Debug)]
pub(crate) struct SimArgs {
    /// The seed: the same one gives the same trace, to the byte
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// How many steps each seed has
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) ops: u64,
    /// One seed after the other, for this number of minutes
    #[arg(long, value_name = "MINUTES", value_parser = minutes, conflicts_with = "replay")]
    pub(crate) swarm: Option<Duration>,
    /// The page-table format [default: drawn from the seed]
    #[arg(long, value_enum)]
    pub(crate) isa: Option<Isa>,
    /// Run a script from a file instead
    #[arg(long, value_name = "FILE", conflicts_with_all = ["isa", "seed", "ops"])]
    pub(crate) replay: Option<PathBuf>,
    /// Write each step and its result into a file
    #[arg(long, value_name = "FILE", conflicts_with = "swarm")]
    pub(crate) trace: Option<PathBuf>,
}

fn minutes(text: &str) -> Result<Duration, String> {
    let minutes: Option<f64> = text.parse().ok();
    let minutes = minutes.filter(|minutes| *minutes > 0.0 && *minutes <= 60.0 * 24.0 * 30.0);
    let minutes = minutes.ok_or("minutes are a number above 0, 43200 at most")?;
    Ok(Duration::from_secs_f64(minutes * 60.0))
}

pub(crate) fn run(args: &SimArgs) -> Result<()> {
    // A panic is a finding, printed with its script; a backtrace would only hide it.
    panic::set_hook(Box::new(|_| {}));
    match (&args.replay, args.swarm) {
        (Some(file), _) => replay(file, args.trace.as_deref()),
        (None, Some(time)) => swarm(args, time),
        (None, None) => one(args, args.seed, args.trace.as_deref()).map(drop),
    }
}

/// Runs `steps`, with the trace in a file.
fn play(
    setup: Setup,
    steps: impl Iterator<Item = Step>,
    trace: Option<&Path>,
    done: &mut Vec<Step>,
) -> Result<Result<Report, Violation>> {
    let mut file = match trace {
        Some(path) => {
            let file = File::create(path).with_context(|| format!("{}", path.display()))?;
            Some(BufWriter::new(file))
        }
        None => None,
    };
    let trace = file.as_mut().map(|file| file as &mut dyn Write);
    let options = Options { trace, ..Options::default() };
    let result = run_steps(setup, steps, options, |step| done.push(*step));
    if let Some(mut file) = file {
        file.flush().context("the trace")?;
    }
    match result {
        Ok(report) => Ok(Ok(report)),
        Err(Failure::Violation(violation)) => Ok(Err(violation)),
        Err(error) => Err(error.into()),
    }
}

/// Runs one seed.
fn one(args: &SimArgs, seed: u64, trace: Option<&Path>) -> Result<Report> {
    let format: Option<Format> = match args.isa {
        Some(isa) => Some(isa.name().parse().map_err(Refused)?),
        None => None,
    };
    let setup = Setup::draw(seed, format);
    let steps = Generator::new(seed, setup.bounds()).take(args.ops as usize);
    let (begin, mut done) = (Instant::now(), Vec::new());
    match play(setup, steps, trace, &mut done)? {
        Ok(report) => {
            let rate = report.steps as f64 / begin.elapsed().as_secs_f64();
            writeln!(stdout(), "{}", line(seed, &setup, &report, rate))?;
            Ok(report)
        }
        Err(violation) => Err(told(seed, Script { setup, steps: done }, violation)),
    }
}

fn line(seed: u64, setup: &Setup, report: &Report, rate: f64) -> String {
    format!(
        "seed {seed}: {} steps, {} checks, trace {:016x}, {:.0} steps/s, {}, {} CPUs, \
         {} processes, {}",
        report.steps,
        report.checks,
        report.trace,
        rate,
        setup.format.name(),
        setup.cpus,
        setup.processes,
        told_of(&report.moves),
    )
}

/// The work of compaction, and the pages that moved.
fn told_of(moves: &Moves) -> String {
    let Moves { compactions, made, failed, pages, stayed } = moves;
    format!(
        "{compactions} compactions ({made} blocks made, {failed} not), {pages} pages moved, \
         {stayed} folios stayed"
    )
}

/// Shrinks the failing script, prints it, and makes an error of it.
fn told(seed: u64, script: Script, violation: Violation) -> anyhow::Error {
    eprintln!("quire: seed {seed}: {violation}");
    eprintln!("quire: looking for the shortest script that does the same");
    let found = shrink(Found { script, violation }, TRIES, 0);
    let text = format!(
        "# seed {seed}: {}\n{}",
        found.violation.to_string().replace('\n', "\n# "),
        found.script
    );
    match write!(stdout(), "{text}") {
        Ok(()) => anyhow::anyhow!("{}", found.violation),
        Err(error) => error.into(),
    }
}

fn swarm(args: &SimArgs, time: Duration) -> Result<()> {
    let begin = Instant::now();
    let mut steps = 0;
    let (mut seeds, mut moves) = (0, Moves::default());
    for seed in args.seed.. {
        if begin.elapsed() >= time {
            break;
        }
        let report = one(args, seed, None)?;
        steps += report.steps;
        moves += report.moves;
        seeds += 1;
    }
    let seconds = begin.elapsed().as_secs_f64();
    writeln!(
        stdout(),
        "{seeds} seeds, {steps} steps in {seconds:.0} s ({:.0} steps/s), {}: no violation",
        steps as f64 / seconds,
        told_of(&moves)
    )?;
    Ok(())
}

fn replay(path: &Path, trace: Option<&Path>) -> Result<()> {
    let text = fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
    let script: Result<Script, String> = text.parse();
    let script = script.map_err(|error| Refused(format!("{}: {error}", path.display())))?;
    let (begin, mut done) = (Instant::now(), Vec::new());
    match play(script.setup, script.steps.into_iter(), trace, &mut done)? {
        Ok(report) => {
            let rate = report.steps as f64 / begin.elapsed().as_secs_f64();
            writeln!(stdout(), "{}", line(0, &script.setup, &report, rate))?;
            Ok(())
        }
        Err(violation) => bail!("{violation}"),
    }
}
