//! The holds on a folio, and when its frames become free.

use std::vec::Vec;

use quire_machine::{Config, Machine, Ram};
use quire_units::{FrameSpan, Order, Pfn, Vpn};

use super::{Counts, Folio, FolioFlags, Folios, Home};
use crate::phys::{CpuCache, Kind, Phys, Slot, Zone};

const HOME: Home = Home::new(Pfn::new(0), Vpn::new(0));

/// Runs `test` with an allocator of 64 frames from a multiple of 64 on.
fn with(test: impl FnOnce(&Phys<'_>, Folios<'_>)) {
    let mut ram = Ram::new(64 << 12).expect("the host has 256 KiB");
    let (_, run) = Machine::new(Config::x86_64().bare(), &mut ram).expect("a valid preset");
    let mut slots: Vec<Slot> = (0..64).map(|_| Slot::default()).collect();
    let mut caches: Vec<CpuCache> = Vec::new();
    let mut zones = [Zone::new(run.span())];
    let phys = Phys::new(run.start(), &mut slots, &mut caches, &mut zones).expect("sound");
    phys.add(run).expect("the zone is RAM");
    test(&phys, Folios::new(phys.meta()));
}

fn take(phys: &Phys<'_>, order: u8) -> quire_hw::FrameRun {
    phys.alloc(quire_units::CpuId::new(0), Order::new(order)).expect("64 frames")
}

#[test]
fn i12_a_run_becomes_folios_that_count_their_pages() {
    with(|phys, folios| {
        let run = take(phys, 5);
        let first = run.start();
        folios.adopt_mapped(run, Order::new(3), HOME);
        for number in 0..4 {
            let folio = Folio { head: first.add(number * 8), order: Order::new(3) };
            assert_eq!(folio.span(), FrameSpan::new(first.add(number * 8), 8));
            assert_eq!(folios.counts(folio), Counts { refs: 0, pins: 0, mapped: 8 });
            // Every frame of it leads to it, and is nothing by itself.
            for page in 0..8 {
                let frame = folio.head.add(page);
                assert_eq!(folios.of(frame), Some(folio));
                let kind = phys.meta().at(frame).state().kind();
                assert_eq!(kind, if page == 0 { Kind::Folio } else { Kind::None });
            }
        }
        assert_eq!(folios.of(first.add(32)), None, "the frames behind them belong to no folio");
        for number in 0..4 {
            let folio = Folio { head: first.add(number * 8), order: Order::new(3) };
            let run = folios.unmap(folio, 8).expect("there is no other hold");
            phys.free(quire_units::CpuId::new(0), run);
        }
        assert_eq!(phys.free_frames(), 64);
    });
}

#[test]
fn e1_the_last_hold_returns_the_frames_whichever_it_is() {
    with(|phys, folios| {
        let run = take(phys, 2);
        let folio = Folio { head: run.start(), order: Order::new(2) };
        folios.adopt_mapped(run, Order::new(2), HOME);
        folios.get(folio);
        folios.get(folio);
        assert!(folios.put(folio).is_none());
        assert!(folios.unmap(folio, 3).is_none());
        assert_eq!(folios.counts(folio), Counts { refs: 1, pins: 0, mapped: 1 });
        assert!(folios.unmap(folio, 1).is_none());
        let run = folios.put(folio).expect("that was the last hold");
        assert_eq!(run.span(), folio.span());
        assert!(!run.is_zeroed(), "a program may have written it");
        assert_eq!(folios.of(folio.head), None);
        phys.free(quire_units::CpuId::new(0), run);

        let run = take(phys, 0);
        let folio = Folio { head: run.start(), order: Order::ZERO };
        folios.adopt_mapped(run, Order::ZERO, HOME);
        folios.get(folio);
        assert!(folios.put(folio).is_none());
        let run = folios.unmap(folio, 1).expect("that was the last hold");
        phys.free(quire_units::CpuId::new(0), run);
        assert_eq!(phys.free_frames(), 64);
    });
}

#[test]
fn e1_only_the_sole_holder_retires_a_folio() {
    with(|phys, folios| {
        let run = take(phys, 2);
        let folio = Folio { head: run.start(), order: Order::new(2) };
        folios.adopt_mapped(run, Order::new(2), HOME);
        folios.get(folio);
        assert!(folios.retire(folio, 4).is_none(), "there is a reference");
        assert_eq!(
            folios.counts(folio),
            Counts { refs: 1, pins: 0, mapped: 4 },
            "nothing has changed"
        );
        assert!(folios.put(folio).is_none());
        assert!(folios.retire(folio, 3).is_none(), "one more page is mapped");
        assert_eq!(folios.counts(folio), Counts { refs: 0, pins: 0, mapped: 4 });
        assert!(folios.retire(folio, 4).is_some());
        assert_eq!(folios.of(folio.head), None);
    });
}

#[test]
fn i7_part_of_a_run_ends_with_its_folio() {
    with(|phys, folios| {
        let run = take(phys, 3);
        let first = run.start();
        folios.adopt_mapped(run, Order::new(2), HOME);
        let folio = folios.of(first.add(2)).expect("adopted");
        let part = folio.part_of(FrameSpan::new(first.add(2), 6));
        assert_eq!(part, FrameSpan::new(first.add(2), 2));
        let part = folio.part_of(FrameSpan::new(first.add(1), 2));
        assert_eq!(part, FrameSpan::new(first.add(1), 2));
    });
}

#[test]
fn e1_a_caller_may_hold_a_folio_up_to_half_of_the_count() {
    with(|phys, folios| {
        let run = take(phys, 0);
        let folio = Folio { head: run.start(), order: Order::ZERO };
        folios.adopt_mapped(run, Order::ZERO, HOME);
        let most = u16::MAX / 2;
        assert!((0..most).all(|_| folios.hold(folio)));
        assert!(!folios.hold(folio), "the rest is for the library");
        assert_eq!(folios.counts(folio), Counts { refs: most, pins: 0, mapped: 1 });
        assert!((0..most).all(|_| folios.put(folio).is_none()));
        assert!(folios.hold(folio), "there is room again");
    });
}

#[test]
fn e1_a_folio_that_no_index_took_is_none_any_more() {
    with(|phys, folios| {
        let run = take(phys, 1);
        let folio = folios.adopt_cached(&run, Order::new(1), 7, FolioFlags::empty());
        assert_eq!(folios.counts(folio).refs, 2, "of the index, and of its filler");
        folios.unadopt(folio);
        assert_eq!(folios.of(folio.head), None);
        assert!(folios.cached(folio.head, 7).is_none(), "it has no identity");
        phys.free(quire_units::CpuId::new(0), run);
        assert_eq!(phys.free_frames(), 64);
    });
}

#[test]
fn e1_no_fact_is_recorded_about_frames_that_are_on_no_record() {
    with(|phys, folios| {
        let beyond = Folio { head: phys.meta().span().end(), order: Order::ZERO };
        assert!(!folios.mend(beyond) && !folios.identify(beyond, 7));
    });
}
