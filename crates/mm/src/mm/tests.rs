//! The façade's promises beside those that the naive model checks: errors, and ends.

use std::string::ToString;
use std::vec::Vec;

use quire_arch::{Arch, X86_64};
use quire_machine::{Config, Machine, Ram};
use quire_units::{Access, Asid, CpuId, Order, PageSpan, Prot, Vpn};

use crate::check;
use crate::fault::SizePolicy;
use crate::phys::fail::FailPlan;
use crate::phys::{CpuCache, Slot, Zone};
use crate::space::{Advice, AreaFlags, At, Backing, FileId, Request, Space};
use crate::stats::{Counters, Event};
use crate::{Errno, Error, Mm, Parts, Populated, Resolved, Stop};

type MachineMm<'m, 'r> = Mm<'m, X86_64, Machine<'r>>;

const START: Vpn = Vpn::new(4096);
const WINDOW: PageSpan = PageSpan::new(START, Vpn::new(8192));

fn with(test: impl FnOnce(&Machine<'_>, &MachineMm<'_, '_>, Space<X86_64>)) {
    let mut ram = Ram::new(8 << 20).expect("the host has 8 MiB");
    let (machine, run) = Machine::new(Config::x86_64(), &mut ram).expect("a valid preset");
    let mut slots: Vec<Slot> = (0..run.count()).map(|_| Slot::default()).collect();
    let mut caches = [CpuCache::new()];
    let counters = [Counters::new()];
    let mut zones = [Zone::new(run.span())];
    let parts = Parts::new(run.start(), &mut slots, &mut caches, &counters, &mut zones);
    let mm = Mm::<X86_64, _>::new(&machine, parts).expect("sound");
    mm.add(run).expect("the zone is RAM");
    let free = mm.allocator().free_frames();
    let space = mm.space(Asid(1), WINDOW).expect("there is memory");
    test(&machine, &mm, space);
    assert_eq!(machine.verdict(), Ok(()));
    assert_eq!(check::system(&mm, &[]).map(|totals| totals.held), Ok(0));
    assert_eq!(mm.allocator().free_frames(), free);
}

#[test]
fn e3_a_space_can_be_made_forked_and_ended_in_places_of_the_embedder() {
    with(|_, mm, space| {
        let root = || mm.allocator().alloc(CpuId::new(0), Order::ZERO).expect("memory");
        let zeroed = || {
            let run = root();
            mm.base().clear(&run, 0, &mut || {});
            run
        };
        let (mut first, mut second) = (None, None);
        let made = mm.space_in(&mut first, zeroed(), Asid(2), WINDOW);
        let area = mm.map(made.expect("sound"), &Request::anon(16)).expect("there is room");
        let parent = first.as_ref().expect("it was made");
        mm.fault(parent, area.start, Access::Write).expect("memory");
        mm.fork_in(&mut second, parent, zeroed(), Asid(3)).expect("memory");
        let child = second.as_ref().expect("it was made");
        assert_eq!(mm.resident(child), mm.resident(parent));
        assert_eq!(check::system(mm, &[&space, parent, child]).map(|_| ()), Ok(()));
        // A place that is taken stays as it is, and the root is free again.
        let free = mm.allocator().free_frames();
        let taken = mm.space_in(&mut second, root(), Asid(4), WINDOW);
        assert_eq!(taken.err(), Some(Error::Invalid));
        assert_eq!(mm.allocator().free_frames(), free);
        // A fork that fails leaves its place empty.
        let (mut third, run) = (None, zeroed());
        mm.allocator().set_fail_plan(FailPlan::Nth(1));
        let failed = mm.fork_in(&mut third, parent, run, Asid(4));
        assert_eq!(failed.err(), Some(Error::NoMemory(Order::ZERO)));
        assert!(third.is_none());
        mm.destroy_in(&mut second);
        mm.destroy_in(&mut first);
        assert!(first.is_none() && second.is_none());
        mm.destroy(space);
    });
}

fn span(start: u64, end: u64) -> PageSpan {
    PageSpan::new(START.add(start), START.add(end))
}

#[test]
fn e3_a_space_with_a_bad_window_or_root_costs_nothing() {
    with(|_, mm, space| {
        let beyond = Vpn::new(X86_64::USER_PAGES);
        for window in [PageSpan::new(START, START), PageSpan::new(START, beyond.add(1))] {
            assert_eq!(mm.space(Asid(2), window).err(), Some(Error::Invalid));
        }
        let pair = mm.allocator().alloc(CpuId::new(0), Order::new(1)).expect("memory");
        assert_eq!(mm.space_in(&mut None, pair, Asid(2), WINDOW).err(), Some(Error::Invalid));
        mm.allocator().set_fail_plan(FailPlan::Nth(1));
        assert_eq!(mm.space(Asid(2), WINDOW).err(), Some(Error::NoMemory(Order::ZERO)));
        assert_eq!(check::system(mm, &[&space]).map(|totals| totals.held), Ok(0));
        mm.destroy(space);
    });
}

#[test]
fn e3_pages_beyond_the_programs_half_are_refused() {
    with(|_, mm, space| {
        let end = Vpn::new(X86_64::USER_PAGES);
        for bad in [
            PageSpan::new(START, START),
            PageSpan::new(Vpn::new(end.get() - 1), end.add(1)),
            PageSpan::new(end, end.add(1)),
            PageSpan::new(end.add(end.get()), end.add(end.get() + 3)),
        ] {
            let refused = Err(Error::Invalid);
            assert_eq!(mm.unmap(&space, bad), refused);
            assert_eq!(mm.protect(&space, bad, Prot::READ), refused);
            assert_eq!(mm.advise(&space, bad, Advice::Huge), refused);
            assert_eq!(mm.discard(&space, bad), refused);
            assert_eq!(mm.mlock(&space, bad), refused.map_err(Stop::from));
            assert_eq!(mm.spaces().munlock(&space, bad), refused);
            let nothing =
                if bad.is_empty() { Ok(Populated::default()) } else { Err(Error::Invalid.into()) };
            assert_eq!(mm.populate(&space, bad), nothing);
            let spaces = mm.spaces();
            assert_eq!(spaces.guard(&space, bad), refused);
            assert_eq!(spaces.unguard(&space, bad), refused);
            assert_eq!(spaces.free_lazily(&space, bad), refused);
            assert_eq!(spaces.track(&space, bad), refused);
            assert_eq!(spaces.seal(&space, bad), refused);
            #[cfg(feature = "swap")]
            {
                let out = mm.paging().page_out(&space, bad, crate::Scope::Own, &[&space][..]);
                assert_eq!(out.map(drop), refused);
            }
            #[cfg(feature = "reclaim")]
            {
                let (reclaim, all) = (mm.reclaim(), [&space]);
                assert_eq!(reclaim.drop_zeroes(&space, bad).map(drop), refused);
                assert_eq!(reclaim.collapse(&space, bad, Order::new(4)).map(drop), refused);
                let done = reclaim.collapse_file(&space, bad, &all[..]).map(drop);
                assert_eq!(done, refused.map_err(Stop::from));
            }
            let request = Request::anon(bad.count()).at(At::Fixed(bad.start));
            assert_eq!(mm.map(&space, &request), Err(Error::Invalid));
        }
        let far = end.add(5);
        assert_eq!(mm.fault(&space, far, Access::Read), Err(Error::NoArea(far).into()));
        mm.destroy(space);
    });
}

/// Each flush that the hardware gets is counted, and each invalidation: there is one CPU.
#[test]
fn i6_flushes_are_counted_as_the_hardware_gets_them() {
    with(|machine, mm, space| {
        let cpu = machine.cpu(0);
        let agree = |after: &str| {
            let (got, counted) = (machine.counts(), mm.totals());
            let all = got.invalidations + got.full_flushes;
            assert_eq!(counted.event(Event::Flush), got.flushes, "after {after}");
            assert_eq!(counted.event(Event::Invalidations), all, "after {after}");
            got.flushes
        };
        mm.map(&space, &Request::anon(64).at(At::Fixed(START))).expect("there is room");
        space.enter(cpu.number());
        cpu.switch(space.root(), space.asid());
        mm.populate(&space, span(0, 64)).expect("there is memory");
        for page in 0..64 {
            cpu.write(START.add(page).addr(X86_64::PAGE_SHIFT), page).expect("it is there");
        }
        let mut before = agree("stores");
        let mut grows = |after: &str| {
            let now = agree(after);
            assert!(now > before, "after {after}");
            before = now;
        };
        mm.protect(&space, span(0, 8), Prot::READ).expect("no leaf is split");
        grows("a loss of rights");
        mm.discard(&space, span(8, 9)).expect("no leaf is split");
        grows("a discard");
        mm.unmap(&space, span(20, 40)).expect("no leaf is split");
        grows("the end of an area");
        cpu.leave();
        mm.destroy(space);
        grows("the end of the space");
    });
}

#[test]
fn e3_a_tree_of_large_leaves_alone_leaves_no_table_behind() {
    with(|_, mm, space| {
        mm.policy().set_size(Order::new(9), SizePolicy::Always).expect("a size");
        mm.map(&space, &Request::anon(512).at(At::Fixed(START))).expect("there is room");
        mm.fault(&space, START, Access::Write).expect("there is memory");
        mm.unmap(&space, span(0, 512)).expect("no leaf is split");
        assert_eq!(check::space(mm, &space).map(|report| report.tables), Ok(1), "the root");
        mm.destroy(space);
    });
}

#[test]
fn e3_advice_splits_a_large_leaf_where_areas_come_to_meet() {
    with(|_, mm, space| {
        mm.policy().set_size(Order::new(9), SizePolicy::Always).expect("a size");
        mm.map(&space, &Request::anon(512).at(At::Fixed(START))).expect("there is room");
        mm.fault(&space, START, Access::Write).expect("there is memory");
        mm.advise(&space, span(0, 512), Advice::None).expect("it is so already");
        assert_eq!(mm.totals().event(Event::LeafSplit), 0, "without a change no leaf is split");
        mm.advise(&space, span(100, 200), Advice::NoHuge).expect("there is memory");
        assert_eq!(mm.totals().event(Event::LeafSplit), 1);
        mm.protect(&space, span(0, 512), Prot::READ).expect("there is memory");
        let report = check::space(mm, &space).expect("sound");
        assert_eq!((report.areas, report.leaves, report.pages), (3, 512, 512));
        mm.destroy(space);
    });
}

#[test]
fn e4_a_fault_that_gets_less_than_it_wanted_maps_one_folio_around_its_page() {
    with(|_, mm, space| {
        mm.policy().set_size(Order::new(9), SizePolicy::Always).expect("a size");
        mm.policy().set_size(Order::new(3), SizePolicy::Always).expect("a size");
        mm.map(&space, &Request::anon(512).at(At::Fixed(START))).expect("there is room");
        // Two tables and then the block, which fails; then the last table, and the folio.
        let held: Vec<_> =
            core::iter::from_fn(|| mm.allocator().alloc(CpuId::new(0), Order::new(9))).collect();
        let mut held = held.into_iter();
        let last = held.next().expect("8 MiB");
        let (at_hand, tail) = last.split_at(500);
        mm.allocator().free(CpuId::new(0), at_hand);
        let resolved = mm.fault(&space, START.add(77), Access::Write).expect("there is memory");
        let Resolved::Mapped(new) = resolved else { panic!("{resolved:?}") };
        assert_eq!((new.pages, new.order), (span(72, 80), Order::new(3)));
        assert_eq!(mm.spaces().resident(&space), 8);
        mm.destroy(space);
        held.chain([tail]).for_each(|run| mm.allocator().free(CpuId::new(0), run));
    });
}

#[test]
fn e5_events_count_what_was_done() {
    with(|_, mm, space| {
        mm.map(&space, &Request::anon(40).at(At::Fixed(START))).expect("there is room");
        mm.fault(&space, START, Access::Write).expect("there is memory");
        assert_eq!(mm.fault(&space, START, Access::Write), Ok(Resolved::Noted));
        let outside = START.add(40);
        assert_eq!(mm.fault(&space, outside, Access::Read), Err(Error::NoArea(outside).into()));
        let done = mm.populate(&space, span(0, 40)).expect("there is memory");
        assert_eq!(done, Populated { pages: 39, folios: 39 });
        mm.protect(&space, span(8, 16), Prot::READ).expect("there is memory");
        mm.unmap(&space, span(0, 20)).expect("there is memory");
        let totals = mm.totals();
        let events = [
            (Event::Fault, 2),
            (Event::Spurious, 1),
            (Event::Refused, 1),
            (Event::Stale, 0),
            (Event::EntriesMade, 40),
            (Event::EntriesChanged, 8),
            (Event::EntriesCleared, 20),
            (Event::Flush, 2),
            (Event::TableMade, 3),
            (Event::FramesFreed, 20),
            (Event::LeafSplit, 0),
        ];
        for (event, count) in events {
            assert_eq!(totals.event(event), count, "{}", event.name());
        }
        assert_eq!(totals.alloc[0], 40);
        assert_eq!(space.counters().allocs()[0], 40);
        mm.destroy(space);
    });
}

#[test]
fn errors_have_linuxs_numbers_and_say_what_they_mean() {
    let area = crate::space::Area {
        span: span(0, 1),
        prot: Prot::READ,
        max_prot: Prot::all(),
        flags: crate::space::AreaFlags::empty(),
        backing: crate::space::Backing::Anon,
    };
    for (error, errno, words) in [
        (Error::NoMemory(Order::new(9)), Errno::ENOMEM, "order 9"),
        (Error::Invalid, Errno::EINVAL, "not the program's"),
        (Error::Exists(area), Errno::EEXIST, "mapped already"),
        (Error::NoRoom(7), Errno::ENOMEM, "no 7 free pages"),
        (Error::NoArea(START), Errno::ENOMEM, "no area holds"),
        (Error::Denied(START, Access::Write, Prot::READ), Errno::EFAULT, "Write"),
        (Error::Forbidden(START, Prot::EXEC), Errno::EACCES, "never"),
    ] {
        assert_eq!(error.errno(), errno);
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn e3_a_stack_grows_no_further_than_its_limit() {
    with(|_, mm, space| {
        let top = Vpn::new(0x6000);
        let area = Request::anon(4)
            .at(At::FixedNoReplace(Vpn::new(top.get() - 4)))
            .flags(AreaFlags::GROWS_DOWN);
        mm.map(&space, &area).expect("free");
        assert_eq!(space.stack_pages(), crate::limits::STACK_BYTES >> 12, "not all there is");
        space.set_stack_pages(16);
        let page = |below: u64| Vpn::new(top.get() - below);
        mm.fault(&space, page(16), Access::Write).expect("the last page that it may have");
        let refused = mm.fault(&space, page(17), Access::Write);
        assert_eq!(refused, Err(Error::NoArea(page(17)).into()));
        space.set_stack_pages(u64::MAX);
        mm.fault(&space, page(17), Access::Write).expect("no bound");
        mm.destroy(space);
    });
}

#[test]
fn e3_a_page_beyond_the_end_of_its_object_is_missing() {
    with(|_, mm, space| {
        let object = Request {
            backing: Backing::File { id: FileId(1), page: 7 },
            ..Request::anon(4).at(At::FixedNoReplace(START))
        };
        mm.map(&space, &object).expect("free");
        for access in [Access::Read, Access::Write] {
            assert_eq!(mm.fault(&space, START, access), Err(Error::Missing(START).into()));
        }
        assert_eq!(mm.populate(&space, span(0, 4)), Err(Error::Missing(START).into()));
        assert_eq!(mm.spaces().resident(&space), 0);
        mm.destroy(space);
    });
}

#[test]
fn a1_what_the_embedder_gives_back_counts_as_written() {
    with(|_, mm, space| {
        let run = mm.phys().alloc(Order::ZERO).expect("there is memory");
        assert!(run.is_zeroed(), "the machine's memory begins as zeroes");
        mm.phys().free(run);
        let again = mm.phys().alloc(Order::ZERO).expect("there is memory");
        assert!(!again.is_zeroed());
        mm.phys().free(again);
        mm.destroy(space);
    });
}

#[test]
fn e1_the_hardware_hears_of_each_frame_that_leaves_use() {
    with(|machine, mm, space| {
        let run = mm.base().frames(Order::new(2), true).expect("memory");
        let before = machine.counts();
        mm.base().free(run);
        assert_eq!((machine.counts() - before).frames_freed, 4);
        mm.destroy(space);
    });
}

#[cfg(feature = "reclaim")]
#[test]
fn d6_the_watermarks_grow_with_the_root_of_memory() {
    with(|_, mm, space| {
        let marks = |mib: u64| {
            let all = mm.reclaim().watermarks(mib << 8);
            [all.min, all.low, all.high]
        };
        // 4 times the root of 1,048,576 KiB are 4,096 KiB, which are 1,024 frames.
        assert_eq!(marks(1 << 10), [1024, 1281, 1538]);
        assert_eq!(marks(4), [64, 81, 98], "a sixteenth of all");
        assert_eq!(mm.reclaim().watermarks(64).min, 4);
        assert_eq!(marks(1 << 30)[0], 256 << 8, "256 MiB at most");
        mm.destroy(space);
    });
}
