//! The command line of `cargo xtask`: one word that says what to do.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use xtask::{ci, job, setup, tidy};

const USAGE: &str = "\
Usage: cargo xtask COMMAND

  tidy     check the house rules of STYLE.md; one line for each finding
  readme   copy the example's code into README.md
  setup    find the tools that the tests need, install what can be installed
  ci       set up, then run every check (what `make test` does)
  run      set up, then run the benches and write the report (what `make run` does)";

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let command = words.next();
    if let Some(extra) = words.next() {
        return refuse(&format!("xtask takes one command, and `{extra}` is a second one."));
    }
    let root = workspace();
    match command.as_deref() {
        Some("tidy") => check(&root),
        Some("readme") => copy(&root),
        Some("setup") => exit(setup::run(&root)),
        Some("ci") => exit(ci::run(&root)),
        Some("run") => exit(job::run(&root)),
        Some("help" | "-h" | "--help") => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        Some(other) => refuse(&format!("xtask has no command `{other}`.")),
        None => refuse("xtask needs a command."),
    }
}

/// The directory of the workspace: above the one this program was built from.
fn workspace() -> PathBuf {
    let built = std::env::var("CARGO_MANIFEST_DIR");
    let package = built.as_deref().unwrap_or(env!("CARGO_MANIFEST_DIR"));
    Path::new(package).parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

fn refuse(sentence: &str) -> ExitCode {
    eprintln!("{sentence} `cargo xtask help` lists the commands.");
    ExitCode::from(2)
}

fn exit(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn check(root: &Path) -> ExitCode {
    match tidy::check(root) {
        Ok(findings) => {
            for finding in &findings {
                println!("{finding}");
            }
            exit(findings.is_empty())
        }
        Err(error) => refuse(&error),
    }
}

fn copy(root: &Path) -> ExitCode {
    match tidy::write_readme(root) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
