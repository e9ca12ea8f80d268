//! The rooms of the library beside naive models: bytes choose the machine and draw the script.

use std::collections::BTreeMap;
use std::fmt::Debug;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config as Cases, RngAlgorithm, TestRng, TestRunner};
use quire::inject::Phys;
use quire::phys::{CpuCache, Slot, Zone};
use quire_arch::{Arch, Arm4k, Sv39, X86_64};
use quire_hw::DirectMap;
use quire_machine::Config;
use quire_sim::disk::Disk;
use quire_sim::{phys as allocator, system};
use quire_units::{FrameSpan, Pfn};

use crate::ops::{Op, Stretch, op};
use crate::scene::{Live, Naive, Scene};

/// How many steps a script has at most.
const LENGTH: usize = 40;

/// Bytes that one step is drawn from: a changed byte changes one step, and steps can move and
/// vanish.
const STEP_BYTES: usize = 4;

/// The value that `strategy` draws from a step's bytes in place of random ones.
fn one<S: Strategy>(strategy: &S, bytes: &[u8]) -> Option<S::Value> {
    let mut seed = [0; 32];
    seed.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let cases = Cases { failure_persistence: None, ..Cases::default() };
    let mut runner = TestRunner::new_with_rng(cases, rng);
    strategy.new_tree(&mut runner).ok().map(|tree| tree.current())
}

/// The values that `strategy` draws from each step's bytes, one after the other.
fn drawn<T: Debug>(strategy: &impl Strategy<Value = Vec<T>>, bytes: &[u8]) -> Vec<T> {
    let steps = bytes.chunks(STEP_BYTES).take(LENGTH);
    steps.filter_map(|bytes| one(strategy, bytes)).flatten().collect()
}

/// The allocator beside a set of frames.
///
/// # Panics
/// When they disagree, or the walker finds a violation.
pub fn phys(bytes: &[u8]) {
    const FRAMES: u64 = 512;
    const PAGE_SHIFT: u32 = 12;
    // Each step's strategy makes sequences of one.
    let script = drawn(&allocator::ops(3, 2), bytes);
    let page = 1 << PAGE_SHIFT;
    let mut memory = vec![0; (FRAMES as usize + 1) << PAGE_SHIFT];
    let skip = memory.as_ptr().align_offset(page);
    let aligned = &mut memory[skip..skip + ((FRAMES as usize) << PAGE_SHIFT)];
    let (_, run) = DirectMap::new_zeroed(aligned, Pfn::new(0), PAGE_SHIFT).expect("aligned");
    let mut slots: Vec<Slot> = (0..FRAMES).map(|_| Slot::default()).collect();
    let mut caches: Vec<CpuCache> = (0..3).map(|_| CpuCache::new()).collect();
    let zones = [FrameSpan::new(Pfn::new(0), 200), FrameSpan::new(Pfn::new(200), FRAMES - 200)];
    let mut lent = zones.map(Zone::new);
    let phys = Phys::new(Pfn::new(0), &mut slots, &mut caches, &mut lent).expect("sound");
    let (low, high) = run.split_at(zones[0].count);
    phys.add(low).expect("the zone is RAM");
    phys.add(high).expect("the zone is RAM");
    let mut beside = allocator::Beside::new(&phys, &zones);
    for (at, op) in script.iter().enumerate() {
        beside.step(op).unwrap_or_else(|what| panic!("step {at}, {op:?}: {what}"));
    }
    beside.finish().unwrap_or_else(|what| panic!("{what}"));
}

/// The first byte, which chooses a machine, and the others.
fn split(bytes: &[u8]) -> (u8, &[u8]) {
    bytes.split_first().map_or((0, bytes), |(first, rest)| (*first, rest))
}

/// Processes whose folios are paged out to disks that fail, beside a model that ignores paging.
///
/// # Panics
/// When a page's contents differ from the last write, or a walker finds a violation.
pub fn swap(bytes: &[u8]) {
    let (which, rest) = split(bytes);
    let script = drawn(&proptest::collection::vec(op(), 1), rest);
    let sizes: &[u8] = [&[][..], &[4], &[2, 4, 7], &[4, 9]][usize::from(which >> 2 & 3)];
    match which % 3 {
        0 => swapped::<X86_64>(Config::x86_64(), sizes, &script),
        1 => swapped::<Arm4k>(Config::arm64_4k(), sizes, &script),
        _ => swapped::<Sv39>(Config::riscv64_sv39(), sizes, &script),
    }
}

fn swapped<A: Arch>(config: Config, sizes: &[u8], script: &[Op]) {
    let mut ram = system::ram(16384 << A::PAGE_SHIFT).expect("the host has memory");
    let done = system::with::<A, _>(config, &mut ram, |machine, mm| {
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
        let space = scene.space().expect("memory for a root");
        scene.lives.push(Live { space, naive: Naive::default() });
        sizes.iter().for_each(|&order| scene.apply(&Op::Size(order, true)));
        scene.apply(&Op::SwapOn(1));
        scene.apply(&Op::Map(0, Stretch { from: 0, pages: 700 }));
        for op in script {
            scene.apply(op);
            scene.check();
        }
        machine.audit().unwrap_or_else(|violation| panic!("{violation}"));
        scene.finish(free);
    });
    done.expect("there is such a machine");
}
