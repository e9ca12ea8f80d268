//! Groups at their limits, and swap devices that are none.

use std::vec::Vec;

use quire_arch::X86_64;
use quire_machine::{Config, Machine, Ram};
use quire_units::{Access, Asid, Order, OrderSet, PageSpan, Vpn};

use crate::cache::{File, FileId, FilePages, Store};
use crate::fault::SizePolicy;
use crate::phys::{CpuCache, Slot, Zone};
use crate::space::{AreaFlags, At, Backing, GroupId, Request, Space};
use crate::stats::{Counters, Event};
use crate::swap::Swap;
use crate::{AllSpaces, Error, Group, Mm, Move, Need, Parts, Resolved, Scope, Stop};

type MachineMm<'m, 'r> = Mm<'m, X86_64, Machine<'r>>;

const START: Vpn = Vpn::new(4096);

/// A system with a swap device and a group.
fn with(test: impl FnOnce(&MachineMm<'_, '_>, FileId, GroupId)) {
    let mut ram = Ram::new(4 << 20).expect("the host has 4 MiB");
    let (machine, run) = Machine::new(Config::x86_64(), &mut ram).expect("a valid preset");
    let mut slots: Vec<Slot> = (0..run.count()).map(|_| Slot::default()).collect();
    let (mut caches, counters, mut zones) =
        ([CpuCache::new()], [Counters::new()], [Zone::new(run.span())]);
    let mut groups = [const { Group::new() }; 8];
    let (mut files, mut swaps) = ([File::new(), File::new()], [Swap::new()]);
    let parts = Parts::new(run.start(), &mut slots, &mut caches, &counters, &mut zones)
        .groups(&mut groups)
        .files(&mut files)
        .swaps(&mut swaps);
    let mm = Mm::<X86_64, _>::new(&machine, parts).expect("sound");
    mm.add(run).expect("the zone is RAM");
    (1..=9)
        .for_each(|order| mm.policy().set_size(Order::new(order), SizePolicy::Never).unwrap_or(()));
    let swap = mm.paging().swap_on(256).expect("memory");
    let group = mm.groups().create(None).expect("there is room");
    test(&mm, swap, group);
    assert_eq!(machine.verdict(), Ok(()));
}

/// A space with pages, each of which is written once and has a frame of its own.
fn space(mm: &MachineMm<'_, '_>, asid: u16, pages: u64, written: u64) -> Space<X86_64> {
    let window = PageSpan::new(START, Vpn::new(8192));
    let space = mm.space(Asid(asid), window).expect("memory");
    mm.map(&space, &Request::anon(pages).at(At::Fixed(START))).expect("free");
    for page in 0..written {
        mm.fault(&space, START.add(page), Access::Write).expect("memory");
    }
    space
}

#[test]
fn d6_a_space_that_joins_takes_the_room_that_the_group_was_lent() {
    with(|mm, _, group| {
        mm.groups().set_limit(group, 8).expect("it is a group");
        let (member, other) = (space(mm, 1, 16, 2), space(mm, 2, 16, 6));
        mm.groups().join(&member, Some(group)).expect("it is a group");
        let relieved = mm.reclaim().relieve(group, [&member].as_slice()).expect("there is room");
        assert_eq!((relieved.usage, relieved.room), (2, 6));
        mm.groups().join(&other, Some(group)).expect("it is a group");
        let fault = mm.fault(&member, START.add(2), Access::Write);
        assert_eq!(fault.err(), Some(Stop::Refuse(Error::OverLimit(group))), "all 8 are in use");
        mm.destroy(member);
        mm.destroy(other);
    });
}

#[test]
fn d6_a_group_is_relieved_as_soon_as_it_is_in_its_margin_or_at_its_limit() {
    // A sixteenth of 32 is to be free; a limit below 16 has no margin, and is full when it is used
    // up.
    for (limit, usage, paged_out) in [(32, 30, 0), (32, 31, 1), (32, 32, 2), (8, 7, 0), (8, 8, 1)] {
        with(|mm, _, group| {
            let space = space(mm, 1, 64, usage);
            mm.groups().join(&space, Some(group)).expect("it is a group");
            mm.groups().set_limit(group, limit).expect("it is a group");
            let relieved = mm.reclaim().relieve(group, [&space].as_slice());
            let relieved = relieved.map(|relieved| relieved.paged_out);
            assert_eq!(relieved, Ok(paged_out), "{usage} of {limit}");
            mm.destroy(space);
        });
    }
}

#[test]
fn d6_a_fault_on_a_page_that_is_there_needs_no_room_in_a_group_at_its_limit() {
    // A CPU may fault once more on a page that was just mapped. If a count of the group came first,
    // it could take that page away again, and the access would never end.
    with(|mm, _, group| {
        let space = space(mm, 1, 16, 2);
        mm.groups().join(&space, Some(group)).expect("it is a group");
        mm.groups().set_limit(group, 2).expect("it is a group");
        let over = Some(Stop::Refuse(Error::OverLimit(group)));
        for access in [Access::Read, Access::Write] {
            assert_eq!(mm.fault(&space, START, access).ok(), Some(Resolved::Noted));
            assert_eq!(mm.fault(&space, START.add(2), access).err(), over);
        }
        let child = mm.fork(&space, Asid(2)).expect("memory");
        assert_eq!(mm.fault(&space, START, Access::Read).ok(), Some(Resolved::Noted));
        assert_eq!(mm.fault(&space, START, Access::Write).err(), over, "a copy needs a frame");
        mm.destroy(child);
        mm.destroy(space);
    });
}

/// Spaces that an embedder cannot find by their numbers.
struct Numberless<'a>([&'a Space<X86_64>; 2]);

impl AllSpaces<X86_64> for Numberless<'_> {
    fn visit(&self, see: &mut dyn FnMut(&Space<X86_64>)) {
        self.0.iter().for_each(|space| see(space));
    }

    fn visit_some(&self, _: &[u32], _: &mut dyn FnMut(&Space<X86_64>)) {}
}

#[test]
fn d2_a_shared_folio_leaves_if_the_space_of_its_home_is_not_found_by_number() {
    with(|mm, _, _| {
        let parent = space(mm, 1, 16, 16);
        let child = mm.fork(&parent, Asid(2)).expect("memory");
        let (span, all) = (PageSpan::new(START, START.add(16)), Numberless([&parent, &child]));
        let out = mm.paging().page_out(&child, span, Scope::All, &all).expect("valid");
        assert_eq!((out.folios, out.stay), (16, 0));
        mm.destroy(child);
        mm.destroy(parent);
    });
}

#[test]
fn d2_a_file_that_is_no_swap_device_is_not_switched_off() {
    with(|mm, swap, _| {
        let file = mm.files().open(Store::ReadWrite, 4, Order::ZERO).expect("a free file");
        assert_eq!(mm.paging().swap_off(file), Err(Error::NoFile));
        assert_eq!(mm.paging().swap_off(swap), Ok(()));
        assert_eq!(mm.paging().swap_off(swap), Err(Error::NoFile), "it is off already");
    });
}

#[test]
fn values_that_an_earlier_manager_had_are_as_new() {
    let mut ram = Ram::new(4 << 20).expect("the host has 4 MiB");
    let (machine, run) = Machine::new(Config::x86_64(), &mut ram).expect("a valid preset");
    let mut slots: Vec<Slot> = (0..run.count()).map(|_| Slot::default()).collect();
    let (mut caches, counters, mut zones) =
        ([CpuCache::new()], [Counters::new()], [Zone::new(run.span())]);
    let (mut groups, mut files, mut swaps) = ([Group::new()], [File::new()], [Swap::new()]);
    let (first, mut run) = (run.start(), Some(run));
    for _ in 0..2 {
        let parts = Parts::new(first, &mut slots, &mut caches, &counters, &mut zones)
            .groups(&mut groups)
            .files(&mut files)
            .swaps(&mut swaps);
        let mm = Mm::<X86_64, _>::new(&machine, parts).expect("sound");
        let first = GroupId::new(1).expect("not zero");
        let (had, id) = (mm.groups().limit(first), FileId(0));
        assert_eq!((had, mm.files().get(id).is_none()), (Err(Error::NoGroup), true));
        assert_eq!(mm.paging().devices().count(), 0);
        assert_eq!(mm.groups().create(None).and_then(|id| mm.groups().limit(id)), Ok(u64::MAX));
        run.take().into_iter().for_each(|run| mm.add(run).expect("the zone is RAM"));
        // The second manager has no frame for a device's slots.
        assert!(mm.paging().swap_on(64).is_ok() || mm.phys().free_frames() == 0);
    }
}

/// A copy of more than the page takes an eighth of the group's room at most.
#[test]
fn d6_a_copy_is_larger_than_its_page_only_where_the_group_has_eight_times_the_room() {
    let large = Order::new(2);
    for (room, expected) in [(8 * 4, large), (8 * 4 - 1, Order::ZERO)] {
        with(|mm, _, group| {
            mm.policy().set_size(large, SizePolicy::Always).expect("a size");
            let sizes = OrderSet::of(large);
            mm.policy().set_copy_sizes(large, Some(sizes)).expect("a folio may be as large");
            let parent = space(mm, 1, 4, 1);
            let child = mm.fork(&parent, Asid(2)).expect("memory");
            mm.groups().join(&child, Some(group)).expect("it is a group");
            let spaces = [&parent, &child];
            let relieve = |limit| {
                mm.groups().set_limit(group, limit).expect("it is a group");
                mm.reclaim().relieve(group, spaces.as_slice()).expect("there is room")
            };
            let usage = relieve(1000).usage;
            assert_eq!(relieve(usage + room).room, room);
            match mm.fault(&child, START, Access::Write) {
                Ok(Resolved::Unshared { copied, .. }) => {
                    assert_eq!(copied, Some(expected), "with room for {room}");
                }
                other => panic!("{other:?}"),
            }
            mm.destroy(child);
            mm.destroy(parent);
        });
    }
}

#[test]
fn d9_reclaim_pages_a_file_in_memory_out_that_several_spaces_show() {
    with(|mm, _, _| {
        let file = mm.files().open(Store::Memory, 16, Order::ZERO).expect("a free file");
        let backing = Backing::File { id: file, page: 0 };
        let request = Request { backing, flags: AreaFlags::SHARED, ..Request::anon(16) };
        let spaces = [1, 2].map(|asid| {
            let space = space(mm, asid, 1, 0);
            let at = START.add(64);
            mm.map(&space, &request.at(At::Fixed(at))).expect("free");
            for page in 0..16 {
                mm.fault(&space, at.add(page), Access::Write).expect("memory");
            }
            space
        });
        let all = spaces.each_ref();
        let done = mm.reclaim().reclaim(16, all.as_slice());
        assert!(done.paged_out > 0, "{done:?}");
        assert_eq!(mm.paging().away(file, FilePages::new(0, 16)), done.paged_out);
        spaces.into_iter().for_each(|space| mm.destroy(space));
        mm.files().close(file).expect("it is open");
    });
}

#[test]
fn d4_a_page_that_has_left_is_no_guard() {
    with(|mm, _, _| {
        let space = space(mm, 1, 16, 8);
        let (out, guards) = (PageSpan::new(START, START.add(4)), START.add(9));
        let all = PageSpan::new(START, START.add(16));
        assert_eq!(
            mm.paging().page_out(&space, out, Scope::Own, &[&space][..]).map(|o| o.pages),
            Ok(4)
        );
        assert_eq!(mm.spaces().next_guard(&space, all), None);
        mm.spaces().guard(&space, PageSpan::new(guards, guards.add(2))).expect("memory");
        assert_eq!(mm.spaces().next_guard(&space, all), Some(guards));
        mm.destroy(space);
    });
}

#[test]
fn d2_each_entry_that_leaves_is_counted_and_a_read_that_nothing_waits_for_leaves_no_slot() {
    with(|mm, swap, _| {
        let space = space(mm, 1, 16, 8);
        let all = PageSpan::new(START, START.add(8));
        let out = mm.paging().page_out(&space, all, Scope::Own, &[&space][..]);
        assert_eq!(out.map(|out| out.pages), Ok(8));
        let (totals, used) = (mm.totals(), || mm.base().swaps[0].used());
        assert_eq!(totals.event(Event::EntriesSwapped), 8);
        assert_eq!((totals.event(Event::PagesSwapped), used()), (8, 8));
        let mut left = FilePages::new(0, 256);
        while let Some(write) =
            mm.files().next_write(swap, &mut left, &[&space][..]).expect("none is under way")
        {
            mm.files().write_done(write, Ok(()));
        }
        let fault = mm.fault(&space, START, Access::Read);
        let Err(Stop::Need(Need::Read(mut reads))) = fault else { panic!("{fault:?}") };
        let read = mm.files().next_read(&mut reads).expect("memory").expect("a page");
        mm.destroy(space);
        mm.files().read_done(read, Ok(()));
        while let Some(read) = mm.files().next_read(&mut reads).expect("memory") {
            mm.files().read_done(read, Ok(()));
        }
        assert_eq!(used(), 0, "no space has them");
    });
}

#[test]
fn d4_guards_of_a_block_without_a_table_move_to_any_place() {
    with(|mm, _, _| {
        let space = space(mm, 1, 16, 1);
        let old = PageSpan::new(Vpn::new(5120), Vpn::new(5632));
        mm.map(&space, &Request::anon(512).at(At::Fixed(old.start))).expect("free");
        mm.spaces().guard(&space, old).expect("memory");
        for place in [Vpn::new(6147), Vpn::new(7168), Vpn::new(5125)] {
            let from = mm.spaces().next_guard(&space, PageSpan::new(START, Vpn::new(8192)));
            let from = from.expect("there are guards");
            let all = PageSpan::new(from, from.add(512));
            let new = mm.remap(&space, all, 512, Move::To(place)).expect("memory");
            for page in (0..512).map(|ahead| new.start.add(ahead)) {
                let here = PageSpan::new(page, page.add(1));
                assert_eq!(mm.spaces().next_guard(&space, here), Some(page));
                let fault = mm.fault(&space, page, Access::Read);
                assert_eq!(fault.err(), Some(Stop::Refuse(Error::Guarded(page))));
            }
            assert_eq!(
                mm.spaces().next_guard(&space, PageSpan::new(new.end, Vpn::new(8192))),
                None
            );
        }
        mm.destroy(space);
    });
}
