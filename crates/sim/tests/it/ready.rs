//! Pages that are made ready to be written beforehand (`MADV_POPULATE_WRITE`), and what is
//! written where the program may not (`/proc/PID/mem`).

use quire::Error;
use quire::space::{AreaFlags, At, Request, Space};
use quire::stats::Event::CowCopy;
use quire_arch::{Arch, Arm4k, Attrs, Sv39, X86_64};
use quire_machine::{Config, Cpu};
use quire_sim::program::{Program, Stopped};
use quire_sim::stage::{Meter, leaves, place, space_of, span, stage, verify};
use quire_sim::system::HostedMm;
use quire_units::{Access, Asid, PageSpan, Prot, Vpn};

/// Pages of the area, and the folios it gets.
const PAGES: u64 = 64;
const ORDER: u8 = 4;

/// A test on one format.
type Story<A> = for<'m, 'r> fn(&HostedMm<'m, 'r, A>, &Cpu<'m, 'r>);

fn on_each(x86: Story<X86_64>, arm: Story<Arm4k>, riscv: Story<Sv39>) {
    stage::<X86_64>(Config::x86_64(), 4096, &[ORDER], x86);
    stage::<Arm4k>(Config::arm64_4k(), 4096, &[ORDER], arm);
    stage::<Sv39>(Config::riscv64_sv39(), 4096, &[ORDER], riscv);
}

fn page<A: Arch>(number: u64) -> Vpn {
    place::<A>().add(number)
}

/// How many pages are mapped and have all of `attrs`.
fn having<A: Arch>(mm: &HostedMm<'_, '_, A>, space: &Space<A>, attrs: Attrs) -> u64 {
    let all = leaves(mm, space);
    let such = all.iter().filter(|leaf| leaf.attrs.contains(attrs));
    such.map(|leaf| leaf.pages.count()).sum()
}

fn becomes_its_own<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let space = space_of(mm, PAGES, AreaFlags::empty());
    let program = Program::on(cpu, mm, &space);
    for number in 0..PAGES {
        program.write(page::<A>(number), number + 1).unwrap();
    }
    let child = mm.fork(&space, Asid(space.asid().0 + 1)).unwrap();
    let meter = Meter::new(mm);
    assert_eq!(mm.populate(&child, span::<A>(0, PAGES)).unwrap().pages, 0, "{}", A::NAME);
    assert_eq!(meter.event(CowCopy), 0, "{}: to be read, nothing is lacking", A::NAME);
    {
        let _op = cpu.operation("populate");
        mm.populate_written(&child, span::<A>(0, PAGES)).unwrap();
    }
    assert_eq!(meter.event(CowCopy), PAGES, "{}", A::NAME);
    assert_eq!(having(mm, &child, Attrs::WRITE | Attrs::DIRTY), PAGES, "{}", A::NAME);
    let within = Program::on(cpu, mm, &child);
    for number in 0..PAGES {
        assert_eq!(within.read(page::<A>(number)), Ok(number + 1), "{}", A::NAME);
        assert_eq!(within.write(page::<A>(number), 0), Ok(vec![]), "{}: no fault", A::NAME);
    }
    verify(mm, &[&space, &child]);
    cpu.leave();
    mm.destroy(child);
    mm.destroy(space);
}

#[test]
fn c4_pages_made_ready_to_be_written_are_exclusive() {
    on_each(becomes_its_own, becomes_its_own, becomes_its_own);
}

fn counts_as_written<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let space = space_of(mm, PAGES, AreaFlags::empty());
    let all = span::<A>(0, PAGES);
    let _program = Program::on(cpu, mm, &space);
    mm.spaces().track(&space, all).unwrap();
    {
        let _op = cpu.operation("populate");
        mm.populate(&space, PageSpan::new(all.start, all.start.add(PAGES / 2))).unwrap();
    }
    assert_eq!(having(mm, &space, Attrs::DIRTY), 0, "{}", A::NAME);
    {
        let _op = cpu.operation("populate");
        mm.populate_written(&space, all).unwrap();
    }
    assert_eq!(having(mm, &space, Attrs::DIRTY), PAGES, "{}: there or not before", A::NAME);
    mm.protect(&space, all, Prot::READ).unwrap();
    let denied = Error::Denied(all.start, Access::Write, Prot::READ);
    assert_eq!(mm.populate_written(&space, all), Err(denied.into()), "{}", A::NAME);
    verify(mm, &[&space]);
    cpu.leave();
    mm.destroy(space);
}

#[test]
fn d4_pages_made_ready_to_be_written_count_as_written() {
    on_each(counts_as_written, counts_as_written, counts_as_written);
}

fn is_changed_alone<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let space = space_of(mm, PAGES, AreaFlags::empty());
    let all = span::<A>(0, PAGES);
    let program = Program::on(cpu, mm, &space);
    program.write(page::<A>(3), 3).unwrap();
    {
        let _op = cpu.operation("track").cleans();
        mm.protect(&space, all, Prot::READ).unwrap();
        mm.spaces().track(&space, all).unwrap();
    }
    let child = mm.fork(&space, Asid(space.asid().0 + 1)).unwrap();
    for (number, old) in [(3, 3), (40, 0)] {
        let pinned = {
            let _op = cpu.operation("pin");
            mm.pin_change(&child, page::<A>(number)).unwrap()
        };
        let word = pinned.frame().addr(A::PAGE_SHIFT);
        assert_eq!(mm.hardware().ram().read_word(word), Some(old), "{}", A::NAME);
        mm.hardware().ram().write_word(word, 99);
        mm.unpin(pinned);
        assert_eq!(Program::on(cpu, mm, &space).read(page::<A>(number)), Ok(old), "{}", A::NAME);
        let within = Program::on(cpu, mm, &child);
        assert_eq!(within.read(page::<A>(number)), Ok(99), "{}", A::NAME);
        let denied = Error::Denied(page::<A>(number), Access::Write, Prot::READ);
        let refused = within.write(page::<A>(number), 1);
        assert_eq!(refused, Err(Stopped::Refused(denied)), "{}: no right was given", A::NAME);
        let noted = leaves(mm, &child);
        let leaf = noted.iter().find(|leaf| leaf.pages.contains(page::<A>(number))).unwrap();
        assert!(leaf.attrs.contains(Attrs::DIRTY), "{}: it counts as written", A::NAME);
    }
    verify(mm, &[&space, &child]);
    cpu.leave();
    mm.destroy(child);
    mm.destroy(space);
}

#[test]
fn c4_a_forced_write_stays_private() {
    on_each(is_changed_alone, is_changed_alone, is_changed_alone);
}

#[test]
fn c4_no_call_changes_read_only_or_shared_pages() {
    stage::<X86_64>(Config::x86_64(), 4096, &[ORDER], |mm, cpu| {
        let space = space_of(mm, PAGES, AreaFlags::empty());
        let at = |number| At::Fixed(page::<X86_64>(number));
        let never = Request { max_prot: Prot::READ, ..Request::anon(1).prot(Prot::READ).at(at(0)) };
        mm.map(&space, &never).unwrap();
        let shared = Request::anon(1).prot(Prot::READ).flags(AreaFlags::SHARED).at(at(1));
        mm.map(&space, &shared).unwrap();
        mm.map(&space, &Request::anon(1).prot(Prot::empty()).at(at(2))).unwrap();
        for (number, access, prot) in [
            (0, Access::Write, Prot::READ),
            (1, Access::Write, Prot::READ),
            (2, Access::Read, Prot::empty()),
        ] {
            let denied = Error::Denied(page::<X86_64>(number), access, prot);
            let refused = mm.pin_change(&space, page::<X86_64>(number)).map(drop);
            assert_eq!(refused, Err(denied.into()), "{number}");
        }
        let beyond = page::<X86_64>(PAGES);
        assert_eq!(mm.pin_change(&space, beyond).map(drop), Err(Error::NoArea(beyond).into()));
        cpu.leave();
        mm.destroy(space);
    });
}
