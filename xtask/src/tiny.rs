//! `cargo xtask tiny`: builds the example kernel and boots it on CPUs of each kind.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::guest::Isa;
use crate::setup;
use crate::steps::{Missing, build_dir};

/// Where it is, a workspace of its own.
pub const DIR: &str = "examples/tiny";

/// The CPUs, as QEMU names them: without contiguous entries, with them, and with all there is.
const CPUS: [&str; 3] = ["rv64", "rv64,svnapot=on", "max"];

/// How long one boot may take; it takes about a second.
const MOST: Duration = Duration::from_secs(120);

/// Its last line, if all that it shows is right. The firmware's end of the machine has no status.
const GOOD: &str = "tiny: all is well";

/// Builds and boots it; returns whether it ended well on all CPUs.
///
/// # Errors
/// There is no compiler or no emulator, or it does not compile.
pub fn run(root: &Path) -> Result<bool, Missing> {
    let (program, packages) = Isa::Riscv64.emulator();
    setup::system_emulator(program, packages)?;
    let kernel = build(root)?;
    let mut good = true;
    for cpu in CPUS {
        println!("-cpu {cpu}");
        match boot(root, &kernel, cpu) {
            Ok((status, lines)) => {
                // The firmware's words come first.
                let ours = lines.iter().skip_while(|line| !line.starts_with("harts "));
                ours.for_each(|line| println!("  {line}"));
                let ended = lines.last().is_some_and(|line| line == GOOD);
                if !(ended && status.is_some_and(|status| status.success())) {
                    println!("  FAILED: {}", told(status));
                    good = false;
                }
            }
            Err(error) => return Err(Missing { sentence: error, fails: true }),
        }
    }
    Ok(good)
}

fn told(status: Option<ExitStatus>) -> String {
    status.map_or("it did not end".to_owned(), |status| status.to_string())
}

/// Compiles it; its file.
fn build(root: &Path) -> Result<PathBuf, Missing> {
    let (place, target) = (build_dir(root).join("tiny"), Isa::Riscv64.target());
    let mut cargo = setup::bare(root)?.cargo(root);
    cargo.args(["build", "--quiet", "--locked", "--release", "--target", target]);
    // Its own `.cargo/config.toml` says how it is compiled.
    cargo.env("CARGO_TARGET_DIR", &place).env_remove("RUSTFLAGS").current_dir(root.join(DIR));
    let broken = |sentence| Missing { sentence, fails: true };
    match cargo.status() {
        Ok(status) if status.success() => Ok(place.join(target).join("release/quire-tiny")),
        Ok(_) => Err(broken(format!("{DIR} does not compile."))),
        Err(error) => Err(broken(format!("cargo: {error}."))),
    }
}

/// Boots it with two harts; the emulator's exit status, if it ended, and the console's lines.
fn boot(
    root: &Path,
    kernel: &Path,
    cpu: &str,
) -> Result<(Option<ExitStatus>, Vec<String>), String> {
    let (program, _) = Isa::Riscv64.emulator();
    let log = build_dir(root).join("tiny").join("console.txt");
    let console = File::create(&log).map_err(|error| format!("{}: {error}.", log.display()))?;
    let mut command = Command::new(program);
    command.args(["-M", "virt", "-smp", "2", "-m", "64M", "-display", "none", "-no-reboot"]);
    command.args(["-serial", "stdio", "-monitor", "none", "-nic", "none", "-cpu", cpu]);
    command.arg("-kernel").arg(kernel).stdin(Stdio::null()).stdout(console);
    let mut child = command.spawn().map_err(|error| format!("{program}: {error}."))?;
    let start = Instant::now();
    let mut status = None;
    while status.is_none() && start.elapsed() < MOST {
        sleep(Duration::from_millis(20));
        status = child.try_wait().map_err(|error| format!("{program}: {error}."))?;
    }
    if status.is_none() {
        // It may have ended in between; then the signal is not needed.
        let _ = child.kill();
        let _ = child.wait();
    }
    let bytes = fs::read(&log).map_err(|error| format!("{}: {error}.", log.display()))?;
    let text = String::from_utf8_lossy(&bytes);
    Ok((status, text.lines().map(|line| line.trim_end().to_owned()).collect()))
}
