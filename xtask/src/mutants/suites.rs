//! The suites that judge mutants, from the cheapest on, and their first run without a mutant: it
//! tells how long each test takes, and which mutants it reaches. A test that does not reach a
//! mutant cannot notice it, so it is not asked.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::build::{Build, Program};
use super::copy::{CHOSEN, REACHED};
use super::process::{Alarm, End, watch};

/// A test, or one run of the simulator.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Test {
    /// The index of its suite in the list.
    pub(crate) suite: usize,
    /// Its name in its program, or the arguments.
    pub(crate) name: String,
    /// How long it took without a mutant, on a CPU.
    pub(crate) seconds: f64,
    /// The mutants that it reaches.
    pub(crate) reaches: BTreeSet<usize>,
}

/// Tests of one program.
#[derive(Clone, Debug)]
pub(crate) struct Suite {
    /// The build whose tests decide.
    pub(crate) build: Build,
    program: Program,
}

/// How many steps of each seed, and which seeds, the simulator takes for each format.
const SIM_STEPS: &str = "20000";
const SIM_SEEDS: [&str; 2] = ["1", "2"];

/// The page-table formats, as the simulator calls them.
pub(crate) const FORMATS: [&str; 8] = [
    "x86_64",
    "x86_64_la57",
    "arm64_4k",
    "arm64_16k",
    "arm64_64k",
    "riscv64_sv39",
    "riscv64_sv48",
    "riscv64_sv57",
];

/// How long a test may take without a mutant, on a CPU.
const FIRST_SECONDS: f64 = 600.0;

/// The suites of the programs of a build.
pub(crate) fn of(build: Build, programs: Vec<Program>) -> Vec<Suite> {
    let mut suites: Vec<Suite> = programs
        .into_iter()
        .filter(|program| !is_simulator(build) || program.name == "cli quire")
        .map(|program| Suite { build, program })
        .collect();
    // Those of the small packages first; `cargo` gives them in the order of their end.
    let place = |suite: &Suite| {
        let order = ["units ", "arch ", "hw ", "mm ", "zpool ", "sim ", ""];
        order.iter().position(|begin| suite.program.name.starts_with(begin))
    };
    suites.sort_by_key(|suite| (place(suite), suite.program.name.clone()));
    suites
}

const fn is_simulator(build: Build) -> bool {
    matches!(build, Build::Simulator | Build::Swarm)
}

impl Suite {
    /// Its name in reports.
    pub(crate) fn name(&self) -> String {
        match self.build {
            Build::Check | Build::Tests => self.program.name.clone(),
            Build::Simulator | Build::Swarm => "simulator".to_owned(),
            Build::Loom => "loom".to_owned(),
            Build::Shuttle => "shuttle".to_owned(),
        }
    }

    /// The names of its tests.
    fn list(&self) -> Result<Vec<String>, String> {
        if self.build == Build::Simulator {
            let runs = SIM_SEEDS.iter().flat_map(|seed| FORMATS.map(|isa| format!("{isa} {seed}")));
            return Ok(runs.collect());
        }
        let output = Command::new(&self.program.path)
            .args(["--list", "--format", "terse"])
            .current_dir(&self.program.dir)
            .output()
            .map_err(|error| format!("{}: {error}", self.name()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        // Other tests of the library do not run in a model.
        let is_in = |name: &&str| self.build != Build::Loom || name.contains("loom");
        Ok(names.filter(is_in).map(str::to_owned).collect())
    }

    /// Runs these of its tests, with a variable of the environment set.
    pub(crate) fn run(
        &self,
        names: &[&str],
        setting: (&str, &str),
        most: f64,
    ) -> Result<(End, f64), String> {
        let mut command = Command::new(&self.program.path);
        command.current_dir(&self.program.dir).env(setting.0, setting.1);
        let alarm: Alarm = if is_simulator(self.build) {
            let words = names.first().and_then(|name| name.split_once(' '));
            let (isa, seed) = words.unwrap_or((FORMATS[0], SIM_SEEDS[0]));
            command.args(["sim", "--isa", isa, "--seed", seed, "--ops", SIM_STEPS]);
            violation
        } else {
            command.args(["--exact", "--test-threads", "1"]).args(names);
            // As `ci` draws; a failure is neither kept nor made small.
            command.env("PROPTEST_RNG_SEED", "1").env("PROPTEST_MAX_SHRINK_ITERS", "0");
            command.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1");
            command.env("LOOM_MAX_PREEMPTIONS", "3").env("RUST_BACKTRACE", "0");
            failure
        };
        watch(command, most, alarm).map_err(|error| format!("{}: {error}", self.name()))
    }
}

/// A line of a test program that tells of a failed test.
fn failure(line: &str) -> Option<String> {
    let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
    Some(name.to_owned())
}

/// A line of the simulator that tells of a violation; what follows makes the script shorter.
fn violation(line: &str) -> Option<String> {
    Some(line.strip_prefix("quire: ")?.to_owned())
}

/// Runs each test of all suites without a mutant, `jobs` at a time. A test that fails, for want of
/// something here, judges nothing; its name is printed.
///
/// # Errors
/// A program cannot be started.
pub(crate) fn measure(suites: &[Suite], jobs: usize, dir: &Path) -> Result<Vec<Test>, String> {
    let mut all = Vec::new();
    for (suite, one) in suites.iter().enumerate() {
        all.extend(one.list()?.into_iter().map(|name| (suite, name)));
    }
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let worker = |job: usize| -> Result<(), String> {
        let path = dir.join(format!("reached-{job}"));
        while let Some((suite, name)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            match measured(&suites[*suite], *suite, name, &path)? {
                Some(test) => found.lock().map_err(|_| "a worker is gone")?.push(test),
                None => println!("  without a mutant fails: {} {name}", suites[*suite].name()),
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let worker = &worker;
        let workers: Vec<_> = (0..jobs).map(|job| scope.spawn(move || worker(job))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a worker is gone")?)
    })?;
    found.into_inner().map_err(|_| "a worker is gone".to_owned())
}

fn measured(
    suite: &Suite,
    index: usize,
    name: &str,
    path: &PathBuf,
) -> Result<Option<Test>, String> {
    let _ = fs::remove_file(path);
    let setting = (REACHED, path.to_str().ok_or("the build directory's name is no text")?);
    let (end, seconds) = suite.run(&[name], setting, FIRST_SECONDS)?;
    if end != End::Passed {
        return Ok(None);
    }
    let text = fs::read_to_string(path).unwrap_or_default();
    let reaches = text.lines().filter_map(|line| line.parse().ok()).collect();
    Ok(Some(Test { suite: index, name: name.to_owned(), seconds, reaches }))
}

/// The setting that chooses a mutant.
pub(crate) fn chosen(number: usize) -> (&'static str, String) {
    (CHOSEN, number.to_string())
}
