//! Bits that the hardware notes in one word of a contiguous block hold for each of its pages (I5),
//! also where only some of them are looked at; and parts of a folio that keep what is known of it.

use std::vec::Vec;

use quire_arch::{Arch, Arm4k, Attrs, Level, Sv39};
use quire_hw::{Memory, Reuse};
use quire_machine::{Config, Machine, Ram};
use quire_units::{Asid, CpuId, Order, PageSpan, Pfn, Prot, Vpn};

use super::word::{WATCHED, is_cow, is_foreign, shielded, word};
use super::{Divided, Division, Gather, Locked, Sight, Tables, Target, What};
use crate::folio::{Folio, FolioFlags, Folios, Home};
use crate::phys::{CpuCache, Phys, Slot, Zone};
use crate::tags::Tag;

const CPU: CpuId = CpuId::new(0);
/// Where the block is mapped.
const AT: u64 = 512;

type Tree<'a, 'r, A> = Tables<'a, A, Machine<'r>>;

/// Runs `test` with a tree that maps one contiguous block of one folio, folded and clean.
fn with<A: Arch>(config: Config, test: impl FnOnce(Tree<'_, '_, A>, Folio)) {
    let mut ram = Ram::new(8 << 20).expect("the host has 8 MiB");
    let (machine, all) = Machine::new(config, &mut ram).expect("a valid preset");
    let mut slots: Vec<Slot> = (0..all.count()).map(|_| Slot::empty()).collect();
    let (mut caches, mut zones) = ([CpuCache::new()], [Zone::new(all.span())]);
    let phys = Phys::new(all.start(), &mut slots, &mut caches, &mut zones).expect("sound");
    phys.add(all).expect("the zone has all frames");
    let frame = || {
        let run = phys.alloc(CPU, Order::ZERO).expect("RAM is left");
        machine.clear(&run, 0..1, Reuse::Soon);
        run
    };
    let tables = Tables::<A, _>::found(&machine, phys.meta(), frame());
    let page = Vpn::new(AT);
    while !tables.walk(page, Level::LAST).level.is_last() {
        tables.link(tables.walk(page, Level::LAST), page, frame()).expect("no other CPU links");
    }
    let order = A::fold_order(Level::LAST).expect("the format has blocks");
    let run = phys.alloc(CPU, order).expect("RAM is left");
    let folio = Folio { head: run.start(), order };
    Folios::new(phys.meta()).adopt_mapped(run, order, Home::new(Pfn::new(0), page));
    let locked = tables.lock_lowest(page, Level::LAST);
    let attrs = Attrs::user(Prot::RW);
    locked.put(locked.index(page), order.pages() as usize, folio.head, attrs, order);
    assert_eq!(locked.folded(), 1);
    drop(locked);
    test(tables, folio);
    let all = PageSpan::new(Vpn::new(0), Vpn::new(A::USER_PAGES));
    let (mut gather, tag) = (Gather::new(), Tag::new(Asid(1)));
    tables.take(all, &mut gather);
    tables.prune(all, all, &mut gather);
    gather.settle(&phys, &machine, Target { tag: Some(&tag), root: tables.root() });
}

/// The hardware notes `bits` in entry `index` of the block.
fn note<A: Arch>(locked: &Locked<'_, A, Machine<'_>>, folio: Folio, index: usize, bits: Attrs) {
    let attrs = Attrs::user(Prot::RW) | bits;
    let at = locked.index(Vpn::new(AT)) + index;
    let new = word::<A>(folio.head.add(index as u64), locked.level(), attrs, true);
    locked.exchange(at, locked.raw(at), new).expect("no CPU runs");
}

/// Whatever is looked at of the block, it has the bit that one of its words has.
fn tells_of_all<A: Arch>(config: Config, bit: Attrs) {
    let width = 1_usize << A::LEVELS[Level::LAST.index()].contiguous;
    let ends = [0, 1, width / 2, width - 1, width];
    for noted in [0, width / 2 - 1, width - 1] {
        with::<A>(config, |tables, folio| {
            let locked = tables.lock_lowest(Vpn::new(AT), Level::LAST);
            note(&locked, folio, noted, bit);
            let first = locked.index(Vpn::new(AT));
            let has = |what| matches!(what, What::Leaf { attrs, .. } if attrs.contains(bit));
            for (at, from) in ends.iter().enumerate() {
                for to in &ends[at + 1..] {
                    let run = locked.run(first + from, first + to);
                    assert!(has(run.what), "{}: {noted} in {from}..{to}", A::NAME);
                }
                if *from < width {
                    assert!(has(locked.entry(first + from).what), "{}: {noted}, {from}", A::NAME);
                }
            }
            drop(locked);
            let one = PageSpan::block(Vpn::new(AT + 1), Order::ZERO);
            let seen = tables.look(one).expect("it is mapped");
            assert!(matches!(seen.what, Sight::Leaf { attrs, .. } if attrs.contains(bit)));
        });
    }
}

#[test]
fn i5_a_bit_in_one_word_of_a_block_is_seen_through_each_part_of_it() {
    for bit in [Attrs::DIRTY, Attrs::YOUNG] {
        tells_of_all::<Arm4k>(Config::arm64_4k(), bit);
        tells_of_all::<Sv39>(Config::riscv64_sv39(), bit);
    }
}

/// A block that reaches beyond the pages that are aged counts as touched, and keeps the bit.
#[test]
fn i5_aging_a_part_of_a_block_hears_of_a_touch_elsewhere_in_it() {
    with::<Arm4k>(Config::arm64_4k(), |tables, folio| {
        let locked = tables.lock_lowest(Vpn::new(AT), Level::LAST);
        note(&locked, folio, 9, Attrs::YOUNG);
        let mut gather = Gather::new();
        let part = PageSpan::new(Vpn::new(AT), Vpn::new(AT + 2));
        assert!(locked.forget(part, Attrs::YOUNG, &mut gather), "it was touched");
        assert!(locked.forget(part, Attrs::YOUNG, &mut gather), "it keeps the bit");
        let all = PageSpan::new(Vpn::new(AT), Vpn::new(AT + 16));
        assert!(locked.forget(all, Attrs::YOUNG, &mut gather), "all of it is aged");
        assert!(!locked.forget(all, Attrs::YOUNG, &mut gather), "and not touched since");
    });
}

#[test]
fn d6_parts_of_a_folio_know_where_they_are_how_old_they_are_and_what_was_said_about_them() {
    with::<Arm4k>(Config::arm64_4k(), |tables, folio| {
        let folios = Folios::new(tables.meta);
        folios.set_lazy(folio, true);
        (0..2).for_each(|_| folios.grow_old(folio, false));
        let how = Division::Around(Vpn::new(AT + 5), Order::ZERO);
        let divided = tables.divide(Vpn::new(AT + 5), how, &mut Gather::new());
        assert_eq!(divided, Divided::Parts { parts: 5, freed: 0 });
        for at in [0, 4, 5, 6, 8] {
            let part = folios.of(folio.head.add(at)).expect("it is mapped");
            assert_eq!(part.head, folio.head.add(at));
            assert_eq!(folios.home(part), tables.home(Vpn::new(AT + at)), "part {at}");
            assert_eq!((folios.idle(part), folios.is_lazy(part)), (2, true), "part {at}");
            assert!(!folios.known(part).0.contains(FolioFlags::CACHED));
            assert_eq!(u64::from(folios.counts(part).mapped), part.order.pages());
        }
    });
}

#[test]
fn i17_a_protected_leaf_keeps_all_rights_but_that_to_write_and_is_not_dirty() {
    let every = [Prot::RW, Prot::READ, Prot::RW | Prot::EXEC, Prot::READ | Prot::EXEC];
    for prot in every {
        for noted in [Attrs::empty(), Attrs::YOUNG, Attrs::DIRTY, Attrs::YOUNG | Attrs::DIRTY] {
            let shielded = shielded(Attrs::user(prot) | noted);
            assert_eq!(shielded.prot() | Prot::WRITE, prot | Prot::WRITE, "{prot:?}");
            assert!(!shielded.intersects(Attrs::WRITE | Attrs::DIRTY), "{prot:?}");
            assert_eq!(shielded & Attrs::YOUNG, noted & Attrs::YOUNG);
            assert!(shielded.contains(WATCHED) && !is_foreign(shielded) && !is_cow(shielded));
        }
    }
}
