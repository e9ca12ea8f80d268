//! Moving and resizing areas keeps their content, on every format (E3).

use proptest::prelude::*;
use quire::fault::SizePolicy;
use quire::space::{AreaFlags, At, Request, Space};
use quire::stats::Event;
use quire::{Error, Mm, Move};
use quire_arch::{Arch, Arm4k, Arm16k, Arm64k, Sv39, Sv48, X86_64};
use quire_machine::{Config, Cpu, Machine};
use quire_sim::program::{Program as Run, Stopped};
use quire_sim::stage::{Meter, place, space_of, span, stage, verify};
use quire_sim::system;
use quire_units::{Access, Asid, Order, PageSpan, VirtAddr, Vpn};

/// The program's view: writes and reads that fault until they succeed.
struct Program<'a, 'm, 'r, A: Arch> {
    cpu: &'a Cpu<'m, 'r>,
    mm: &'a Mm<'a, A, Machine<'r>>,
    space: &'a Space<A>,
}

impl<A: Arch> Program<'_, '_, '_, A> {
    fn addr(page: Vpn) -> VirtAddr {
        page.addr(A::PAGE_SHIFT)
    }

    fn write(&self, page: Vpn, value: u64) {
        while self.cpu.write(Self::addr(page), value).is_err() {
            let _op = self.cpu.operation("fault");
            self.mm.fault(self.space, page, Access::Write).unwrap();
        }
    }

    fn read(&self, page: Vpn) -> u64 {
        loop {
            match self.cpu.read(Self::addr(page)) {
                Ok(value) => return value,
                Err(_) => {
                    let _op = self.cpu.operation("fault");
                    self.mm.fault(self.space, page, Access::Read).unwrap();
                }
            }
        }
    }
}

/// Maps `pages`, writes every `stride`-th, moves them to an address `skew` pages off alignment and
/// makes them `resized` pages, and reads everything back.
fn moves<A: Arch>(config: Config, (pages, stride, skew, resized): (u64, u64, u64, u64)) {
    let mut ram = system::ram(64 << 20 << (A::PAGE_SHIFT - 12)).unwrap();
    system::with::<A, _>(config, &mut ram, |machine, mm| {
        let before = mm.phys().free_frames();
        for order in [2, 4, A::block_order().get().min(10)] {
            mm.policy().set_size(Order::new(order), SizePolicy::Always).unwrap();
        }
        let window = PageSpan::new(Vpn::new(1 << 14), Vpn::new(1 << 20));
        let space = mm.space(Asid(7), window).unwrap();
        let cpu = machine.cpu(0);
        cpu.bind();
        space.enter(cpu.number());
        cpu.switch(space.root(), space.asid());
        let program = Program { cpu: &cpu, mm, space: &space };
        let old = mm.map(&space, &Request::anon(pages)).unwrap();
        for page in (0..pages).step_by(stride as usize) {
            program.write(old.start.add(page), page + 1);
        }
        let target = Vpn::new((1 << 12) + skew);
        let new = {
            let _op = cpu.operation("remap");
            mm.remap(&space, old, resized, Move::To(target)).unwrap()
        };
        assert_eq!(new, PageSpan::at(target, resized).unwrap());
        assert!(cpu.read(program_addr::<A>(old.start)).is_err(), "the old place is free");
        assert_eq!(mm.fault(&space, old.start, Access::Read), Err(Error::NoArea(old.start).into()));
        for page in 0..resized {
            let written = page < pages && page % stride == 0;
            assert_eq!(program.read(new.start.add(page)), if written { page + 1 } else { 0 });
        }
        cpu.leave();
        mm.destroy(space);
        machine.verdict().unwrap();
        machine.audit().unwrap();
        assert_eq!(mm.phys().free_frames(), before, "nothing lost");
    })
    .unwrap();
}

fn program_addr<A: Arch>(page: Vpn) -> VirtAddr {
    page.addr(A::PAGE_SHIFT)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn e3_moved_pages_keep_their_contents(
        pages in 1u64..1500,
        stride in 1u64..40,
        skew in prop_oneof![Just(0u64), Just(512), 0u64..1024],
        resized in 1u64..1600,
    ) {
        let case = (pages, stride, skew, resized);
        moves::<X86_64>(Config::x86_64(), case);
        moves::<Arm4k>(Config::arm64_4k(), case);
        moves::<Arm16k>(Config::arm64_16k(), case);
        moves::<Arm64k>(Config::arm64_64k(), case);
        moves::<Sv39>(Config::riscv64_sv39(), case);
        let by_hand = Config { sets_accessed: false, sets_dirty: false, ..Config::riscv64_sv48() };
        moves::<Sv48>(by_hand, case);
    }
}

#[test]
fn e3_an_area_grows_in_place_or_moves_if_it_may() {
    let mut ram = system::ram(16 << 20).unwrap();
    system::with::<X86_64, _>(Config::x86_64(), &mut ram, |_, mm| {
        let window = PageSpan::new(Vpn::new(1000), Vpn::new(2000));
        let space = mm.space(Asid(1), window).unwrap();
        let at = |page| Request::anon(10).at(At::Fixed(Vpn::new(page)));
        let area = mm.map(&space, &at(1100)).unwrap();
        let grown = mm.remap(&space, area, 20, Move::Never).unwrap();
        assert_eq!(grown, PageSpan::at(Vpn::new(1100), 20).unwrap());
        assert_eq!(space.area_count(), 1, "one area, not two");
        mm.map(&space, &at(1120).flags(quire::space::AreaFlags::NOHUGE)).unwrap();
        assert_eq!(mm.remap(&space, grown, 21, Move::Never), Err(Error::NoRoom(1)));
        let moved = mm.remap(&space, grown, 30, Move::Allowed).unwrap();
        assert_eq!((moved.count(), moved.overlaps(grown)), (30, false));
        assert_eq!(mm.remap(&space, moved, 5, Move::Never).unwrap().count(), 5);
        assert_eq!(mm.remap(&space, moved, 5, Move::Never), Err(Error::NoArea(moved.start.add(5))));
        mm.destroy(space);
    })
    .unwrap();
}

/// Moves what two tables of the last level translate, of which every page is another folio.
fn moves_tables<A: Arch>(config: Config) {
    let reach = A::block_order().pages();
    stage::<A>(config, 3 * reach as usize, &[], |mm, cpu| {
        let space = space_of(mm, 2 * reach, AreaFlags::empty());
        let program = Run::on(cpu, mm, &space);
        for page in 0..2 * reach {
            program.write(place::<A>().add(page), page).unwrap();
        }
        let to = place::<A>().add(4 * reach);
        let meter = Meter::new(mm);
        {
            let _op = cpu.operation("remap");
            mm.remap(&space, span::<A>(0, 2 * reach), 2 * reach, Move::To(to)).unwrap();
        }
        assert!(meter.stores() < 64, "{}: {} stores for two tables", A::NAME, meter.stores());
        assert_eq!(meter.event(Event::Flush), 1, "{}", A::NAME);
        verify(mm, &[&space]);
        assert!((0..2 * reach).all(|page| program.read(to.add(page)) == Ok(page)), "{}", A::NAME);
        let gone = program.read(place::<A>());
        assert_eq!(gone, Err(Stopped::Refused(Error::NoArea(place::<A>()))), "{}", A::NAME);
        cpu.leave();
        mm.destroy(space);
    });
}

#[test]
fn e3_aligned_tables_are_moved_whole() {
    moves_tables::<X86_64>(Config::x86_64());
    moves_tables::<Arm4k>(Config::arm64_4k());
    moves_tables::<Sv39>(Config::riscv64_sv39());
}

/// Moves pages away from an area that stays, whole tables of them where they are aligned alike.
fn keeps_the_old_area<A: Arch>(config: Config) {
    let reach = A::block_order().pages();
    stage::<A>(config, 5 * reach as usize, &[3], |mm, cpu| {
        let space = space_of(mm, 2 * reach, AreaFlags::LOCKED | AreaFlags::LOCK_ON_FAULT);
        let program = Run::on(cpu, mm, &space);
        for page in (0..2 * reach).step_by(7) {
            program.write(place::<A>().add(page), page + 1).unwrap();
        }
        let resident = mm.resident(&space);
        for (number, skew) in [0, 3].into_iter().enumerate() {
            // The first time the pages go where the tables do; the second time back, askew.
            let to = place::<A>().add(4 * reach * (number as u64 + 1) + skew);
            let from =
                if number == 0 { span::<A>(0, 2 * reach) } else { span::<A>(4 * reach, 2 * reach) };
            let meter = Meter::new(mm);
            let moved = {
                let _op = cpu.operation("remap");
                mm.remap(&space, from, 2 * reach, Move::Keep(At::Fixed(to)))
            };
            assert_eq!(moved, Ok(PageSpan::new(to, to.add(2 * reach))), "{}", A::NAME);
            assert_eq!(meter.event(Event::Flush), 1, "{}", A::NAME);
            assert_eq!(mm.resident(&space), resident, "{}: moved, not copied", A::NAME);
            let left = mm.spaces().areas(&space, from).next().map(|area| (area.span, area.flags));
            assert_eq!(left, Some((from, AreaFlags::empty())), "{}: not locked", A::NAME);
            let gone = mm.spaces().areas(&space, moved.unwrap()).next().map(|area| area.flags);
            assert_eq!(gone, Some(AreaFlags::LOCKED | AreaFlags::LOCK_ON_FAULT), "{}", A::NAME);
            verify(mm, &[&space]);
            let word = |page: u64| if page.is_multiple_of(7) { page + 1 } else { 0 };
            let arrived = |page| program.read(to.add(page)) == Ok(word(page));
            assert!((0..2 * reach).step_by(7).all(arrived), "{}", A::NAME);
            let empty = |page| program.read(from.start.add(page)) == Ok(0);
            assert!((0..2 * reach).step_by(7).all(empty), "{}: zero again", A::NAME);
            mm.discard(&space, from).unwrap();
        }
        cpu.leave();
        mm.destroy(space);
    });
}

#[test]
fn e3_pages_that_move_away_from_an_area_that_stays_leave_zeroes() {
    keeps_the_old_area::<X86_64>(Config::x86_64());
    keeps_the_old_area::<Arm4k>(Config::arm64_4k());
    keeps_the_old_area::<Sv39>(Config::riscv64_sv39());
}

#[test]
fn e3_an_area_that_stays_keeps_its_length() {
    stage::<X86_64>(Config::x86_64(), 2048, &[], |mm, _| {
        let space = space_of(mm, 8, AreaFlags::empty());
        let more = Request::anon(8).at(At::Fixed(place::<X86_64>().add(8)));
        mm.map(&space, &more.flags(AreaFlags::SEQUENTIAL)).unwrap();
        let refused = Err(Error::Invalid);
        let away = |from, count, pages, at| {
            mm.remap(&space, span::<X86_64>(from, count), pages, Move::Keep(at))
        };
        assert_eq!(away(0, 8, 9, At::Anywhere), refused);
        assert_eq!(away(0, 8, 7, At::Anywhere), refused);
        assert_eq!(away(0, 4, 4, At::Fixed(place::<X86_64>().add(3))), refused, "overlapping");
        let taken = mm.spaces().areas(&space, span::<X86_64>(8, 1)).next().unwrap();
        let there = At::FixedNoReplace(taken.span.start);
        assert_eq!(away(0, 4, 4, there), Err(Error::Exists(taken)));
        assert_eq!(away(6, 4, 4, At::Anywhere), Err(Error::NoArea(taken.span.start)));
        assert_eq!(space.area_count(), 2);
        mm.destroy(space);
    });
}
