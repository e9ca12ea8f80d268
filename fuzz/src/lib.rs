//! Targets for fuzzing: each takes any bytes, and panics when it finds a defect.
//!
//! * [`rooms`]: each four bytes are the seed of a step, of the same operations that the property
//!   tests draw, and the script runs beside the naive model.
//! * [`formats`]: bytes are words of page tables, and two decoders compare their meaning.
//! * [`programs`]: bytes are inputs from programs and disks: executables, archives, file systems,
//!   settings.
//! * [`calls`]: bytes are texts that programs write to settings and groups, and arguments of calls.
//! * [`system`]: each few bytes are a step of the simulator of a whole system.
//! * [`driver`]: random and mutated bytes for all of them, where there is no cargo-fuzz.

pub mod calls;
pub mod driver;
pub mod formats;
pub mod programs;
pub mod rooms;
pub mod system;

// The scripts and the model of `quire-sim`'s own swap test.
#[path = "../../crates/sim/tests/it/swap/apply.rs"]
mod apply;
#[path = "../../crates/sim/tests/it/swap/ops.rs"]
mod ops;
#[path = "../../crates/sim/tests/it/swap/scene.rs"]
mod scene;

/// A function that takes any bytes.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// Takes the bytes; panics when it finds a defect.
    pub run: fn(&[u8]),
    /// Valid bytes to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "phys", run: rooms::phys, seeds: Vec::new },
    Target { name: "engine", run: system::engine, seeds: Vec::new },
    Target { name: "fork", run: system::fork, seeds: Vec::new },
    Target { name: "swap", run: rooms::swap, seeds: Vec::new },
    Target { name: "formats", run: formats::words, seeds: formats::seeds },
    Target { name: "elf", run: programs::elf, seeds: programs::executables },
    Target { name: "cpio", run: programs::cpio, seeds: programs::archives },
    Target { name: "words", run: programs::words, seeds: programs::settings },
    Target { name: "settings", run: calls::settings, seeds: calls::texts },
    Target { name: "structures", run: calls::structures, seeds: Vec::new },
    Target { name: "files", run: system::files, seeds: system::stories },
    Target { name: "whole", run: system::whole, seeds: Vec::new },
    Target { name: "ext4", run: programs::ext4, seeds: programs::volumes },
];

/// Gives `bytes` to the target called `name`.
///
/// # Panics
/// When no target has this name, or it finds a defect.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    (target.expect("one of the targets").run)(bytes);
}

#[cfg(test)]
mod tests;
