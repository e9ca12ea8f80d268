//! Groups of spaces with a limit (D6): the pages that its spaces map are charged to a group, a
//! folio that several map counts once, and no fault takes more than the limit leaves.

use std::collections::BTreeSet;

use quire::cache::{FileId, Store};
use quire::check;
use quire::fault::{Cause, SizePolicy};
use quire::inject::Folios;
use quire::space::{AreaFlags, At, Backing, GroupId, Request, Space};
use quire::table::Sight;
use quire::{Error, Holdings, Need, Resolved, Stop};
use quire_arch::{Arch, Arm4k, X86_64};
use quire_machine::Config;
use quire_sim::disk::{Disk, word};
use quire_sim::system::{self, HostedMm};
use quire_units::{Access, Asid, Order, PageSpan, Prot, VirtAddr, Vpn};

const BASE: Vpn = Vpn::new(0x10000);

fn space<A: Arch>(mm: &HostedMm<'_, '_, A>, asid: u16, pages: u64) -> Space<A> {
    let space = mm.space(Asid(asid), PageSpan::new(BASE, BASE.add(1 << 18))).unwrap();
    let request = Request { prot: Prot::RW, ..Request::anon(pages) }.at(At::Fixed(BASE));
    mm.map(&space, &request).unwrap();
    space
}

/// The frames of all folios that these spaces map, one by one.
fn frames<A: Arch>(mm: &HostedMm<'_, '_, A>, spaces: &[&Space<A>]) -> u64 {
    let folios = Folios::new(mm.bare_phys().meta());
    let mut found = BTreeSet::new();
    for space in spaces {
        mm.spaces().runs(space, PageSpan::new(BASE, BASE.add(1 << 18)), &mut |seen| {
            if let Sight::Leaf { frame, .. } = seen.what {
                for ahead in 0..seen.pages.count() {
                    let folio = folios.of(frame.add(ahead)).unwrap();
                    let head = folio.head.get();
                    found.extend(head..head + folio.order.pages());
                }
            }
        });
    }
    found.len() as u64
}

/// A swap device and its disk.
struct Device {
    disk: Disk,
    swap: FileId,
}

impl Device {
    /// Faults until it is served, as an embedder does.
    fn fault<A: Arch>(
        &self,
        mm: &HostedMm<'_, '_, A>,
        (at, all): (&Space<A>, &[&Space<A>]),
        page: Vpn,
    ) -> Resolved {
        loop {
            match mm.fault(at, page, Access::Write) {
                Ok(resolved) => return resolved,
                Err(Stop::Refuse(Error::OverLimit(group))) => {
                    mm.reclaim().relieve(group, all).unwrap();
                    self.disk.write_back(mm, self.swap, all).unwrap();
                }
                // Without memory to read into, the fault asks again.
                Err(Stop::Need(Need::Read(reads))) => drop(self.disk.serve(mm, reads)),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Two programs of a group, one forked from the other, write four times their limit, and lose no
/// word.
///
/// `beyond` is what a folio in memory, which comes back whole, and the page of it that is copied
/// may add.
fn stays_within<A: Arch>(config: Config, sizes: &[u8], beyond: u64) {
    const LIMIT: u64 = 300;
    const PAGES: u64 = 1200;
    let mut ram = system::ram(4096 << A::PAGE_SHIFT).unwrap();
    system::with::<A, _>(config, &mut ram, |machine, mm| {
        for &order in sizes {
            mm.policy().set_size(Order::new(order), SizePolicy::Always).unwrap();
        }
        let device = Device { disk: Disk::new(), swap: mm.paging().swap_on(8192).unwrap() };
        let group = mm.groups().create(None).unwrap();
        mm.groups().set_limit(group, LIMIT).unwrap();
        let parent = space(mm, 1, PAGES);
        mm.groups().join(&parent, Some(group)).unwrap();
        let cpu = machine.cpu(0);
        let mut stamps = vec![[0_u64; 2]; PAGES as usize];
        let mut write = |at: &Space<A>, all: &[&Space<A>], space: usize, nth: u64| {
            let page = nth * 7 % PAGES;
            at.enter(cpu.number());
            cpu.switch(at.root(), at.asid());
            let addr = VirtAddr::new(BASE.add(page).get() << A::PAGE_SHIFT);
            while cpu.write(addr, word(nth + 1, space)).is_err() {
                let _operation = cpu.operation("fault");
                device.fault(mm, (at, all), BASE.add(page));
            }
            stamps[page as usize][space] = word(nth + 1, space);
            let usage = mm.reclaim().usage(group, all);
            assert!(usage <= LIMIT + beyond, "{usage}");
            assert_eq!(usage, frames(mm, all), "write {nth}");
        };
        for nth in 0..800 {
            write(&parent, &[&parent], 0, nth);
        }
        cpu.leave();
        let child = mm.fork(&parent, Asid(2)).unwrap();
        assert_eq!(child.group(), Some(group));
        let both = [&parent, &child];
        for nth in 800..1600 {
            let space = (nth % 2) as usize;
            write(both[space], &both, space, nth);
        }
        for (page, stamp) in stamps.iter().enumerate().filter(|(_, stamp)| stamp[0] > 0) {
            let addr = VirtAddr::new(BASE.add(page as u64).get() << A::PAGE_SHIFT);
            parent.enter(cpu.number());
            cpu.switch(parent.root(), parent.asid());
            while cpu.read(addr) != Ok(stamp[0]) {
                assert!(cpu.read(addr).is_err(), "page {page} is not what was written");
                let _operation = cpu.operation("fault");
                device.fault(mm, (&parent, &both), BASE.add(page as u64));
            }
        }
        cpu.leave();
        check::system(mm, &both).unwrap();
        mm.destroy(parent);
        mm.destroy(child);
        assert_eq!(mm.reclaim().usage(group, &[] as &[&Space<A>]), 0);
        mm.groups().end(group).unwrap();
        machine.audit().unwrap();
    })
    .unwrap();
}

#[test]
fn d6_a_group_never_has_more_than_its_limit_x86_64_in_pages() {
    stays_within::<X86_64>(Config::x86_64(), &[], 0);
}

#[test]
fn d6_a_group_never_has_more_than_its_limit_arm64_in_all_sizes() {
    stays_within::<Arm4k>(Config::arm64_4k(), &[2, 4, 6, 9], 64);
}

#[test]
fn d6_a_fault_over_the_limit_names_the_group_and_other_groups_go_on() {
    let mut ram = system::ram(2048 << 12).unwrap();
    system::with::<X86_64, _>(Config::x86_64(), &mut ram, |_, mm| {
        let outer = mm.groups().create(None).unwrap();
        let inner = mm.groups().create(Some(outer)).unwrap();
        let other = mm.groups().create(Some(outer)).unwrap();
        mm.groups().set_limit(inner, 8).unwrap();
        mm.groups().set_limit(outer, 12).unwrap();
        let (one, two, free) = (space(mm, 1, 64), space(mm, 2, 64), space(mm, 3, 64));
        mm.groups().join(&one, Some(inner)).unwrap();
        mm.groups().join(&two, Some(other)).unwrap();
        let all = [&one, &two, &free];
        // Relieves a group that a fault names, once, and touches pages until that does not help.
        let eat = |space: &Space<X86_64>| {
            let mut page = 0;
            loop {
                match mm.fault(space, BASE.add(page), Access::Write) {
                    Ok(_) => page += 1,
                    Err(Stop::Refuse(Error::OverLimit(group))) => {
                        match mm.reclaim().relieve(group, &all[..]) {
                            Ok(relieved) => assert!(relieved.room > 0),
                            Err(error) => return (page, error),
                        }
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        };
        assert_eq!(eat(&one), (8, Error::OverLimit(inner)));
        assert_eq!(eat(&two), (4, Error::OverLimit(outer)));
        assert_eq!(
            (mm.reclaim().usage(outer, &all[..]), mm.reclaim().usage(other, &all[..])),
            (12, 4)
        );
        // A space in no group has no limit; a space that leaves a group has none either.
        mm.populate(&free, PageSpan::new(BASE, BASE.add(64))).unwrap();
        mm.groups().join(&one, None).unwrap();
        mm.populate(&one, PageSpan::new(BASE, BASE.add(64))).unwrap();
        assert_eq!(mm.reclaim().usage(outer, &all[..]), 4);
        for space in [one, two, free] {
            mm.destroy(space);
        }
    })
    .unwrap();
}

#[test]
fn d6_shared_pages_count_by_shares() {
    let mut ram = system::ram(1024 << 12).unwrap();
    system::with::<X86_64, _>(Config::x86_64(), &mut ram, |_, mm| {
        let group = mm.groups().create(None).unwrap();
        let parent = space(mm, 1, 64);
        mm.groups().join(&parent, Some(group)).unwrap();
        let children: Vec<_> = (2..5)
            .map(|asid| {
                if asid == 2 {
                    while let Err(Stop::Refuse(Error::OverLimit(id))) =
                        mm.populate(&parent, PageSpan::new(BASE, BASE.add(64)))
                    {
                        mm.reclaim().relieve(id, &[&parent][..]).unwrap();
                    }
                }
                mm.fork(&parent, Asid(asid)).unwrap()
            })
            .collect();
        let all: Vec<_> = children.iter().chain([&parent]).collect();
        assert_eq!(mm.reclaim().usage(group, &all[..]), 64, "all are in the group");
        for child in &children {
            mm.groups().join(child, None).unwrap();
        }
        assert_eq!(mm.reclaim().usage(group, &all[..]), 16, "one of four has a quarter");
        children.into_iter().for_each(|child| mm.destroy(child));
        assert_eq!(mm.reclaim().usage(group, &[&parent][..]), 64);
        mm.destroy(parent);
    })
    .unwrap();
}

#[test]
fn d6_holdings_of_a_group_are_told_by_kinds_and_paged_out_on_request() {
    let mut ram = system::ram(2048 << 12).unwrap();
    system::with::<X86_64, _>(Config::x86_64(), &mut ram, |_, mm| {
        let device = Device { disk: Disk::new(), swap: mm.paging().swap_on(1024).unwrap() };
        let group = mm.groups().create(None).unwrap();
        let (one, other) = (space(mm, 1, 64), space(mm, 2, 64));
        mm.groups().join(&one, Some(group)).unwrap();
        mm.reclaim().relieve(group, &[&one][..]).unwrap();
        let file = mm.files().open(Store::Memory, 16, Order::ZERO).unwrap();
        let backing = Backing::File { id: file, page: 0 };
        let shared = Request { prot: Prot::RW, backing, ..Request::anon(16) };
        let shared = Request { flags: AreaFlags::SHARED, ..shared }.at(At::Fixed(BASE.add(64)));
        for space in [&one, &other] {
            mm.map(space, &shared).unwrap();
            mm.populate(space, PageSpan::new(BASE, BASE.add(80))).unwrap();
        }
        let all = [&one, &other];
        let told = |id| mm.reclaim().holdings(id, &all[..]);
        let before = Holdings { anon: 64, shared: 8, file: 0, swapped: 0 };
        assert_eq!((told(Some(group)), mm.reclaim().usage(group, &all[..])), (before, 72));
        assert_eq!(told(None), Holdings { anon: 128, shared: 16, ..before });
        assert_eq!(mm.reclaim().page_out_group(group, 40, &all[..]), Ok(40));
        device.disk.write_back(mm, device.swap, &all).unwrap();
        let after = Holdings { anon: 24, swapped: 40, ..before };
        assert_eq!(told(Some(group)), after);
        assert_eq!(mm.paging().swapped(&other), 0, "the other one is in no group");
        // Half of what is on the device is each one's, when there are two.
        let child = mm.fork(&one, Asid(3)).unwrap();
        mm.groups().join(&child, None).unwrap();
        let three = [&one, &other, &child];
        let half = Holdings { anon: 12, shared: 5, file: 0, swapped: 20 };
        assert_eq!(mm.reclaim().holdings(Some(group), &three[..]), half);
        // Lent pages may be taken whatever the limit is.
        mm.groups().set_limit(group, 1).unwrap();
        let page = BASE.add(200);
        mm.map(&one, &Request { prot: Prot::RW, ..Request::anon(2) }.at(At::Fixed(page))).unwrap();
        let over = Err(Error::OverLimit(group).into());
        assert_eq!(mm.fault(&one, page, Access::Write), over);
        mm.groups().lend(group, 1);
        assert!(mm.fault(&one, page, Access::Write).is_ok());
        assert_eq!(mm.fault(&one, page.add(1), Access::Write), over);
        mm.groups().end(group).unwrap();
        assert_eq!(mm.reclaim().page_out_group(group, 1, &three[..]), Err(Error::NoGroup));
        for space in [one, other, child] {
            mm.destroy(space);
        }
        mm.files().truncate(file, 0, &[] as &[&Space<X86_64>]).unwrap();
        mm.files().close(file).unwrap();
    })
    .unwrap();
}

#[test]
fn d6_a_folio_that_the_limit_has_no_room_for_is_a_smaller_one() {
    let mut ram = system::ram(4096 << 12).unwrap();
    system::with::<X86_64, _>(Config::x86_64(), &mut ram, |_, mm| {
        for order in [4, 9] {
            mm.policy().set_size(Order::new(order), SizePolicy::Always).unwrap();
        }
        let group = mm.groups().create(None).unwrap();
        mm.groups().set_limit(group, 100).unwrap();
        let one = space(mm, 1, 512);
        mm.groups().join(&one, Some(group)).unwrap();
        mm.reclaim().relieve(group, &[&one][..]).unwrap();
        let resolved = mm.fault(&one, BASE.add(5), Access::Write).unwrap();
        assert!(matches!(resolved, Resolved::Mapped(made) if made.order == Order::new(4)));
        assert_eq!(mm.totals().fallback[9][Cause::Charge as usize], 1);
        assert_eq!(mm.reclaim().usage(group, &[&one][..]), 16);
        mm.destroy(one);
        let ghost = GroupId::new(40).unwrap();
        assert_eq!(mm.groups().set_limit(ghost, 1), Err(Error::NoGroup));
        assert_eq!(mm.groups().create(Some(ghost)), Err(Error::NoGroup));
    })
    .unwrap();
}

/// A collapse fills missing pages with zeroes: no more than the group has room for.
#[test]
fn d6_a_collapse_takes_no_more_than_the_limit_leaves() {
    let mut ram = system::ram(4096 << 12).unwrap();
    system::with::<X86_64, _>(Config::x86_64(), &mut ram, |_, mm| {
        let group = mm.groups().create(None).unwrap();
        mm.groups().set_limit(group, 40).unwrap();
        let one = space(mm, 1, 64);
        mm.groups().join(&one, Some(group)).unwrap();
        let all = [&one];
        mm.reclaim().relieve(group, &all[..]).unwrap();
        (0..64).step_by(16).for_each(|at| {
            mm.fault(&one, BASE.add(at), Access::Write).unwrap();
        });
        let whole = PageSpan::new(BASE, BASE.add(64));
        assert_eq!(mm.reclaim().collapse(&one, whole, Order::new(4)), Err(Error::OverLimit(group)));
        assert_eq!(mm.reclaim().usage(group, &all[..]), 34, "two blocks of four, and two pages");
        mm.reclaim().relieve(group, &all[..]).unwrap();
        assert_eq!(mm.reclaim().collapse(&one, whole, Order::new(4)), Err(Error::OverLimit(group)));
        mm.groups().set_limit(group, 64).unwrap();
        mm.reclaim().relieve(group, &all[..]).unwrap();
        assert_eq!(mm.reclaim().collapse(&one, whole, Order::new(4)).unwrap().made, 2);
        assert_eq!(mm.reclaim().usage(group, &all[..]), 64);
        mm.destroy(one);
    })
    .unwrap();
}

/// Pages that a fault maps around its own are charged, too, also if it copies its own at once.
#[test]
fn d6_fault_around_takes_no_more_than_the_limit_leaves() {
    const LIMIT: u64 = 100;
    let mut ram = system::ram(4096 << 12).unwrap();
    system::with::<X86_64, _>(Config::x86_64(), &mut ram, |_, mm| {
        let file = mm.files().open(Store::Memory, 512, Order::ZERO).unwrap();
        let backing = Backing::File { id: file, page: 0 };
        let start = BASE.add(64);
        let private =
            Request { prot: Prot::RW, backing, ..Request::anon(512) }.at(At::Fixed(start));
        let (one, other) = (space(mm, 1, 64), space(mm, 2, 64));
        mm.map(&other, &Request { flags: AreaFlags::SHARED, ..private }).unwrap();
        mm.populate(&other, PageSpan::new(start, start.add(512))).unwrap();
        mm.map(&one, &private).unwrap();
        let group = mm.groups().create(None).unwrap();
        mm.groups().set_limit(group, LIMIT).unwrap();
        mm.groups().join(&one, Some(group)).unwrap();
        mm.reclaim().relieve(group, &[&one, &other][..]).unwrap();
        let mut pages = (0..512).step_by(16).map(|at| start.add(at));
        let full = pages.find(|&page| mm.fault(&one, page, Access::Write).is_err()).unwrap();
        assert_eq!(mm.fault(&one, full, Access::Write), Err(Error::OverLimit(group).into()));
        let mapped = mm.resident(&one);
        assert!((LIMIT / 2..=LIMIT + 1).contains(&mapped), "{mapped} pages of {LIMIT}");
        mm.destroy(one);
        mm.destroy(other);
        mm.files().truncate(file, 0, &[] as &[&Space<X86_64>]).unwrap();
        mm.files().close(file).unwrap();
    })
    .unwrap();
}
