//! Fork, writes to what is shared, pins, and all other calls on parent and child alike, beside the
//! exact model: on every page-table format, on CPUs that may change a block's contiguity as they
//! like and on those that may not, on CPUs that note accesses and stores and on those that leave
//! it to software, and on CPUs that join contiguous entries and on those that ignore the hint.
//!
//! The window has six contiguous blocks and the folios are about as large as those, so that blocks
//! are folded, unfolded in part, and folded again all the time.

use quire_sim::Dice;
use quire_sim::whole::{Format, Generator, Script, Setup, Step, Theme};

use crate::exact;

/// How many steps a script has, besides what fills the processes.
const LENGTH: usize = 30;

/// The window has as many quarters of a contiguous block.
const GRAINS: u32 = 24;

/// The order of a contiguous block, or 4 on formats without.
fn block_order(format: Format) -> u32 {
    match format {
        Format::Arm16k => 7,
        Format::Arm64k => 5,
        _ => 4,
    }
}

/// A world of four processes, with room for all their memory and for tables.
fn setup(format: Format) -> Setup {
    let window = GRAINS << block_order(format) >> 2;
    let frames = (5 * window + 600).next_power_of_two();
    Setup { processes: 4, ..exact::setup(format, window, frames) }
}

/// One process has an area, mostly all its memory, and that dirty or clean; others become its
/// children.
fn filled(dice: &mut Dice, setup: &Setup) -> Vec<Step> {
    let (at, pages) = (dice.roll(8), setup.window - 2 * setup.window / GRAINS);
    let mut text = match dice.roll(5) {
        0 => format!("place {at} {pages} 3 0 0 1"),
        1 | 2 => format!("place {at} {pages} 3 0 0 1\npopulate {at} {pages}"),
        // A page is mapped dirty where the area may be written.
        _ => format!("place {at} {pages} 1 0 0 1\npopulate {at} {pages}\nregrant {at} {pages} 3"),
    };
    (0..1 + dice.roll(3)).for_each(|to| text += &format!("\nfork {}", to + 1));
    exact::steps(&text)
}

fn agrees(setup: Setup, few: u64, stream: u64) {
    let order = block_order(setup.format);
    exact::agrees(few, |seed| {
        let seed = seed ^ stream << 24;
        let dice = &mut Dice::new(seed);
        let near = dice.roll(2) << (order - 2) | 1 << (order - 1 + dice.roll(3) as u32);
        let setup = Setup { sizes: 1 << order | near as u32, ..setup };
        let grain = u64::from(setup.window / GRAINS);
        let steps = Generator::exact(seed, setup.bounds(), Theme::FORKS, grain).take(LENGTH);
        Script { setup, steps: filled(dice, &setup).into_iter().chain(steps).collect() }
    });
}

/// All machines of a format that may behave differently.
fn on_every_machine(format: Format, few: u64) {
    let base = setup(format);
    let relaxed = Setup { resizes: 1, ..base };
    let apart = Setup { apart: 1, ..base };
    let late = Setup { apart: 1, stubborn: 1, ..relaxed };
    for (stream, setup) in (0..).step_by(3).zip([base, relaxed, apart, late]) {
        agrees(setup, few, stream);
        agrees(Setup { soft: 1, ..setup }, few, stream + 1);
        agrees(Setup { soft: 2, ..setup }, few.div_ceil(2), stream + 2);
    }
}

#[test]
fn c4_forks_on_x86_64_agree_with_the_naive_model() {
    agrees(setup(Format::X86_64), 200, 1);
    agrees(Setup { stubborn: 1, ..setup(Format::X86_64) }, 80, 2);
}

#[test]
fn c4_forks_on_arm64_4k_agree_with_the_naive_model() {
    on_every_machine(Format::Arm4k, 60);
}

#[test]
fn c4_forks_on_arm64_16k_agree_with_the_naive_model() {
    on_every_machine(Format::Arm16k, 6);
}

#[test]
fn c4_forks_on_arm64_64k_agree_with_the_naive_model() {
    on_every_machine(Format::Arm64k, 16);
}

#[test]
fn c4_forks_on_riscv64_sv39_agree_with_the_naive_model() {
    on_every_machine(Format::Sv39, 50);
}

#[test]
fn c4_forks_on_riscv64_sv48_agree_with_the_naive_model() {
    on_every_machine(Format::Sv48, 20);
}

#[test]
fn c4_forks_on_cpus_without_contiguous_blocks_agree_with_the_naive_model() {
    agrees(Setup { plain: 1, ..setup(Format::Arm64k) }, 16, 12);
    agrees(Setup { plain: 1, ..setup(Format::Sv39) }, 50, 13);
}

#[test]
fn b4_a_block_with_a_pin_on_it_is_said_to_be_pinned() {
    let steps = "size 4 1\nplace 0 32 3 0 0 1\npopulate 0 32\npin 5\ncollapse 0 32 3\n\
                 collapse 0 16 4\nunpin 0\ncollapse 0 32 3";
    for format in [Format::X86_64, Format::Arm4k, Format::Sv39] {
        exact::run_text(setup(format), steps);
    }
}

#[test]
fn i5_a_block_that_is_moved_apart_tells_each_page_what_one_of_them_noted() {
    let steps = "size 4 1\nplace 0 88 1 0 0 1\npopulate 0 88\nregrant 0 88 3\nsweep 32 16 1\n\
                 move 48 16 16 68 0";
    exact::run_text(Setup { apart: 1, ..setup(Format::Sv39) }, steps);
}
