//! Swap beside a naive model that knows nothing of it: processes that write, read, fork, move and
//! protect pages, while their folios are paged out and come back, and disks and memory fail. Every
//! page holds what was written last, and the walkers find nothing.

mod apply;
mod ops;
mod scene;

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use quire_arch::{Arch, Arm4k, Arm16k, Sv39, X86_64};
use quire_machine::Config;
use quire_sim::disk::Disk;
use quire_sim::system;

use ops::{Op, Stretch, op};
use scene::{Live, Naive, Scene};

fn play<A: Arch>(config: Config, frames: usize, sizes: &[u8], ops: &[Op]) {
    let mut ram = system::ram(frames << A::PAGE_SHIFT).unwrap();
    system::with::<A, _>(config, &mut ram, |machine, mm| {
        let free = mm.phys().free_frames();
        let mut scene = Scene {
            mm,
            cpu: machine.cpu(0),
            disk: Disk::new(),
            swap: None,
            lives: Vec::new(),
            pins: Vec::new(),
            bad: BTreeMap::new(),
            next_stamp: 0,
            next_asid: 0,
            failing: false,
        };
        let space = scene.space().unwrap();
        scene.lives.push(Live { space, naive: Naive::default() });
        sizes.iter().for_each(|&order| scene.apply(&Op::Size(order, true)));
        scene.apply(&Op::SwapOn(1));
        scene.apply(&Op::Map(0, Stretch { from: 0, pages: 700 }));
        for op in ops {
            scene.apply(op);
            scene.check();
        }
        machine.audit().unwrap();
        scene.finish(free);
    })
    .unwrap();
}

fn holds<A: Arch>(config: Config, frames: usize) {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    let cases = Cases { cases: cases.unwrap_or(48), failure_persistence: None, ..Cases::default() };
    let ops = proptest::collection::vec(op(), 1..60);
    let block = A::block_order().get();
    let sizes = prop_oneof![
        Just(vec![]),
        Just(vec![4]),
        Just(vec![9]),
        Just(vec![2, 4, 7]),
        Just(vec![4, block])
    ];
    let outcome = TestRunner::new(cases).run(&(sizes, ops), |(sizes, ops)| {
        play::<A>(config, frames, &sizes, &ops);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{}: {error}", A::NAME);
    }
}

#[test]
fn d3_x86_64_pages_that_went_out_come_back_as_they_were() {
    holds::<X86_64>(Config::x86_64(), 16384);
}

#[test]
fn d3_arm64_pages_that_went_out_come_back_as_they_were() {
    holds::<Arm4k>(Config::arm64_4k(), 16384);
}

#[test]
fn d3_arm64_16k_pages_that_went_out_come_back_as_they_were() {
    holds::<Arm16k>(Config::arm64_16k(), 16384);
}

#[test]
fn d3_riscv64_pages_that_went_out_come_back_as_they_were() {
    holds::<Sv39>(Config::riscv64_sv39(), 16384);
}
