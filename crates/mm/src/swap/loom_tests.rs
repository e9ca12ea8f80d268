//! Every interleaving of two CPUs on the slots of one device: `RUSTFLAGS="--cfg loom" cargo test -p
//! quire --lib --release loom_`.

use std::boxed::Box;
use std::ops::Range;
use std::vec::Vec;

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use quire_arch::X86_64;
use quire_hw::{
    Flush, FrameRun, Hardware, Memory, MemoryTypes, Poisoned, Profile, Reuse, TableFrame,
    Transitions,
};
use quire_units::{CpuId, FrameSpan, Order, Pfn};

use super::slots::{CACHED, COUNT};
use super::{Admits, CLUSTER_LANES, Swap};
use crate::cache::{FileId, FilePages};
use crate::phys::{Meta, Slot};

/// The frame of the highest node: the only cluster, or else the directory, with clusters behind it.
const ROOT: Pfn = Pfn::new(1);
const FRAMES: u64 = 4;
/// Words of a frame that may change: the slots of a cluster that its lanes take.
const WORDS: u64 = 4;
/// The word of all other slots of a cluster: never free.
const TAKEN: u64 = CACHED | COUNT;

type Taken = Option<(u64, Order)>;

/// The first words of each frame; the other slots of a cluster are never free.
struct Board {
    words: Vec<AtomicU64>,
    first_cluster: u64,
}

impl Board {
    fn word(&self, frame: Pfn, index: usize) -> Option<&AtomicU64> {
        let index = Some(index).filter(|index| *index < WORDS as usize)?;
        self.words.get(frame.get() as usize * WORDS as usize + index)
    }
}

impl Memory for Board {
    fn load(&self, frame: Pfn, index: usize) -> u64 {
        let rest = if frame.get() < self.first_cluster { 0 } else { TAKEN };
        self.word(frame, index).map_or(rest, |word| word.load(Ordering::Acquire))
    }

    fn fill(&self, table: &TableFrame, index: usize, count: usize, first: u64, step: u64) {
        for at in 0..count {
            if let Some(word) = self.word(table.frame(), index + at) {
                word.store(first.wrapping_add(at as u64 * step), Ordering::Release);
            }
        }
    }

    fn compare_exchange(&self, _: &TableFrame, _: usize, _: u64, _: u64) -> Result<(), u64> {
        Ok(())
    }

    fn clear(&self, _: &FrameRun, _: Range<u64>, _: Reuse) {}

    fn copy(&self, _: &FrameRun, _: u64, from: FrameSpan) -> Result<(), Poisoned> {
        Err(Poisoned { frame: from.start })
    }
}

impl Hardware for Board {
    fn flush(&self, _: &Flush<'_>) {}

    fn publish_code(&self, _: FrameSpan) {}

    fn cpu(&self) -> CpuId {
        CpuId::new(0)
    }

    fn profile(&self) -> Profile {
        Profile {
            transitions: Transitions::Base,
            contiguous: true,
            memory_types: MemoryTypes::ENTRIES,
            near_cache_bytes: 0,
            clear_unit_bytes: 0,
        }
    }
}

type Slots = super::Slots<'static, X86_64, Board>;
type Device = &'static Slots;

/// A device of `clusters` clusters in use, of each of which `WORDS` slots are free. It is leaked:
/// the model's threads need `'static` values.
fn leaked(clusters: u64) -> Device {
    let words = (0..FRAMES * WORDS).map(|_| AtomicU64::new(0)).collect();
    let first_cluster = ROOT.get() + u64::from(clusters > 1);
    let board: &'static Board = Box::leak(Box::new(Board { words, first_cluster }));
    let slots: Vec<Slot> = (0..FRAMES).map(|_| Slot::default()).collect();
    let meta = Meta::new(Pfn::new(0), slots.leak());
    let swap: &'static Swap = Box::leak(Box::new(Swap::default()));
    let device: Device = Box::leak(Box::new(Slots::new(board, meta, swap)));
    let mut next = ROOT.get();
    let frame = || {
        next += 1;
        Some(meta.forge(FrameSpan::new(Pfn::new(next - 1), 1), true))
    };
    assert!(device.found(clusters << Slots::BITS, frame), "there are frames enough");
    for cluster in 0..clusters {
        let counts = &meta.at(Pfn::new(first_cluster + cluster)).counts;
        counts.store(Slots::WORDS - WORDS, Ordering::Relaxed);
    }
    swap.open(FileId(0), clusters << Slots::BITS, Admits::All);
    device
}

/// The slots of `taken`.
fn run(taken: (u64, Order)) -> FilePages {
    FilePages::new(taken.0, taken.0 + taken.1.pages())
}

/// Takes a run and keeps it.
fn take(device: Device, order: u8, cpu: usize) -> Taken {
    let order = Order::new(order);
    device.take(order, cpu).map(|slot| (slot, order))
}

/// Takes a run and gives it back.
fn borrow(device: Device, order: u8, cpu: usize) -> Taken {
    let taken = take(device, order, cpu).expect("there is room for both");
    device.uncache(run(taken));
    None
}

/// Held slots are cached and do not overlap; all others are free, and the counts and lists agree.
fn settle(device: Device, clusters: u64, held: &[Taken]) {
    let owners = |slot| {
        let holds = |taken: &&(u64, Order)| (run(**taken).start..run(**taken).end).contains(&slot);
        held.iter().flatten().filter(holds).count()
    };
    let mut all = 0;
    for cluster in 0..clusters {
        let first = cluster << Slots::BITS;
        let here: Vec<usize> = (first..first + WORDS).map(owners).collect();
        for (slot, owners) in (first..).zip(&here) {
            assert!(*owners <= 1, "slot {slot} twice");
            assert_eq!(device.counted(slot), (0, *owners == 1), "slot {slot}");
        }
        let used = here.iter().sum::<usize>() as u64;
        all += used;
        device.each(FilePages::new(first, first + 1), |lock, _, _| {
            assert_eq!(device.tree.used(lock), Slots::WORDS - WORDS + used);
        });
    }
    assert_eq!(device.swap.used(), all);
    let free = clusters * WORDS - all;
    let rest = (0..).map_while(|_| take(device, 0, 0)).count();
    assert_eq!(rest as u64, free, "all that is free can be taken");
}

/// Runs `second` on another CPU while this one runs `first`; returns the runs that both hold in the
/// end.
fn both(
    device: Device,
    first: impl Fn(Device) -> Taken,
    second: impl Fn(Device) -> Taken + Send + 'static,
) -> [Taken; 2] {
    let other = thread::spawn(move || second(device));
    let held = first(device);
    [held, other.join().expect("no thread panics")]
}

#[test]
fn loom_d2_two_cpus_of_one_lane_take_different_slots() {
    loom::model(|| {
        let device = leaked(1);
        let held = both(device, |d| take(d, 0, 0), |d| take(d, 0, CLUSTER_LANES));
        assert!(held.iter().all(Option::is_some), "there is room for both");
        settle(device, 1, &held);
    });
}

#[test]
fn loom_d2_no_cluster_is_lost_when_two_cpus_of_a_lane_look_for_one() {
    loom::model(|| {
        let device = leaked(2);
        let held = both(device, |d| take(d, 0, 0), |d| take(d, 0, CLUSTER_LANES));
        settle(device, 2, &held);
    });
}

#[test]
fn loom_d2_two_lanes_share_the_only_cluster() {
    loom::model(|| {
        let device = leaked(1);
        let held = both(device, |d| take(d, 0, 0), |d| take(d, 1, 1));
        assert!(held.iter().all(Option::is_some), "there is room for both");
        settle(device, 1, &held);
    });
}

#[test]
fn loom_d2_what_is_given_back_while_another_takes_can_be_taken() {
    loom::model(|| {
        let device = leaked(1);
        let whole = take(device, 1, 0).expect("all is free");
        let back = move |d: Device| {
            d.uncache(run(whole));
            None
        };
        let held = both(device, |d| take(d, 1, 0), back);
        settle(device, 1, &held);
    });
}

#[test]
fn loom_d2_a_full_cluster_is_listed_again_when_a_slot_of_it_is_free() {
    loom::model(|| {
        let device = leaked(1);
        let halves = [0, 0].map(|cpu| take(device, 1, cpu).expect("there are two"));
        let back = move |d: Device| {
            d.uncache(run(halves[0]));
            None
        };
        // It finds the cluster full, or the half that is given back.
        let got = both(device, |d| take(d, 1, 0), back)[0];
        settle(device, 1, &[got, Some(halves[1])]);
    });
}

#[test]
fn loom_d2_who_comes_late_takes_nothing_from_a_cluster_that_is_listed_again() {
    loom::model(|| {
        let device = leaked(1);
        let halves = [0, 0].map(|cpu| take(device, 1, cpu).expect("there are two"));
        // It finds the cluster full, and lists it again: the lane that the other saw is another's.
        let back = move |d: Device| {
            assert_eq!(take(d, 1, CLUSTER_LANES), None, "all is taken");
            d.uncache(run(halves[0]));
            None
        };
        let got = both(device, |d| take(d, 1, 0), back)[0];
        settle(device, 1, &[got, Some(halves[1])]);
    });
}

#[test]
fn loom_d2_two_who_borrow_leave_all_free() {
    loom::model(|| {
        let device = leaked(1);
        let held = both(device, |d| borrow(d, 0, 0), |d| borrow(d, 0, 1));
        settle(device, 1, &held);
    });
}

#[test]
fn loom_d2_one_of_two_who_read_a_slot_claims_it() {
    loom::model(|| {
        let device = leaked(1);
        let taken = take(device, 1, 0).expect("all is free");
        device.refer(run(taken));
        device.uncache(run(taken));
        let claim = move |d: Device| (d.claim(run(taken), taken.1) > 0).then_some(taken);
        let claims = both(device, claim, claim);
        assert_eq!(claims.iter().flatten().count(), 1);
        device.release(run(taken));
        settle(device, 1, &claims);
    });
}

#[test]
fn loom_d2_the_last_entry_and_the_folio_free_a_slot_once() {
    loom::model(|| {
        let device = leaked(1);
        let taken = take(device, 1, 0).expect("all is free");
        device.refer(run(taken));
        let leaves = move |d: Device| {
            d.uncache(run(taken));
            None
        };
        let unmaps = move |d: Device| {
            d.release(run(taken));
            None
        };
        let held = both(device, leaves, unmaps);
        settle(device, 1, &held);
    });
}

#[test]
fn loom_d3_no_folio_goes_whose_slot_gets_an_entry_while_it_is_leaving() {
    loom::model(|| {
        let device = leaked(1);
        let taken = take(device, 0, 0).expect("all is free");
        // Its last entry was mapped. One CPU drops its claim; another takes it out once more.
        let folio = Pfn::new(FRAMES - 1);
        let (meta, leaving, gone) = (device.tree.meta, 1, 2);
        let word = move || &meta.at(folio).owner;
        let leaves = thread::spawn(move || {
            let lock = meta.lock(folio).expect("on record");
            if word().load(Ordering::Relaxed) == gone {
                return;
            }
            word().store(leaving, Ordering::Relaxed);
            drop(lock);
            device.refer(run(taken));
            let _lock = meta.lock(folio).expect("on record");
            word().store(0, Ordering::Relaxed);
        });
        let lock = meta.lock(folio).expect("on record");
        if word().load(Ordering::Relaxed) == 0 && device.is_unreferred(run(taken)) {
            word().store(gone, Ordering::Relaxed);
        }
        drop(lock);
        leaves.join().expect("no thread panics");
        let is_gone = word().load(Ordering::Relaxed) == gone;
        assert_eq!(device.is_unreferred(run(taken)), is_gone, "one of the two");
    });
}
