//! Exact worlds of the simulator: scripts out of seeds, each beside the model, and shortened where
//! one finds something.

use quire_sim::whole::{Failure, Format, Found, Options, Report, Script, Setup, Step, run, shrink};

/// How many scripts may be tried to shorten one.
const TRIES: u64 = 400;

/// A world of one CPU that is compared after each step.
pub(crate) fn setup(format: Format, window: u32, frames: u32) -> Setup {
    let base = Setup { cpus: 1, pages: 1, slots: 0, every: 1 << 19, ..Setup::new(format) };
    Setup { window, frames, exact: 1, ..base }
}

/// Runs `few` scripts, or as many as `PROPTEST_CASES` says; `PROPTEST_RNG_SEED` says which.
pub(crate) fn agrees(few: u64, script: impl Fn(u64) -> Script) {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let cases = number("PROPTEST_CASES").unwrap_or(few);
    let first = number("PROPTEST_RNG_SEED").unwrap_or(0).wrapping_mul(1 << 32);
    for seed in first..first + cases {
        let script = script(seed);
        if let Err(violation) = run(&script, Options::default()).map_err(violation) {
            let shortest = shrink(Found { script, violation }, TRIES, 0);
            panic!("seed {seed}: {}\n{}", shortest.violation, shortest.script);
        }
    }
}

fn violation(failure: Failure) -> quire_sim::whole::Violation {
    match failure {
        Failure::Violation(violation) => violation,
        failure => panic!("{failure}"),
    }
}

/// The steps of a text, one in each line: verb and arguments.
pub(crate) fn steps(text: &str) -> Vec<Step> {
    let step = |line: &str| format!("0 0 {line}").parse().expect("it is a step");
    text.lines().map(step).collect()
}

/// Runs a text's steps.
pub(crate) fn run_text(setup: Setup, text: &str) -> Report {
    let script = Script { setup, steps: steps(text) };
    run(&script, Options::default()).unwrap_or_else(|failure| panic!("{failure}\n{script}"))
}
