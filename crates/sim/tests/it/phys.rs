//! `quire::phys` beside the naive model, and several threads at it at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proptest::prelude::*;
use quire::inject::{Fragment, Phys, fragment};
use quire::phys::{CpuCache, Slot, Zone};
use quire_hw::{DirectMap, FrameRun};
use quire_sim::phys::{Beside, Op, ops};
use quire_units::{CpuId, FrameSpan, Order, Pfn};

const PAGE_SHIFT: u32 = 12;

/// Runs `test` on memory that begins at frame `first`, of which these zones are added.
fn on<R>(
    (first, count): (u64, u64),
    zones: &[FrameSpan],
    cpus: usize,
    zeroed: bool,
    test: impl FnOnce(&Phys<'_>) -> R,
) -> R {
    let page = 1usize << PAGE_SHIFT;
    let mut memory = vec![0; (count as usize + 1) << PAGE_SHIFT];
    let skip = memory.as_ptr().align_offset(page);
    let aligned = &mut memory[skip..skip + ((count as usize) << PAGE_SHIFT)];
    let (_, run) = DirectMap::new_zeroed(aligned, Pfn::new(first), PAGE_SHIFT).expect("aligned");
    let mut slots: Vec<Slot> = (0..count).map(|_| Slot::default()).collect();
    let mut caches: Vec<CpuCache> = (0..cpus).map(|_| CpuCache::new()).collect();
    let mut lent: Vec<Zone> = zones.iter().copied().map(Zone::new).collect();
    let phys = Phys::new(Pfn::new(first), &mut slots, &mut caches, &mut lent).expect("sound");
    let mut rest = if zeroed { run } else { run.dirtied() };
    for zone in zones {
        let before = zone.start.offset_from(rest.start());
        let (hole, more) = rest.split_at(before);
        assert!(hole.count() == 0 || phys.add(hole).is_err(), "holes are in no zone");
        let (zone, more) = more.split_at(zone.count);
        phys.add(zone).expect("the zone is RAM");
        rest = more;
    }
    test(&phys)
}

fn span(start: u64, count: u64) -> FrameSpan {
    FrameSpan::new(Pfn::new(start), count)
}

fn beside(memory: (u64, u64), zones: &[FrameSpan], ops: &[Op]) -> Result<(), String> {
    on(memory, zones, 3, true, |phys| {
        let mut beside = Beside::new(phys, zones);
        for (at, op) in ops.iter().enumerate() {
            beside.step(op).map_err(|what| format!("step {at}, {op:?}: {what}"))?;
        }
        beside.finish()
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn e1_one_zone_agrees_with_the_naive_model(ops in ops(3, 150)) {
        let zone = span(0, 1024);
        prop_assert_eq!(beside((0, 1024), &[zone], &ops), Ok(()));
    }

    #[test]
    fn e1_ragged_zones_agree_with_the_naive_model(ops in ops(3, 150)) {
        let zones = [span(77, 123), span(200, 601), span(900, 300)];
        prop_assert_eq!(beside((70, 1200), &zones, &ops), Ok(()));
    }

    #[test]
    fn e1_scarce_memory_agrees_with_the_naive_model(ops in ops(4, 150)) {
        let zones = [span(5, 60), span(65, 40)];
        prop_assert_eq!(beside((0, 128), &zones, &ops), Ok(()));
    }

    #[test]
    fn e1_fragmentation_of_any_state_is_undone(ops in ops(2, 40), order in 0..11u8, n in 0..9u64) {
        let zone = span(3, 2000);
        let outcome = on((0, 2048), &[zone], 2, false, |phys| {
            let mut beside = Beside::new(phys, &[zone]);
            ops.iter().try_for_each(|op| beside.step(op))?;
            let target = Fragment::FreeAtOrder { order: Order::new(order), blocks: n };
            let pieces = fragment(phys, target, 42);
            let blocks = phys.free_by_order();
            let larger = blocks[order as usize + 1..].iter().sum::<u64>();
            if larger > 0 || blocks[order as usize] > n {
                return Err(format!("{blocks:?}"));
            }
            phys.check().map_err(|violation| violation.to_string())?;
            pieces.release();
            beside.step(&Op::Drain)?;
            beside.finish()
        });
        prop_assert_eq!(outcome, Ok(()));
    }
}

/// Marks frames that have an owner, and so notices one that is given to two.
struct Owners(Vec<AtomicBool>);

impl Owners {
    fn set(&self, run: &FrameRun, owned: bool) {
        for frame in run.start().get()..run.span().end().get() {
            let was = self.0[frame as usize].swap(owned, Ordering::Relaxed);
            assert_ne!(was, owned, "frame {frame:#x} has two owners");
        }
    }
}

/// Takes and gives back at random, holding up to `most` frames.
fn churn(phys: &Phys<'_>, owners: &Owners, cpu: usize, steps: u64, most: u64) {
    let cpu = CpuId::new(cpu);
    let mut state = cpu.index() as u64 + 1;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    let mut held: Vec<FrameRun> = Vec::new();
    for _ in 0..steps {
        let frames: u64 = held.iter().map(FrameRun::count).sum();
        if frames < most && random(2) == 0 {
            let order = Order::new(random(6) as u8);
            let run = match random(20) {
                0 => phys.take_exact(span(random(1000), 1 + random(30))).ok(),
                1 => phys.alloc_run(cpu, order, 1 + random(9)),
                2 => phys.try_alloc(cpu, order),
                _ => phys.alloc(cpu, order),
            };
            run.iter().for_each(|run| owners.set(run, true));
            held.extend(run);
        } else if !held.is_empty() {
            let run = held.swap_remove(random(held.len() as u64) as usize);
            let cut = random(run.count() + 1);
            let (part, rest) = run.split_at(cut);
            owners.set(&part, false);
            phys.free(cpu, part);
            held.extend(Some(rest).filter(|rest| rest.count() > 0));
        }
        if random(500) == 0 {
            phys.drain();
        }
    }
    for run in held {
        owners.set(&run, false);
        phys.free(cpu, run);
    }
}

/// `threads` at once, on `caches` caches, with memory for all that they want, or too little.
fn stress(threads: usize, caches: usize, most: u64) {
    let zones = [span(0, 300), span(300, 724)];
    on((0, 1024), &zones, caches, false, |phys| {
        let owners = Owners((0..1024).map(|_| AtomicBool::new(false)).collect());
        let done = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for cpu in 0..threads {
                let (owners, done) = (&owners, &done);
                scope.spawn(move || {
                    churn(phys, owners, cpu % caches, 40_000, most);
                    done.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        assert_eq!(done.into_inner(), threads as u64);
        assert_eq!(phys.check().map(|totals| totals.taken), Ok(0));
        phys.drain();
        let ragged = phys.free_by_order().iter().sum::<u64>();
        let fewest = zones.iter().map(|zone| zone.blocks(Order::new(18)).count() as u64);
        assert_eq!(ragged, fewest.sum(), "all has merged");
    });
}

#[test]
fn e1_two_threads_never_own_one_frame() {
    stress(2, 2, 200);
}

#[test]
fn e1_four_threads_never_own_one_frame() {
    stress(4, 4, 150);
}

#[test]
fn e1_threads_that_want_more_than_there_is_drain_each_other() {
    stress(4, 4, 800);
}

#[test]
fn e1_threads_may_share_a_cache() {
    stress(3, 1, 200);
}
