//! What the benches share around their rounds: what to measure, and what becomes of the result.

use std::io::{self, Write};

use anyhow::Result;

use super::entries::{self, Task};
use super::{clear, exec, fault, pageout, read, sweep};
use crate::args::{Bench, Format, Shared};
use crate::host::Host;
use crate::record::{self, Run};
use crate::size::Size;
use crate::{Refused, table};

/// Runs a bench, saves what it found and prints it.
///
/// # Errors
/// [`Refused`] for what cannot be measured; else whatever failed on the way.
pub(crate) fn run(bench: &Bench, host: &Host) -> Result<()> {
    let (mut run, format) = match bench {
        Bench::Clear(args) if args.sweep => (sweep::run(&args.shared, host)?, args.shared.format),
        Bench::Clear(args) => (clear::run(&args.shared, host)?, args.shared.format),
        Bench::Fault(args) => (fault::run(args, host)?, args.shared.format),
        Bench::Fork(args) => (entries::run(Task::Fork, args, host)?, args.format),
        Bench::Zap(args) => (entries::run(Task::Zap, args, host)?, args.format),
        Bench::Read(args) => (read::run(args, host)?, args.format),
        Bench::Pageout(args) => (pageout::run(args, host)?, args.format),
        Bench::Protect(args) => (entries::run(Task::Protect, args, host)?, args.format),
        Bench::Exec(args) => (exec::run(args, host)?, args.format),
    };
    if cfg!(debug_assertions) {
        run.limits.push(
            "This is a debug build, whose figures say little: build with --release.".to_owned(),
        );
    }
    let saved = record::save(&run);
    let mut out = io::stdout().lock();
    match format {
        Format::Json => {
            for record in &run.records {
                writeln!(out, "{}", serde_json::to_string(record)?)?;
            }
        }
        Format::Table => write!(out, "{}", table::page(&run))?,
    }
    out.flush()?;
    match saved {
        Ok(path) if format == Format::Table => writeln!(out, "Saved as {}.", path.display())?,
        Ok(_) => {}
        Err(e) => eprintln!("quire: the run is not saved: {e:#}."),
    }
    Ok(())
}

/// Which variants to measure: those the user named, or all.
pub(crate) struct Filter(Vec<String>);

impl Filter {
    /// The variants `named`, each of which must be in `known`; all if none is.
    ///
    /// # Errors
    /// [`Refused`] with what is known.
    pub(crate) fn new(named: &[String], known: &[String]) -> Result<Filter, Refused> {
        match named.iter().find(|name| !known.contains(name)) {
            Some(name) => Err(Refused(format!(
                "there is no variant {name:?} here; there are {}",
                known.join(", ")
            ))),
            None => Ok(Filter(named.to_vec())),
        }
    }

    /// Whether `name` is to be measured.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|n| n == name)
    }
}

/// The sizes the user named, without repetition and in order, or `usual`.
pub(crate) fn sizes(shared: &Shared, usual: &[u64]) -> Vec<Size> {
    let mut sizes = match shared.sizes.is_empty() {
        true => usual.iter().copied().map(Size).collect(),
        false => shared.sizes.clone(),
    };
    sizes.sort();
    sizes.dedup();
    sizes
}

/// A run with all but its figures.
pub(crate) fn empty_run(bench: &str, host: &Host) -> Run {
    Run {
        bench: bench.to_owned(),
        date: record::now_utc(),
        machine: crate::host::cpu::Machine::read(host),
        settings: Vec::new(),
        findings: Vec::new(),
        limits: Vec::new(),
        records: Vec::new(),
    }
}
