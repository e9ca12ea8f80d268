//! Fuzzing, sanitizers and Miri: they look deeper than tests, where the machine has the tools.
//!
//! ```text
//!   fuzz                any bytes for each target of fuzz/, by a driver of our own
//!   sanitize address    the hosted suites, each access of theirs checked by AddressSanitizer
//!   sanitize thread     the hosted suites and the standard library, races found by ThreadSanitizer
//!   miri                the crates without an operating system, interpreted
//! ```
//!
//! None of it is part of `ci`: a sanitizer needs a compiler that takes `-Z`, and all need time. But
//! the tests of `fuzz/` are, which give each target a few inputs of a fixed seed.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;

use crate::setup::{self, Sanitized};
use crate::steps::{Missing, Steps, build_dir};

/// The suites that run under a sanitizer: all that is hosted, but not what starts other programs.
const SUITES: [&str; 7] = [
    "quire-units",
    "quire-arch",
    "quire-hw",
    "quire-mm",
    "quire-machine",
    "quire-linux",
    "quire-sim",
];

/// The crates that Miri interprets: those with `unsafe`, without the tests that would take hours.
const INTERPRETED: [&str; 4] = ["quire-units", "quire-arch", "quire-hw", "quire-mm"];

/// How many scripts each property test draws under a sanitizer, and under Miri.
const CASES: &str = "8";
const CASES_INTERPRETED: &str = "2";

/// A sanitizer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Sanitizer {
    /// Accesses outside of allocations, and after they were freed.
    Address,
    /// Data races.
    Thread,
}

impl Sanitizer {
    /// As the compiler calls it.
    const fn name(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Thread => "thread",
        }
    }
}

/// Gives bytes of `seed` to the targets of `fuzz/` that are named, or all, for `seconds`; returns
/// whether all survived.
pub fn fuzz(root: &Path, seconds: u64, seed: u64, targets: &[String]) -> bool {
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--quiet", "--profile", "fuzz", "--package", "quire-fuzz"]);
    cargo.args(["--bin", "quire-fuzz", "--"]).arg(seconds.to_string()).arg(seed.to_string());
    cargo.args(targets).current_dir(root);
    match cargo.status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("`cargo` could not be started: {error}.");
            false
        }
    }
}

/// Runs the hosted suites, or those named, under `sanitizer`; returns whether it found nothing.
/// Where no compiler can do it, one sentence says why it was skipped.
pub fn sanitize(root: &Path, sanitizer: Sanitizer, packages: &[String]) -> bool {
    let mut steps = Steps::new(root, Duration::MAX);
    let name = format!("sanitize {}", sanitizer.name());
    match setup::sanitized(root, sanitizer == Sanitizer::Thread) {
        Ok(compiler) => {
            steps.run(&name, suites(root, sanitizer, &compiler, packages));
        }
        Err(missing) => steps.skip(&name, &missing),
    }
    steps.finish()
}

fn suites(root: &Path, sanitizer: Sanitizer, compiler: &Sanitized, packages: &[String]) -> Command {
    let mut cargo = compiler.cargo();
    cargo.args(["test", "--no-fail-fast", "--target", &compiler.host, "--lib", "--tests"]);
    if compiler.builds_std {
        cargo.arg("-Zbuild-std");
    }
    let usual = SUITES.map(str::to_owned);
    let packages = if packages.is_empty() { &usual[..] } else { packages };
    packages.iter().for_each(|package| {
        cargo.args(["--package", package]);
    });
    cargo.env("RUSTFLAGS", format!("-Zsanitizer={}", sanitizer.name()));
    // Pools that are leaked on purpose live as long as the test's process.
    cargo.env("ASAN_OPTIONS", "detect_leaks=0");
    cargo.env("PROPTEST_CASES", CASES).env("PROPTEST_RNG_SEED", "1");
    cargo.env("CARGO_TARGET_DIR", build_dir(root).join(sanitizer.name()));
    cargo
}

/// Runs the library's own tests in Miri; returns whether it found nothing. Where there is no Miri,
/// one sentence says so.
pub fn miri(root: &Path) -> bool {
    let mut steps = Steps::new(root, Duration::MAX);
    match setup::interpreter() {
        Ok(toolchain) => {
            let mut cargo = Command::new("cargo");
            cargo.args(&toolchain).args(["miri", "test", "--lib"]);
            INTERPRETED.iter().for_each(|package| {
                cargo.args(["--package", package]);
            });
            cargo.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
            // Scripts are drawn from a seed, and failures are not written down.
            cargo.env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-permissive-provenance");
            cargo.env("PROPTEST_CASES", CASES_INTERPRETED).env("PROPTEST_RNG_SEED", "1");
            cargo.env("CARGO_TARGET_DIR", build_dir(root).join("miri"));
            steps.run("miri", cargo);
        }
        Err(missing) => steps.skip("miri", &missing),
    }
    steps.finish()
}

/// A missing tool; no installation of it was tried.
pub(crate) fn lacking(sentence: impl Into<String>) -> Missing {
    Missing { sentence: sentence.into(), fails: false }
}
