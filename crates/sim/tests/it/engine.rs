//! The whole memory manager beside the naive model, on every page-table format and on machines
//! that differ in what their hardware does by itself.

use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestCaseError, TestRunner};
use quire::space::AreaFlags;
use quire_arch::{Arch, Arm4k, Arm16k, Arm64k, Sv39, Sv48, Sv57, X86_64, X86_64La57};
use quire_hw::Transitions;
use quire_machine::{Config, Ram};
use quire_sim::beside::Beside;
use quire_sim::script::{Field, Op, Pages, Place, STEPS, Step, Stretch, script};
use quire_sim::system;
use quire_units::{Access, Prot, Vpn};

/// How many steps a script has at most.
const LENGTH: usize = 40;

/// How many spaces there are.
const SPACES: usize = 2;

/// The window lies across a boundary of the tables above the last, and a bit beyond a block's.
fn field<A: Arch>(step_pages: u64) -> Field {
    let block = A::block_order().pages();
    let boundary = block << A::LEVELS[1].index_bits;
    let base = (boundary - (STEPS / 2 * step_pages).next_multiple_of(block)) % A::USER_PAGES;
    Field { base: Vpn::new(base.max(block)), step_pages }
}

/// Leaves something in every page, so that none is known to be zero.
fn soil(ram: &mut Ram) {
    for page in ram.bytes_mut().chunks_exact_mut(4096) {
        page[0] = 0xa5;
        page[2048] = 0xa5;
        page[4088..].fill(0xa5);
    }
}

fn run<A: Arch>(config: Config, field: Field, ram: &mut Ram, steps: &[Step]) -> Result<(), String> {
    system::with::<A, _>(config, ram, |_, mm| {
        let mut beside =
            Beside::new(mm, field, SPACES).map_err(|error| format!("no spaces: {error}"))?;
        for (at, step) in steps.iter().enumerate() {
            beside.step(step).map_err(|what| format!("step {at}, {step:?}: {what}"))?;
        }
        beside.finish()
    })
    .map_err(|error| error.to_string())?
}

/// How many scripts each machine runs: `PROPTEST_CASES`, or a few.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(192)
}

fn agrees<A: Arch>(config: Config, step_pages: u64, ram_frames: usize) {
    let field = field::<A>(step_pages);
    let cases = Cases { cases: cases(), failure_persistence: None, ..Cases::default() };
    let input = (any::<bool>(), script(SPACES, LENGTH));
    let outcome = TestRunner::new(cases).run(&input, |(soiled, steps)| {
        let mut ram = system::ram(ram_frames << A::PAGE_SHIFT).map_err(fail)?;
        if soiled {
            soil(&mut ram);
        }
        run::<A>(config, field, &mut ram, &steps).map_err(TestCaseError::fail)
    });
    if let Err(error) = outcome {
        panic!("{}: {error}", A::NAME);
    }
}

fn fail(error: impl std::fmt::Display) -> TestCaseError {
    TestCaseError::fail(error.to_string())
}

/// The hardware sets neither accessed nor dirty bits, and caches denials.
fn software_flags(config: Config) -> Config {
    Config { sets_accessed: false, sets_dirty: false, rewalks_on_denial: false, ..config }
}

#[test]
fn e3_x86_64_agrees_with_the_naive_model() {
    agrees::<X86_64>(Config::x86_64(), 64, 4096);
}

#[test]
fn e3_x86_64_with_five_levels_agrees_with_the_naive_model() {
    agrees::<X86_64La57>(Config::x86_64_la57(), 64, 4096);
}

#[test]
fn e3_arm64_4k_agrees_with_the_naive_model() {
    agrees::<Arm4k>(Config::arm64_4k(), 64, 4096);
}

#[test]
fn e3_arm64_4k_with_software_flags_agrees_with_the_naive_model() {
    agrees::<Arm4k>(software_flags(Config::arm64_4k()), 64, 4096);
}

#[test]
fn e3_arm64_4k_that_may_resize_agrees_with_the_naive_model() {
    let config = Config { transitions: Transitions::BbmLevel2, ..Config::arm64_4k() };
    agrees::<Arm4k>(config, 64, 4096);
}

#[test]
fn e3_arm64_16k_agrees_with_the_naive_model() {
    agrees::<Arm16k>(Config::arm64_16k(), 128, 5000);
}

#[test]
fn e3_arm64_64k_agrees_with_the_naive_model() {
    agrees::<Arm64k>(Config::arm64_64k(), 32, 1500);
}

#[test]
fn e3_riscv64_sv39_agrees_with_the_naive_model() {
    agrees::<Sv39>(Config::riscv64_sv39(), 64, 4096);
}

#[test]
fn e3_riscv64_sv48_with_software_flags_agrees_with_the_naive_model() {
    agrees::<Sv48>(software_flags(Config::riscv64_sv48()), 64, 4096);
}

#[test]
fn e3_riscv64_sv57_agrees_with_the_naive_model() {
    agrees::<Sv57>(Config::riscv64_sv57(), 64, 4096);
}

/// Rights are granted without a flush; the CPU may go on denying by a cached entry, and the fault
/// that follows must flush it.
fn granted_late<A: Arch>(config: Config) {
    let field = field::<A>(64);
    let few = Pages { steps: 0, pages: 3 };
    let stretch = Stretch { from: Pages { steps: 1, pages: 0 }, len: few };
    let map = Op::Map {
        stretch,
        place: Place::Fixed,
        prot: Prot::READ,
        most: Prot::all(),
        flags: AreaFlags::empty(),
    };
    let touch = |access| Op::Touch { stretch, apart: 1, access };
    let ops = [
        map,
        touch(Access::Read),
        Op::Protect(stretch, Prot::RW),
        touch(Access::Write),
        Op::Protect(stretch, Prot::READ),
        Op::Protect(stretch, Prot::all()),
        touch(Access::Execute),
    ];
    let steps: Vec<_> = ops.into_iter().map(|op| Step { space: 0, op, fails: 0 }).collect();
    let mut ram = system::ram(1024 << A::PAGE_SHIFT).unwrap();
    run::<A>(config, field, &mut ram, &steps).unwrap();
}

#[test]
fn e3_a_right_that_was_granted_arrives_where_the_cpu_still_denies_it() {
    granted_late::<Arm4k>(software_flags(Config::arm64_4k()));
    granted_late::<Arm16k>(software_flags(Config::arm64_16k()));
    granted_late::<Sv48>(software_flags(Config::riscv64_sv48()));
    granted_late::<X86_64>(Config::x86_64());
}
