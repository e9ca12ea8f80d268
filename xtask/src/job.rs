//! The main job: the benches with modest defaults, then the report. `make run` runs this.

use std::path::Path;
use std::process::Command;

use crate::steps::build_dir;

/// What is run, in this order; the last one ends in the report's path.
const PARTS: [&[&str]; 6] = [
    &["bench", "clear"],
    &["bench", "fault"],
    &["bench", "fork"],
    &["bench", "zap"],
    &["bench", "protect"],
    &["report"],
];

/// Builds the command `quire` and runs it; returns whether all parts succeeded.
pub fn run(root: &Path) -> bool {
    println!("Building quire; the first time takes a minute.");
    let mut build = Command::new("cargo");
    build.args(["build", "--quiet", "--release", "--package", "quire-cli"]).current_dir(root);
    if !succeeds(build, "cargo build") {
        return false;
    }
    let quire = build_dir(root).join("release/quire");
    PARTS.iter().all(|words| {
        let mut part = Command::new(&quire);
        part.args(*words).current_dir(root);
        println!();
        succeeds(part, &format!("quire {}", words.join(" ")))
    })
}

fn succeeds(mut command: Command, name: &str) -> bool {
    match command.status() {
        Ok(status) if status.success() => true,
        Ok(status) => {
            eprintln!("`{name}` failed ({status}).");
            false
        }
        Err(error) => {
            eprintln!("`{name}` could not be started: {error}.");
            false
        }
    }
}
