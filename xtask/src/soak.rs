//! `cargo xtask soak`: what `ci` runs, longer and from other seeds (`make soak`).
//!
//! ```text
//!   first           the simulator finds what is broken on purpose: the canary, the planted slips
//!   round 1, 2, …   scripts of a seed of its own ──► the stress tests, some times over
//!                   ──► the simulator ──► orders of threads, both from seeds of their own
//!                   ──► slips that were not drawn before, which the tests must notice
//!   then            on each ISA: abuse, stress, Linux's own tests
//! ```
//!
//! It stops at the first failure, and says which words show that again.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::ci::{SCHEDULES, SCHEDULES_FLAGS};
use crate::guest::Isa;
use crate::steps::{Steps, build_dir};

/// How many scripts each property test draws in a round, where it does not fix that itself.
const CASES: u32 = 1000;

/// How often each stress test runs in a round: its threads meet otherwise each time.
const STRESS_TIMES: u32 = 5;

/// The stress tests of `quire-sim`.
const STRESS: [&str; 6] = ["test", "--package", "quire-sim", "--test", "it", "stress::"];

/// How long the simulator looks in a round, and how far apart the first seeds of rounds are: it
/// gets through fewer in that time.
const SIM_MINUTES: u32 = 10;
const SIM_SEEDS: u64 = 1_000_000;

/// How many orders of its threads each model of the whole library is played in.
const SCHEDULES_EACH: u32 = 10_000;

/// How many slips are drawn in a round, and for how long the tests are asked about them.
const MUTANTS: u32 = 60;
const MUTANTS_MINUTES: u32 = 60;

/// How long `abuse` and `stress` run on each ISA.
const ABUSE_SECONDS: u64 = 120;
const STRESS_SECONDS: u64 = 300;

/// Linux's own tests that pass on Quire's kernel as they do on Linux.
const SELFTESTS: [&str; 5] =
    ["map_fixed_noreplace", "mremap_test", "mdwe_test", "mrelease_test", "transhuge-stress"];

/// The choices of the command line.
#[derive(Clone, Copy, Debug)]
pub struct What {
    /// How many rounds of scripts and stress tests.
    pub rounds: u32,
    /// The seed of the first round; the next ones follow. None: one that depends on the time.
    pub seed: Option<u64>,
}

/// A command, its name, and what is set in its environment.
struct Step {
    name: String,
    words: Vec<String>,
    settings: Vec<(&'static str, String)>,
}

/// Runs all of it in the workspace at `root`; returns whether nothing failed.
pub fn run(root: &Path, what: &What) -> bool {
    let seed = what.seed.unwrap_or_else(seed_of_now);
    let mut all = vec![canary(&build_dir(root)), planted()];
    all.extend(steps(what.rounds, seed, &build_dir(root)));
    println!("Seeds from {seed} on. These steps run until one fails:");
    all.iter().for_each(|step| println!("  {:<28} {}", step.name, step.line()));
    println!();
    let mut steps = Steps::new(root, Duration::MAX);
    for step in all {
        if !steps.run(&step.name, step.command()) {
            println!("This runs it again: {}", step.line());
            steps.finish();
            return false;
        }
    }
    steps.finish()
}

/// A number that is another each time, and short enough to be typed.
fn seed_of_now() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    time.map_or(1, |time| time.as_micros() as u64 % 1_000_000_000)
}

fn steps(rounds: u32, seed: u64, build_dir: &Path) -> Vec<Step> {
    let mut all = Vec::new();
    for round in 0..u64::from(rounds) {
        let seed = seed.wrapping_add(round);
        all.push(scripts(round + 1, seed));
        let again = |time| Step::new(format!("round {}: stress {time}", round + 1), &STRESS);
        all.extend((1..=STRESS_TIMES).map(again));
        all.push(simulator(round + 1, seed));
        all.push(schedules(round + 1, seed, build_dir));
        all.push(mutants(round + 1, seed));
    }
    for isa in Isa::ALL {
        all.extend(on_kernel(isa, seed));
    }
    all.push(Step::new("emulated CPUs".to_owned(), &["xtask", "cpus"]));
    all
}

fn scripts(round: u64, seed: u64) -> Step {
    let words = ["test", "--workspace", "--exclude", "xtask"];
    Step::new(format!("round {round}: scripts"), &words)
        .with("PROPTEST_RNG_SEED", seed)
        .with("PROPTEST_CASES", CASES)
}

/// The simulator must find a mistake that only this build makes; it has its own directory, so that
/// nothing else is compiled again.
fn canary(build_dir: &Path) -> Step {
    let dir = build_dir.join("canary").display().to_string();
    let test = ["test", "--package", "quire-sim", "--test", "it", "--target-dir", &dir, "canary"];
    Step::new("canary".to_owned(), &test).with("RUSTFLAGS", "--cfg=quire_canary")
}

/// So it must find each slip of docs/planted.md.
fn planted() -> Step {
    Step::new("planted slips".to_owned(), &["xtask", "mutants", "--planted"])
}

fn simulator(round: u64, seed: u64) -> Step {
    let (first, minutes) = (seed.wrapping_mul(SIM_SEEDS).to_string(), SIM_MINUTES.to_string());
    let mut words = vec!["run", "--profile", "sim", "--package", "quire-cli", "--"];
    words.extend(["sim", "--swarm", &minutes, "--seed", &first]);
    Step::new(format!("round {round}: simulator"), &words)
}

/// The models of the whole library, in other orders than `ci` looks at.
fn schedules(round: u64, seed: u64, build_dir: &Path) -> Step {
    let dir = build_dir.join("shuttle").display().to_string();
    let words = [&SCHEDULES[..], &["--target-dir", &dir]].concat();
    Step::new(format!("round {round}: schedules"), &words)
        .with("RUSTFLAGS", SCHEDULES_FLAGS)
        .with("SHUTTLE_RANDOM_SEED", seed)
        .with("QUIRE_SCHEDULES", SCHEDULES_EACH)
}

fn mutants(round: u64, seed: u64) -> Step {
    let [seed, count] = [seed.to_string(), MUTANTS.to_string()];
    let minutes = MUTANTS_MINUTES.to_string();
    let words = ["xtask", "mutants", "--seed", &seed, "--count", &count, "--minutes", &minutes];
    Step::new(format!("round {round}: mutants"), &words)
}

fn on_kernel(isa: Isa, seed: u64) -> [Step; 3] {
    let tests = |program| {
        let name = format!("{program} on {}", isa.name());
        Step::new(name, &["xtask", "kernel-tests", "--arch", isa.name(), program])
    };
    let mut words = vec!["xtask", "selftests", "--arch", isa.name(), "--kernel", "quire"];
    words.extend(SELFTESTS);
    [
        tests("abuse").with("QUIRE_ABUSE_SECONDS", ABUSE_SECONDS).with("QUIRE_ABUSE_SEED", seed),
        tests("stress").with("QUIRE_STRESS_SECONDS", STRESS_SECONDS),
        Step::new(format!("selftests on {}", isa.name()), &words),
    ]
}

impl Step {
    fn new(name: String, words: &[&str]) -> Self {
        let words = words.iter().map(|&word| word.to_owned()).collect();
        Self { name, words, settings: Vec::new() }
    }

    fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.settings.push((name, value.to_string()));
        self
    }

    fn command(&self) -> Command {
        let mut cargo = Command::new("cargo");
        cargo.args(&self.words);
        cargo.envs(self.settings.iter().map(|(name, value)| (name, value)));
        cargo
    }

    /// The line to type to run it.
    fn line(&self) -> String {
        let quoted =
            |value: &String| if value.contains(' ') { format!("'{value}'") } else { value.clone() };
        let settings =
            self.settings.iter().map(|(name, value)| format!("{name}={} ", quoted(value)));
        settings.chain([format!("cargo {}", self.words.join(" "))]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{STRESS_TIMES, steps};

    #[test]
    fn each_round_has_a_seed_of_its_own() {
        let all = steps(2, 7, "/b".as_ref());
        let lines: Vec<String> = all.iter().map(super::Step::line).collect();
        let of = |seed: &str| {
            let words = format!("PROPTEST_RNG_SEED={seed} PROPTEST_CASES=");
            lines.iter().filter(|line| line.starts_with(&words)).count()
        };
        assert_eq!([of("7"), of("8"), of("9")], [1, 1, 0]);
        let again = all.iter().filter(|step| step.name.starts_with("round 2: stress"));
        assert_eq!(again.count(), STRESS_TIMES as usize);
    }

    #[test]
    fn the_line_that_repeats_a_failure_has_its_seed() {
        let all = steps(0, 5, "/b".as_ref());
        let abuse = all.iter().find(|step| step.name.starts_with("abuse on x86")).unwrap();
        let line = "QUIRE_ABUSE_SECONDS=120 QUIRE_ABUSE_SEED=5 \
                    cargo xtask kernel-tests --arch x86_64 abuse";
        assert_eq!(abuse.line(), line);
        let envs: Vec<_> = abuse.command().get_envs().map(|(name, _)| name.to_owned()).collect();
        assert_eq!(envs, ["QUIRE_ABUSE_SECONDS", "QUIRE_ABUSE_SEED"]);
    }

    #[test]
    fn the_simulator_looks_in_each_round_at_seeds_of_its_own() {
        let all = steps(2, 3, "/b".as_ref());
        let lines =
            all.iter().filter(|step| step.name.ends_with("simulator")).map(super::Step::line);
        let lines: Vec<String> = lines.collect();
        let line = "cargo run --profile sim --package quire-cli -- sim --swarm 10 --seed ";
        assert_eq!(lines, [format!("{line}3000000"), format!("{line}4000000")]);
    }

    #[test]
    fn the_schedules_of_each_round_are_others_and_are_built_apart() {
        let all = steps(1, 3, "/b".as_ref());
        let step = all.iter().find(|step| step.name.ends_with("schedules")).unwrap();
        let settings = "RUSTFLAGS='--cfg=shuttle -Cdebug-assertions' SHUTTLE_RANDOM_SEED=3 ";
        let line = step.line();
        assert!(line.starts_with(settings), "{line}");
        assert!(line.ends_with("--test shuttle --target-dir /b/shuttle"), "{line}");
    }

    #[test]
    fn each_round_draws_slips_of_its_own() {
        let lines: Vec<String> = steps(2, 3, "/b".as_ref())
            .iter()
            .filter(|step| step.name.ends_with("mutants"))
            .map(super::Step::line)
            .collect();
        let line = |seed| format!("cargo xtask mutants --seed {seed} --count 60 --minutes 60");
        assert_eq!(lines, [line(3), line(4)]);
    }

    #[test]
    fn the_canary_is_built_apart() {
        let line = super::canary("/b".as_ref()).line();
        assert!(line.starts_with("RUSTFLAGS=--cfg=quire_canary cargo test "), "{line}");
        assert!(line.contains(" --target-dir /b/canary "), "{line}");
    }

    #[test]
    fn each_isa_has_its_turn_after_the_rounds() {
        let names: Vec<String> =
            steps(1, 1, "/b".as_ref()).into_iter().map(|step| step.name).collect();
        assert!(names[0].starts_with("round 1"));
        for isa in ["x86_64", "aarch64"] {
            for program in ["abuse", "stress", "selftests"] {
                assert!(names.contains(&format!("{program} on {isa}")), "{program} {isa}");
            }
        }
    }
}
