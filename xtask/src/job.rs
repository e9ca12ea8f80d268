//! The main job: the benches with modest defaults, then the report. `make run` runs this.

use std::path::Path;
use std::process::Command;

use crate::guest::{self, Isa, Order};
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
    let measured = PARTS.iter().all(|words| {
        let mut part = Command::new(&quire);
        part.args(*words).current_dir(root);
        println!();
        succeeds(part, &format!("quire {}", words.join(" ")))
    });
    measured && kernels(root)
}

/// What the kernel runs on each ISA.
const PROGRAMS: [&[&str]; 2] =
    [&["busybox", "uname", "-a"], &["forkbench", "-t", "-m", "16", "-n", "1", "4K", "64K", "2M"]];

/// Boots the kernel for each program; returns whether none of them failed. Where QEMU cannot be
/// had, it says so, and nothing has failed.
fn kernels(root: &Path) -> bool {
    for isa in Isa::ALL {
        for words in PROGRAMS {
            println!("\n{}: {}", isa.name(), words.join(" "));
            match guest::run(root, &order(isa, words)) {
                Ok(0) => {}
                Ok(status) => {
                    eprintln!("`{}` ended with status {status}.", words.join(" "));
                    return false;
                }
                Err(missing) => {
                    println!("{}", missing.sentence);
                    break;
                }
            }
        }
    }
    true
}

fn order(isa: Isa, words: &[&str]) -> Order {
    Order::new(isa, words)
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
