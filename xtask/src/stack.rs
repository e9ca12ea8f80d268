//! `cargo xtask stack`: how much stack each call of the library uses, on each ISA.
//!
//! It builds `benches/stack` for the targets of the kernel. On arm64 and riscv64 an emulated board
//! runs it; on x86-64 it is a program of Linux, and is skipped on other hosts.

use std::path::Path;
use std::process::Command;

use crate::guest::Isa;
use crate::setup;
use crate::steps::{Missing, build_dir};

/// Where it is, a workspace of its own.
pub const DIR: &str = "benches/stack";

/// The code is where it is linked.
const FLAGS: &str = "-Crelocation-model=static -Dwarnings";

/// How many seconds a run may take; it takes about one.
const MOST: &str = "120";

/// Builds and runs it on each ISA; returns whether all calls keep their bounds.
///
/// # Errors
/// There is no compiler or no emulator, or it does not compile.
pub fn run(root: &Path) -> Result<bool, Missing> {
    let mut good = true;
    for isa in Isa::ALL {
        if isa == Isa::X86_64 && std::env::consts::ARCH != isa.name() {
            continue;
        }
        println!("{}, bytes of stack:", isa.name());
        good &= measure(root, isa)?;
    }
    Ok(good)
}

fn measure(root: &Path, isa: Isa) -> Result<bool, Missing> {
    let broken = |sentence| Missing { sentence, fails: true };
    let place = build_dir(root).join("stack");
    let mut cargo = setup::bare(root)?.cargo(root);
    cargo.args(["build", "--quiet", "--locked", "--release", "--target", isa.target()]);
    cargo.env("CARGO_TARGET_DIR", &place).env("RUSTFLAGS", FLAGS).current_dir(root.join(DIR));
    match cargo.status() {
        Ok(status) if status.success() => {}
        Ok(_) => return Err(broken(format!("{DIR} does not compile."))),
        Err(error) => return Err(broken(format!("cargo: {error}."))),
    }
    let program = place.join(isa.target()).join("release/quire-stack");
    // A program that hangs ends, too.
    let mut command = Command::new("timeout");
    command.arg(MOST);
    if isa != Isa::X86_64 {
        let (emulator, packages) = isa.emulator();
        setup::system_emulator(emulator, packages)?;
        command.args([emulator, "-M", "virt", "-m", "256M", "-display", "none", "-no-reboot"]);
        command.args(["-semihosting", "-serial", "none", "-monitor", "none", "-nic", "none"]);
        match isa {
            Isa::Aarch64 => command.args(["-cpu", "cortex-a72"]),
            _ => command.args(["-bios", "none"]),
        };
        command.arg("-kernel");
    }
    let status = command.arg(program).status();
    let status = status.map_err(|error| broken(format!("timeout: {error}.")))?;
    Ok(status.success())
}
