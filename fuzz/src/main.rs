//! `quire-fuzz SECONDS [SEED [TARGET...]]`: the driver runs the targets, one after the other.
//! `quire-fuzz again TARGET FILE`: runs one input.

use std::process::ExitCode;
use std::time::Duration;

use quire_fuzz::{TARGETS, driver};

const USAGE: &str = "quire-fuzz SECONDS [SEED [TARGET...]] | quire-fuzz again TARGET FILE";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["again", target, file] => again(target, file),
        [seconds, ref rest @ ..] => match (seconds.parse(), seed(rest)) {
            (Ok(seconds), Some((seed, names))) => all(Duration::from_secs(seconds), seed, names),
            _ => usage(),
        },
        [] => usage(),
    }
}

/// The seed, 1 by default, and the targets.
fn seed<'a, 'w>(words: &'a [&'w str]) -> Option<(u64, &'a [&'w str])> {
    let Some((first, names)) = words.split_first() else { return Some((1, words)) };
    let seed = first.parse().ok()?;
    let is_known = |name: &&str| TARGETS.iter().any(|target| target.name == *name);
    names.iter().all(is_known).then_some((seed, names))
}

fn usage() -> ExitCode {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    eprintln!("{USAGE}\ntargets: {}", names.join(", "));
    ExitCode::from(2)
}

/// Each target gets its share of the time.
fn all(time: Duration, seed: u64, names: &[&str]) -> ExitCode {
    let is_meant = |name: &str| names.is_empty() || names.contains(&name);
    let meant: Vec<_> = TARGETS.iter().filter(|target| is_meant(target.name)).collect();
    let mut failures = 0;
    for target in &meant {
        let outcome = driver::fuzz(target, time / meant.len() as u32, seed);
        println!("{:<10} {:>9} inputs", target.name, outcome.runs);
        if let Some(input) = outcome.failed {
            failures += 1;
            keep(target.name, &input);
        }
    }
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Saves the input that made a target fail.
fn keep(name: &str, input: &[u8]) {
    let file = std::env::temp_dir().join(format!("quire-fuzz-{name}-{}", std::process::id()));
    match std::fs::write(&file, input) {
        Ok(()) => println!("FAILED: quire-fuzz again {name} {}", file.display()),
        Err(error) => println!("FAILED, and the input cannot be kept ({error}): {input:02x?}"),
    }
}

fn again(name: &str, file: &str) -> ExitCode {
    match std::fs::read(file) {
        Ok(bytes) if TARGETS.iter().any(|target| target.name == name) => {
            quire_fuzz::run(name, &bytes);
            ExitCode::SUCCESS
        }
        Ok(_) => usage(),
        Err(error) => {
            eprintln!("{file}: {error}");
            ExitCode::FAILURE
        }
    }
}
