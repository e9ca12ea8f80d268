//! Walkers must find these faults in contiguous blocks and in spaces that share pages.

use std::vec::Vec;

use quire_arch::{Arch, Arm4k, Attrs, Entry, Level, Sv48, X86_64};
use quire_hw::{Hardware, Memory};
use quire_machine::{Config, Machine, Ram};
use quire_units::{Access, Asid, Order, PageSpan, Pfn, Prot, Vpn};

use super::{Miscount, Violation, space, system};
use crate::fault::SizePolicy;
use crate::mm::{Mm, Parts};
use crate::phys::{CpuCache, Slot, Zone};
use crate::space::{At, Request, Space};
use crate::stats::Counters;
use crate::sync::Ordering;
use crate::table::plain;

const START: Vpn = Vpn::new(1024);
const FOLIO: Order = Order::new(5);

/// Runs `test` on a space whose first 32 pages are one folio.
fn with<A: Arch>(config: Config, test: impl FnOnce(&Mm<'_, A, Machine<'_>>, &Space<A>)) {
    let mut ram = Ram::new(8 << 20).expect("the host has 8 MiB");
    let (machine, run) = Machine::new(config.bare(), &mut ram).expect("a valid preset");
    let mut slots: Vec<Slot> = (0..run.count()).map(|_| Slot::default()).collect();
    let (mut caches, counters, mut zones) =
        ([CpuCache::new()], [Counters::new()], [Zone::new(run.span())]);
    let parts = Parts::new(run.start(), &mut slots, &mut caches, &counters, &mut zones);
    let mm = Mm::<A, _>::new(&machine, parts).expect("sound");
    mm.add(run).expect("the zone is RAM");
    mm.policy().set_size(FOLIO, SizePolicy::Always).expect("a size");
    let own = mm.space(Asid(1), PageSpan::new(START, START.add(2048))).expect("there is memory");
    mm.map(&own, &Request::anon(32).at(At::Fixed(START))).expect("there is room");
    mm.fault(&own, START, Access::Write).expect("there is memory");
    system(&mm, &[&own]).expect("nothing is broken yet");
    test(&mm, &own);
}

/// The table of the first page, and the entry of the page `offset` further on.
fn entry<A: Arch, H: Hardware>(mm: &Mm<'_, A, H>, own: &Space<A>, offset: u64) -> (Pfn, usize) {
    let page = START.add(offset);
    let place = mm.base().view(own).tables().walk(page, Level::LAST);
    (place.frame, A::index(page, place.level))
}

/// Changes the word for a page behind the library's back.
fn forge<A: Arch, H: Hardware>(
    mm: &Mm<'_, A, H>,
    own: &Space<A>,
    offset: u64,
    change: impl FnOnce(u64) -> u64,
) {
    let (table, index) = entry(mm, own, offset);
    let lock = mm.allocator().meta().lock(table).and_then(|lock| lock.words()).expect("a table");
    let word = change(mm.hardware().load(table, index));
    mm.hardware().fill(lock.words(), index, 1, word, 0);
}

/// The same leaf with other attributes, in the same form.
fn regranted<A: Arch>(word: u64, index: usize, change: impl FnOnce(Attrs) -> Attrs) -> u64 {
    let level = Level::LAST;
    let Entry::Leaf { frame, attrs } = A::decode(plain::<A>(word, level, index), level) else {
        panic!("{word:#x} is no leaf");
    };
    let new = A::leaf(frame, level, change(attrs));
    if A::is_folded(word, level) { A::fold(new, level) } else { new }
}

fn torn_blocks_are_found<A: Arch>(config: Config) {
    let level = Level::LAST;
    let unfold = |word, index| A::unfold(word, level, index);
    for (offset, block) in [(0, 0), (7, 0), (15, 0), (16, 16), (31, 16)] {
        with::<A>(config, |mm, own| {
            let (table, first) = entry(mm, own, block);
            let torn = Err(Violation::Torn(table, first));
            let (_, index) = entry(mm, own, offset);
            forge(mm, own, offset, |word| unfold(word, index));
            assert_eq!(space(mm, own), torn, "an entry that is not part of it");
        });
        with::<A>(config, |mm, own| {
            let (table, first) = entry(mm, own, block);
            let (_, index) = entry(mm, own, offset);
            let read_only = |attrs: Attrs| attrs.with_prot(Prot::READ);
            forge(mm, own, offset, |word| regranted::<A>(word, index, read_only));
            let torn = Err(Violation::Torn(table, first));
            assert_eq!(space(mm, own), torn, "an entry with other rights");
        });
        with::<A>(config, |mm, own| {
            let (table, first) = entry(mm, own, block);
            let step = A::step(level);
            forge(mm, own, offset, |word| word.wrapping_add(16 * step));
            let torn = Err(Violation::Torn(table, first));
            assert_eq!(space(mm, own), torn, "an entry that maps another block's frame");
        });
        with::<A>(config, |mm, own| {
            let (_, index) = entry(mm, own, offset);
            let clean = |attrs: Attrs| attrs - Attrs::DIRTY - Attrs::YOUNG;
            forge(mm, own, offset, |word| regranted::<A>(word, index, clean));
            assert!(space(mm, own).is_ok(), "the hardware notes accesses in any entry");
        });
    }
}

#[test]
fn i4_torn_blocks_of_arm64_are_found() {
    torn_blocks_are_found::<Arm4k>(Config::arm64_4k());
}

#[test]
fn i4_torn_blocks_of_riscv64_are_found() {
    torn_blocks_are_found::<Sv48>(Config::riscv64_sv48());
}

#[test]
fn c1_a_block_that_could_be_folded_is_found() {
    with::<Arm4k>(Config::arm64_4k(), |mm, own| {
        for offset in 16..32 {
            let (_, index) = entry(mm, own, offset);
            forge(mm, own, offset, |word| Arm4k::unfold(word, Level::LAST, index));
        }
        let (table, index) = entry(mm, own, 16);
        assert_eq!(space(mm, own), Err(Violation::Plain(table, index)));
    });
}

#[test]
fn i4_a_table_that_counts_its_blocks_wrong_is_found() {
    with::<Arm4k>(Config::arm64_4k(), |mm, own| {
        let (table, _) = entry(mm, own, 0);
        let slot = mm.allocator().meta().at(table);
        assert_eq!(space(mm, own).map(|report| report.folded), Ok(32));
        slot.counts.fetch_add(1 << 32, Ordering::Relaxed);
        assert_eq!(
            space(mm, own),
            Err(Violation::Blocks(table, Miscount { counted: 3, found: 2 }))
        );
    });
}

#[test]
fn i9_a_cow_page_that_can_be_written_is_found() {
    with::<X86_64>(Config::x86_64(), |mm, own| {
        let child = mm.fork(own, Asid(2)).expect("there is memory");
        let (_, index) = entry(mm, own, 3);
        let writable = |attrs: Attrs| attrs | Attrs::WRITE;
        forge(mm, own, 3, |word| regranted::<X86_64>(word, index, writable));
        let page = START.add(3);
        assert_eq!(system(mm, &[own, &child]), Err(Violation::WritableCow(page)));
    });
}

#[test]
fn i13_an_exclusive_page_with_a_second_mapping_is_found() {
    with::<X86_64>(Config::x86_64(), |mm, own| {
        let child = mm.fork(own, Asid(2)).expect("there is memory");
        let (table, index) = entry(mm, own, 3);
        let Entry::Leaf { frame, .. } =
            X86_64::decode(mm.hardware().load(table, index), Level::LAST)
        else {
            panic!("page 3 is mapped");
        };
        for writable in [Attrs::empty(), Attrs::WRITE] {
            let own_it = |attrs: Attrs| (attrs - Attrs::COW) | writable;
            forge(mm, &child, 3, |word| regranted::<X86_64>(word, index, own_it));
            let found = system(mm, &[own, &child]);
            assert_eq!(found, Err(Violation::NotExclusive(frame)), "I11 where it is writable");
            let again = system(mm, &[own, &child]);
            assert_eq!(again, found, "the walker leaves no trace");
        }
    });
}
