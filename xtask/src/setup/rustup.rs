//! The targets and components that rustup can add to the compiler in use.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::apt::{may_install, output};
use crate::steps::Missing;

/// How long rustup may try before the network counts as missing.
const PATIENCE: Duration = Duration::from_secs(120);

/// Sees to it that cargo has the subcommand `name`, which is rustup's component `package`.
///
/// # Errors
/// Why there is none.
pub fn component(name: &str, package: &str) -> Result<(), Missing> {
    let works = || output("cargo", &[name, "--version"]).is_some();
    if works() || add(&["component", "add", package]) && works() {
        return Ok(());
    }
    let sentence = format!("cargo {name} is missing: `rustup component add {package}` adds it.");
    Err(Missing { sentence, fails: false })
}

/// Sees to it that the compiler in use has `core` for `target`.
pub(super) fn target(target: &str) -> bool {
    has(target) || add(&["target", "add", target]) && has(target)
}

/// Whether the compiler in use has `core` for `target`.
pub(super) fn has(target: &str) -> bool {
    let Some(dir) = output("rustc", &["--print", "target-libdir", "--target", target]) else {
        return false;
    };
    let entries = Path::new(dir.trim()).read_dir().into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("libcore-"))
}

/// Lets rustup add something; `false` if it is not there, fails, or finds no network in time.
fn add(words: &[&str]) -> bool {
    if !may_install() {
        return false;
    }
    let spawned = Command::new("rustup")
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = spawned else { return false };
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => std::thread::sleep(Duration::from_millis(100)),
            Err(_) => return false,
        }
    }
    // It may have ended just now; either way nothing is left running.
    let _ = child.kill();
    let _ = child.wait();
    false
}
