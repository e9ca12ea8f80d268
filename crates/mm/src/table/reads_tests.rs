//! How many words of a table an operation reads.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::vec::Vec;

use quire_arch::{Attrs, Level, X86_64};
use quire_hw::{Flush, FrameRun, Hardware, Memory, Poisoned, Profile, Reuse, TableFrame};
use quire_machine::{Config, Machine, Ram};
use quire_units::{CpuId, FrameSpan, Order, PageSpan, Pfn, Prot, Vpn};

use super::{Gather, Tables, Target};
use crate::phys::{CpuCache, Phys, Slot, Zone};

const CPU: CpuId = CpuId::new(0);
/// The pages of one table of the last level.
const REACH: PageSpan = PageSpan::new(Vpn::new(512), Vpn::new(1024));

/// The machine, and the number of words that were read through this.
struct Reads<'m, 'r> {
    machine: &'m Machine<'r>,
    words: AtomicU64,
}

impl Reads<'_, '_> {
    fn add(&self, words: usize) {
        self.words.fetch_add(words as u64, Ordering::Relaxed);
    }
}

impl Memory for Reads<'_, '_> {
    fn load(&self, frame: Pfn, index: usize) -> u64 {
        self.add(1);
        self.machine.load(frame, index)
    }

    fn count_run(&self, frame: Pfn, index: usize, most: usize, first: u64, step: u64) -> usize {
        let count = self.machine.count_run(frame, index, most, first, step);
        self.add(count);
        count
    }

    fn fill(&self, table: &TableFrame, index: usize, count: usize, first: u64, step: u64) {
        self.machine.fill(table, index, count, first, step);
    }

    fn compare_exchange(
        &self,
        table: &TableFrame,
        index: usize,
        current: u64,
        new: u64,
    ) -> Result<(), u64> {
        self.machine.compare_exchange(table, index, current, new)
    }

    fn clear(&self, frames: &FrameRun, pages: Range<u64>, reuse: Reuse) {
        self.machine.clear(frames, pages, reuse);
    }

    fn copy(&self, to: &FrameRun, at: u64, from: FrameSpan) -> Result<(), Poisoned> {
        self.machine.copy(to, at, from)
    }
}

impl Hardware for Reads<'_, '_> {
    fn flush(&self, flush: &Flush<'_>) {
        self.machine.flush(flush);
    }

    fn publish_code(&self, frames: FrameSpan) {
        self.machine.publish_code(frames);
    }

    fn cpu(&self) -> CpuId {
        Hardware::cpu(self.machine)
    }

    fn profile(&self) -> Profile {
        self.machine.profile()
    }
}

struct Bench<'a, 'r> {
    hw: &'a Reads<'a, 'r>,
    phys: &'a Phys<'a>,
    tables: Tables<'a, X86_64, Reads<'a, 'r>>,
}

impl Bench<'_, '_> {
    /// How many words `act` reads; what it takes out is settled then.
    fn words(&self, act: &mut dyn FnMut(&mut Gather)) -> u64 {
        let (mut gather, before) = (Gather::new(), self.hw.words.load(Ordering::Relaxed));
        act(&mut gather);
        let words = self.hw.words.load(Ordering::Relaxed) - before;
        let target = Target { tag: None, root: self.tables.root() };
        gather.settle(self.phys, self.hw, target);
        words
    }
}

/// Runs `test` with the tables for [`REACH`], which are empty.
fn with(test: impl FnOnce(&Bench<'_, '_>)) {
    let mut ram = Ram::new(1 << 20).expect("the host has 1 MiB");
    let (machine, all) = Machine::new(Config::x86_64(), &mut ram).expect("a valid preset");
    let mut slots: Vec<Slot> = (0..all.count()).map(|_| Slot::empty()).collect();
    let (mut caches, mut zones) = ([CpuCache::new()], [Zone::new(all.span())]);
    let phys = Phys::new(all.start(), &mut slots, &mut caches, &mut zones).expect("sound");
    phys.add(all).expect("the zone has all frames");
    let hw = Reads { machine: &machine, words: AtomicU64::new(0) };
    let frame = || {
        let run = phys.alloc(CPU, Order::ZERO).expect("RAM is left");
        machine.clear(&run, 0..1, Reuse::Soon);
        run
    };
    let tables = Tables::<X86_64, _>::found(&hw, phys.meta(), frame());
    while !tables.walk(REACH.start, Level::LAST).level.is_last() {
        let place = tables.walk(REACH.start, Level::LAST);
        tables.link(place, REACH.start, frame()).expect("no other CPU links");
    }
    let bench = Bench { hw: &hw, phys: &phys, tables };
    test(&bench);
    let all = PageSpan::new(Vpn::new(0), Vpn::new(1 << 35));
    bench.words(&mut |gather| {
        tables.take(all, gather);
        tables.prune(all, all, gather);
        tables.free_root(gather);
    });
    machine.verdict().expect("no rule is broken");
}

#[test]
fn c1_absent_entries_are_read_once_and_leaves_at_most_twice() {
    with(|bench| {
        let tables = bench.tables;
        let each = |state: &str, times: u64| {
            // A walk and a lock read a word or two for each level.
            let most = times * REACH.count() + 16;
            let check = |name: &str, act: &mut dyn FnMut(&mut Gather)| {
                let words = bench.words(act);
                assert!(words <= most, "{name}, {state}: {words} words");
            };
            check("look", &mut |_| assert_eq!(tables.look(REACH).is_some(), state != "absent"));
            check("pieces", &mut |_| assert!(tables.pieces(REACH).count() <= 1));
            check("protect", &mut |gather| {
                tables.protect(REACH, Prot::READ, gather);
            });
            check("take", &mut |gather| {
                tables.take(REACH, gather);
            });
        };
        each("absent", 1);
        let (mut span, mut frame) = (REACH, Pfn::new(1 << 22));
        let attrs = Attrs::user(Prot::RW);
        tables.map(&mut span, &mut frame, attrs, &mut None).expect("the tables are there");
        each("leaves", 2);
    });
}
