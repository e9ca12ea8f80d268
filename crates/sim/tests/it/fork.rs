//! Fork, writes to what is shared, pins, and all other calls on parent and child alike, beside the
//! naive model: on every page-table format, on CPUs that may change a block's contiguity as they
//! like and on those that may not, on CPUs that note accesses and stores and on those that leave
//! it to software, and on CPUs that join contiguous entries and on those that ignore the hint.
//!
//! The field has six contiguous blocks and the folios are about as large as those, so that blocks
//! are folded, unfolded in part, and folded again all the time.

use proptest::test_runner::{Config as Cases, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use quire::fault::SizePolicy;
use quire::space::AreaFlags;
use quire_arch::{Arch, Arm4k, Arm16k, Arm64k, Level, Sv39, Sv48, X86_64};
use quire_hw::Transitions;
use quire_machine::Config;
use quire_sim::beside::Beside;
use quire_sim::script::{Field, Going, Op, Pages, Place, STEPS, Step, Stretch, forks};
use quire_sim::system;
use quire_units::Vpn;
use quire_units::{Access, Prot};

/// How many steps a script has at most, besides what fills the spaces.
const LENGTH: usize = 30;

/// The order of a contiguous block, or 4 on formats without.
fn block_order<A: Arch>() -> u8 {
    A::fold_order(Level::LAST).map_or(4, |order| order.get())
}

/// Six contiguous blocks about a boundary of the tables above the last.
fn field<A: Arch>() -> Field {
    let step_pages = (1 << block_order::<A>()) / 4;
    let boundary = A::block_order().pages() << A::LEVELS[1].index_bits;
    let middle = boundary.min(A::USER_PAGES / 2);
    Field { base: Vpn::new(middle - STEPS / 2 * step_pages), step_pages }
}

fn run<A: Arch>(config: Config, steps: &[Step]) -> Result<(), String> {
    let mut ram = system::ram(ram_frames::<A>() << A::PAGE_SHIFT).map_err(|e| e.to_string())?;
    system::with::<A, _>(config, &mut ram, |_, mm| {
        let mut beside =
            Beside::new(mm, field::<A>(), 1).map_err(|error| format!("no space: {error}"))?;
        for (at, step) in steps.iter().enumerate() {
            beside.step(step).map_err(|what| format!("step {at}, {step:?}: {what}"))?;
        }
        beside.finish()
    })
    .map_err(|error| error.to_string())?
}

/// Enough for four spaces full of memory of their own, and for tables.
fn ram_frames<A: Arch>() -> usize {
    let field = (STEPS as usize) << block_order::<A>() >> 2;
    (5 * field + 600).next_power_of_two()
}

/// How many scripts each machine runs: `PROPTEST_CASES`, or a few.
fn cases(few: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(few)
}

fn agrees<A: Arch>(config: Config, few: u32, seed: u8) {
    let cases = Cases { cases: cases(few), failure_persistence: None, ..Cases::default() };
    let mut runner = match std::env::var("PROPTEST_CASES") {
        // A run with more cases draws other scripts.
        Ok(_) => TestRunner::new(cases),
        Err(_) => {
            let random = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
            TestRunner::new_with_rng(cases, random)
        }
    };
    let script = forks(1, LENGTH, block_order::<A>());
    let outcome =
        runner.run(&script, |steps| run::<A>(config, &steps).map_err(TestCaseError::fail));
    if let Err(error) = outcome {
        panic!("{} with {config:?}: {error}", A::NAME);
    }
}

/// All machines of a format that may behave differently.
fn on_every_machine<A: Arch>(config: Config, few: u32) {
    let bare = |config| Config { sets_accessed: false, sets_dirty: false, ..config };
    let relaxed = |config| Config { transitions: Transitions::BbmLevel2, ..config };
    let apart = |config| Config { joins_contiguous: false, ..config };
    let late = |config| Config { rewalks_on_denial: false, ..config };
    let machines = [config, relaxed(config), apart(config), late(relaxed(apart(config)))];
    for (seed, config) in (0..).step_by(3).zip(machines) {
        agrees::<A>(config, few, seed);
        agrees::<A>(bare(config), few, seed + 1);
        agrees::<A>(Config { sets_dirty: false, ..config }, few.div_ceil(2), seed + 2);
    }
}

#[test]
fn c4_forks_on_x86_64_agree_with_the_naive_model() {
    agrees::<X86_64>(Config::x86_64(), 200, 1);
    agrees::<X86_64>(Config { rewalks_on_denial: false, ..Config::x86_64() }, 80, 2);
}

#[test]
fn c4_forks_on_arm64_4k_agree_with_the_naive_model() {
    on_every_machine::<Arm4k>(Config::arm64_4k(), 60);
}

#[test]
fn c4_forks_on_arm64_16k_agree_with_the_naive_model() {
    on_every_machine::<Arm16k>(Config::arm64_16k(), 6);
}

#[test]
fn c4_forks_on_arm64_64k_agree_with_the_naive_model() {
    on_every_machine::<Arm64k>(Config::arm64_64k(), 16);
}

#[test]
fn c4_forks_on_riscv64_sv39_agree_with_the_naive_model() {
    on_every_machine::<Sv39>(Config::riscv64_sv39(), 50);
}

#[test]
fn c4_forks_on_riscv64_sv48_agree_with_the_naive_model() {
    on_every_machine::<Sv48>(Config::riscv64_sv48(), 20);
}

#[test]
fn i5_a_block_that_is_moved_apart_tells_each_page_what_one_of_them_noted() {
    let pages = |steps, pages| Pages { steps, pages };
    let stretch = |from, len| Stretch { from, len };
    let all = stretch(pages(0, 0), pages(22, 0));
    let map = Op::Map {
        stretch: all,
        place: Place::Fixed,
        prot: Prot::READ,
        most: Prot::all(),
        flags: AreaFlags::empty(),
    };
    let touched = stretch(pages(8, 0), pages(0, 16));
    let going = Going::To(pages(17, 0));
    let steps = [
        Op::Size(3, SizePolicy::Always),
        map,
        Op::Populate(all),
        Op::Protect(all, Prot::RW),
        Op::Touch { stretch: touched, apart: 1, access: Access::Write },
        Op::Remap { stretch: stretch(pages(11, 4), pages(4, 0)), len: pages(0, 16), going },
    ];
    let steps = steps.map(|op| Step { space: 0, op, fails: 0 });
    let apart = Config { joins_contiguous: false, ..Config::riscv64_sv39() };
    run::<Sv39>(apart, &steps).unwrap();
}
