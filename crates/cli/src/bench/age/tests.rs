//! The bench: its bound beside a naive one, its figures, and short lives.

use quire::limits::GROUP_ORDER;
use quire_arch::X86_64;
use quire_machine::Config;
use quire_sim::system;
use quire_units::{CpuId, Order};

use super::bench::figures;
use super::bound::{emptiable, fewest};
use super::ledger::{Episode, Fault, Ledger, percentile};
use super::life::live;
use super::plan::{Plan, Policy};

const CPU: CpuId = CpuId::new(0);
const BYTES: u64 = 128 << 20;

fn plan(policy: Policy, occupied: u32) -> Plan {
    let wanted = vec![Order::new(4), GROUP_ORDER];
    Plan { policy, bytes: BYTES, occupied, unmovable: 5, days: 2, seed: 7, wanted }
}

/// A ledger of two days; on the second, one of two wanted blocks was had.
fn ledger() -> Ledger {
    let mut ledger = Ledger::default();
    let fault =
        |had: u8, ns, compacted| Fault { wanted: GROUP_ORDER, had: Order::new(had), ns, compacted };
    ledger.begin_day();
    ledger.fault(fault(4, 50.0, false));
    ledger.begin_day();
    ledger.fault(fault(9, 700.0, true));
    ledger.fault(fault(4, 60.0, false));
    ledger.fault(Fault { wanted: Order::ZERO, had: Order::ZERO, ns: 1.0, compacted: false });
    let episode = |made, moved, bound| Episode { order: GROUP_ORDER, made, moved, bound };
    ledger.episode(episode(1, 130, Some(100)));
    ledger.episode(episode(2, 80, Some(80)));
    ledger.episode(episode(0, 40, Some(0)));
    ledger.episode(episode(1, 10, None));
    ledger
}

#[test]
fn e8_the_share_counts_faults_by_the_size_that_they_wanted() {
    let ledger = ledger();
    assert_eq!(ledger.last(1).share(GROUP_ORDER), Some(50.0));
    assert_eq!(ledger.last(7).wanted[9], 3);
    assert_eq!(ledger.last(7).share(Order::new(4)), None, "no fault wanted just that");
    assert_eq!(ledger.large, [50.0, 700.0, 60.0], "base pages are no large folios");
    assert_eq!(ledger.compacting, [700.0]);
}

#[test]
fn e8_moves_are_counted_for_each_block_and_compared_with_the_bound_where_there_is_one() {
    let ledger = ledger();
    assert_eq!(ledger.ratios(), [1.3, 1.0]);
    let figures = figures(&ledger, GROUP_ORDER);
    let of =
        |name| figures.iter().find(|((metric, _), _)| *metric == name).map(|(_, value)| *value);
    // Moves that came to nothing count as well.
    assert_eq!((of("blocks gained"), of("moved per block")), (Some(4.0), Some(65.0)));
    assert_eq!(of("copied per block"), Some(65.0 * 4096.0));
    assert_eq!((of("of bound"), of("compacting p99")), (Some(1.0), Some(700.0)));
}

#[test]
fn e8_a_percentile_is_a_value_that_occurred() {
    let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
    assert_eq!([1.0, 50.0, 99.0, 100.0].map(|part| percentile(&values, part)), {
        [Some(2.0), Some(100.0), Some(198.0), Some(200.0)]
    });
    assert_eq!(percentile(&[], 50.0), None);
}

#[test]
fn e8_the_bound_leaves_out_blocks_with_frames_that_stay_and_takes_the_emptiest() {
    let mut ram = system::ram(BYTES as usize).unwrap();
    let config = Config::x86_64().bare();
    let done = system::with::<X86_64, _>(config, &mut ram, |_, mm| {
        mm.phys().drain();
        assert_eq!(emptiable(mm, GROUP_ORDER), [0; 0], "all is free");
        // Frames of the embedder stay wherever they are.
        let kernel = mm.bare_phys().alloc(CPU, Order::ZERO).unwrap();
        mm.phys().drain();
        assert_eq!(emptiable(mm, GROUP_ORDER), [0; 0]);
        mm.bare_phys().free(CPU, kernel);
    });
    done.unwrap();
    // Beside a naive search over all sets of two.
    let used = [3, 5, 8, 8, 20];
    let sets = (0..5).flat_map(|a| (0..a).map(move |b| used[a] + used[b]));
    assert_eq!(fewest(&used, 2), sets.min());
    assert_eq!((fewest(&used, 0), fewest(&used, 6)), (Some(0), None));
}

#[test]
fn e8_a_short_life_under_each_policy_is_sound_loses_no_frame_and_repeats_with_its_seed() {
    let mut ram = system::ram(BYTES as usize).unwrap();
    let mut counts = |policy| {
        let ledger = live(&plan(policy, 80), &mut ram).unwrap();
        let sum = ledger.last(2);
        (sum.wanted, sum.had, ledger.episodes)
    };
    for policy in Policy::ALL {
        let (wanted, had, episodes) = counts(policy);
        assert!(wanted[4] > 0 && wanted[9] > 0, "{policy:?}");
        assert!((0..wanted.len()).all(|order| had[order] <= wanted[order]));
        assert_eq!(episodes.is_empty(), !policy.compacts(), "{policy:?}");
        let bounded = episodes.iter().filter_map(|it| Some((it.moved, it.bound?)));
        for (moved, bound) in bounded {
            assert!(moved >= bound, "{policy:?}: {moved} pages moved, and {bound} is the least");
        }
        assert_eq!(counts(policy), (wanted, had, episodes), "the same seed, the same life");
    }
}
