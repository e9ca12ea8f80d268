//! The command: its choices, its steps, what it prints.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use super::build::{self, Build};
use super::draw::{Draw, Mutant};
use super::functions;
use super::judge::{Fate, is_over, judge};
use super::records::{self, Name};
use super::report;
use super::suites::{self, Suite, Test};
use crate::tidy::Tree;

/// The choices of the command line.
#[derive(Clone, Debug)]
pub struct What {
    /// The seed of the draw.
    pub seed: u64,
    /// How many.
    pub count: usize,
    /// Only mutants of this room of `mm`, or of this crate.
    pub room: Option<String>,
    /// No mutant is begun after that many minutes.
    pub minutes: Option<u64>,
    /// How many are judged at a time.
    pub jobs: usize,
    /// Only the simulator and the models judge.
    pub without_direct_tests: bool,
    /// Only print what is drawn.
    pub list: bool,
}

/// The least rate with which the command succeeds, in percent. A small sample may have bad luck.
const AT_LEAST: usize = 90;

/// Draws mutants of the workspace at `root`, judges them, and prints rates and survivors. Returns
/// whether enough were noticed, and all records of equivalent ones are true.
///
/// # Errors
/// A sentence that says what cannot be read, built or started.
pub fn run(root: &Path, what: &What) -> Result<bool, String> {
    let begin = Instant::now();
    let end = what.minutes.map(|minutes| begin + Duration::from_secs(60 * minutes));
    let tree = Tree::load(root)?;
    let functions = functions::all(&tree);
    let document = tree.file(records::DOCUMENT).unwrap_or_default();
    let known = records::read(document);
    let findings = records::findings(&known, &functions);
    findings.iter().for_each(|finding| println!("{finding}"));
    let texts = |path: &str| tree.file(path).unwrap_or_default();
    let mut draw = Draw::new(&functions, what.room.as_deref(), what.seed, &texts);
    if what.list {
        draw.take(what.count).for_each(|mutant| println!("{}", report::shown(&mutant, "drawn")));
        return Ok(findings.is_empty());
    }
    let builds: &[Build] = match what.without_direct_tests {
        true => &[Build::Check, Build::Simulator, Build::Loom, Build::Shuttle],
        false => &[Build::Check, Build::Tests, Build::Simulator, Build::Loom, Build::Shuttle],
    };
    println!("Seed {}: {} mutants of {} functions.", what.seed, what.count, functions.len());
    let (mutants, programs) = build::all(root, &mut draw, what.count, builds)?;
    println!("Built after {:.0} s.", begin.elapsed().as_secs_f64());
    let suites: Vec<Suite> = builds
        .iter()
        .zip(programs)
        .flat_map(|(build, programs)| suites::of(*build, programs))
        .collect();
    let tests = suites::measure(&suites, what.jobs, &build::dir(root))?;
    println!("{} tests ran without a mutant after {:.0} s.", tests.len(), seconds(begin));
    let names: Vec<&Name> = known.iter().map(|record| &record.name).collect();
    let fates = judge_all(&mutants, &suites, &tests, &names, what.jobs, end)?;
    let judged: Vec<report::Judged<'_>> =
        fates.iter().map(|(number, fate)| (&mutants[number], fate)).collect();
    println!("\n{}\n", report::table("room", &judged, |mutant| mutant.room.clone()));
    println!("{}\n", report::table("operator", &judged, |m| m.site.operator.to_string()));
    println!("{}", report::by_suite(&judged, &suites));
    println!("{} of {} judged in {:.0} s.", judged.len(), mutants.len(), seconds(begin));
    for (mutant, fate) in &judged {
        if let Fate::Survived(asked) = fate {
            println!("\n{}", report::shown(mutant, &report::passed(*asked)));
        }
    }
    Ok(findings.is_empty() && report::total(&judged).percent() >= AT_LEAST)
}

fn seconds(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64()
}

/// Judges all that are not known to be equivalent, `jobs` at a time, and prints each fate.
fn judge_all(
    mutants: &BTreeMap<usize, Mutant>,
    suites: &[Suite],
    tests: &[Test],
    equivalent: &[&Name],
    jobs: usize,
    end: Option<Instant>,
) -> Result<BTreeMap<usize, Fate>, String> {
    let (open, fates) = (Mutex::new(mutants.iter()), Mutex::new(BTreeMap::new()));
    let worker = || -> Result<(), String> {
        let gone = |_| "a worker is gone".to_owned();
        while !is_over(end) {
            let next = open.lock().map_err(|_| gone(()))?.next();
            let Some((&number, mutant)) = next else { break };
            let begin = Instant::now();
            let fate = if equivalent.contains(&&Name::of(mutant)) {
                Fate::Equivalent
            } else {
                judge(number, mutant, suites, tests)?
            };
            let mut fates = fates.lock().map_err(|_| gone(()))?;
            let told = match &fate {
                Fate::Noticed { suite, by } => format!("{}: {by}", suites[*suite].name()),
                Fate::Survived(asked) => format!("SURVIVED {asked} tests"),
                Fate::Equivalent => "equivalent".to_owned(),
            };
            let (at, operator) = (fates.len() + 1, mutant.site.operator);
            let place = format!("{}:{}", mutant.file, mutant.line);
            println!("{at:>4} {operator:<9} {place}: {told} ({:.1} s)", seconds(begin));
            fates.insert(number, fate);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a worker is gone")?)
    })?;
    fates.into_inner().map_err(|_| "a worker is gone".to_owned())
}
