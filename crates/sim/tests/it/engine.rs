//! The whole memory manager beside the exact model, on every page-table format and on machines
//! that differ in what their hardware does by itself.

use quire_sim::Dice;
use quire_sim::whole::{Format, Generator, Script, Setup, Theme};

use crate::exact;

/// How many steps a script has.
const LENGTH: usize = 30;

/// The window has as many grains.
const GRAINS: u32 = 24;

/// Scripts of two processes on machines like that of `setup`.
fn agrees(setup: Setup) {
    exact::agrees(192, |seed| {
        let dice = &mut Dice::new(seed);
        let sizes = dice.pick(&[0, 1 << 4, 1 << 9, 0x1e, 1 << 4 | 1 << 5 | 1 << 7, 0x3fffe]);
        let setup = Setup { sizes, zeroed: dice.roll(2) as u32, ..setup };
        let grain = u64::from(setup.window / GRAINS);
        let steps = Generator::exact(seed, setup.bounds(), Theme::SPACES, grain);
        Script { setup, steps: steps.take(LENGTH).collect() }
    });
}

fn setup(format: Format) -> Setup {
    let (grain, frames) = match format {
        Format::Arm16k => (128, 5000),
        Format::Arm64k => (32, 1500),
        _ => (64, 4096),
    };
    exact::setup(format, GRAINS * grain, frames)
}

/// The hardware sets neither accessed nor dirty bits, and caches denials.
fn software_flags(format: Format) -> Setup {
    Setup { soft: 1, stubborn: 1, ..setup(format) }
}

#[test]
fn e3_x86_64_agrees_with_the_naive_model() {
    agrees(setup(Format::X86_64));
}

#[test]
fn e3_x86_64_with_five_levels_agrees_with_the_naive_model() {
    agrees(setup(Format::X86_64La57));
}

#[test]
fn e3_arm64_4k_agrees_with_the_naive_model() {
    agrees(setup(Format::Arm4k));
}

#[test]
fn e3_arm64_4k_with_software_flags_agrees_with_the_naive_model() {
    agrees(software_flags(Format::Arm4k));
}

#[test]
fn e3_arm64_4k_that_may_resize_agrees_with_the_naive_model() {
    agrees(Setup { resizes: 1, ..setup(Format::Arm4k) });
}

#[test]
fn e3_arm64_4k_without_contiguous_blocks_agrees_with_the_naive_model() {
    agrees(Setup { plain: 1, ..setup(Format::Arm4k) });
}

#[test]
fn e3_arm64_16k_agrees_with_the_naive_model() {
    agrees(setup(Format::Arm16k));
}

#[test]
fn e3_arm64_64k_agrees_with_the_naive_model() {
    agrees(setup(Format::Arm64k));
}

#[test]
fn e3_riscv64_sv39_agrees_with_the_naive_model() {
    agrees(setup(Format::Sv39));
}

#[test]
fn e3_riscv64_sv48_with_software_flags_agrees_with_the_naive_model() {
    agrees(software_flags(Format::Sv48));
}

#[test]
fn e3_riscv64_sv57_agrees_with_the_naive_model() {
    agrees(setup(Format::Sv57));
}

/// Rights are granted without a flush; the CPU may go on denying by a cached entry, and the fault
/// that follows must flush it.
#[test]
fn e3_a_right_that_was_granted_arrives_where_the_cpu_still_denies_it() {
    let steps = "place 64 3 1 0 0 1\nsweep 64 3 0\nregrant 64 3 3\nsweep 64 3 1\nregrant 64 3 1\n\
                 regrant 64 3 7\nfetch 64\nfetch 65\nfetch 66";
    for format in [Format::Arm4k, Format::Arm16k, Format::Sv48] {
        exact::run_text(software_flags(format), steps);
    }
    exact::run_text(setup(Format::X86_64), steps);
}
