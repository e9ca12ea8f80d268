//! Pages of zeroes that are given back, sealed areas, and areas whose content may be lost.

use quire::space::{AreaFlags, At, Request};
use quire::table::{Divided, Division};
use quire::{Error, Move};
use quire_arch::{Arch, Arm4k, Sv39, X86_64};
use quire_machine::Config;
use quire_sim::program::{Program, Stopped};
use quire_sim::stage::{leaves, place, space_of, span, stage, verify};
use quire_units::{Access, Asid, Order, PageSpan, Prot, Vpn};

const PAGES: u64 = 64;

fn page<A: Arch>(number: u64) -> Vpn {
    place::<A>().add(number)
}

fn gives_zeroes_back<A: Arch>(config: Config) {
    stage::<A>(config, 4096, &[4], |mm, cpu| {
        let space = space_of(mm, PAGES, AreaFlags::empty());
        let program = Program::on(cpu, mm, &space);
        let all = span::<A>(0, PAGES);
        for number in 0..PAGES {
            // Each third page is nonzero; one was, and is zero again.
            program.write(page::<A>(number), u64::from(number % 3 == 0) * number).unwrap();
        }
        program.write(page::<A>(6), 0).unwrap();
        let drop_zeroes = || {
            let _op = cpu.operation("drop").cleans();
            mm.reclaim().drop_zeroes(&space, all).unwrap()
        };
        assert_eq!(drop_zeroes(), 0, "{}: of large folios none", A::NAME);
        for block in (0..PAGES).step_by(16) {
            let _op = cpu.operation("divide");
            mm.spaces().divide(&space, page::<A>(block), Division::Uniform(Order::ZERO)).unwrap();
        }
        let pinned = mm.pin(&space, page::<A>(1), Access::Write).unwrap();
        let full = (1..PAGES).filter(|number| number % 3 == 0 && *number != 6).count() as u64;
        let before = mm.phys().free_frames();
        assert_eq!(drop_zeroes(), PAGES - full - 1, "{}: but the pinned one", A::NAME);
        assert_eq!(mm.phys().free_frames() - before, PAGES - full - 1, "{}", A::NAME);
        mm.unpin(pinned);
        verify(mm, &[&space]);
        for number in 0..PAGES {
            let held = u64::from(number % 3 == 0 && number != 6) * number;
            assert_eq!(program.read(page::<A>(number)), Ok(held), "{}: page {number}", A::NAME);
        }
        // Shared folios stay.
        let child = mm.fork(&space, Asid(space.asid().0 + 1)).unwrap();
        assert_eq!(drop_zeroes(), 0, "{}", A::NAME);
        verify(mm, &[&space, &child]);
        cpu.leave();
        mm.destroy(child);
        mm.destroy(space);
    });
}

#[test]
fn d6_pages_of_zeroes_are_given_back_and_read_as_zero() {
    gives_zeroes_back::<X86_64>(Config::x86_64());
    gives_zeroes_back::<Arm4k>(Config::arm64_4k());
    gives_zeroes_back::<Sv39>(Config::riscv64_sv39());
}

#[test]
fn e3_a_sealed_area_stays_what_it_is() {
    stage::<X86_64>(Config::x86_64(), 4096, &[4], |mm, cpu| {
        let space = space_of(mm, PAGES, AreaFlags::empty());
        let program = Program::on(cpu, mm, &space);
        program.write(page::<X86_64>(20), 20).unwrap();
        let (part, all) = (span::<X86_64>(16, 8), span::<X86_64>(0, PAGES));
        let beyond = PageSpan::new(part.start, all.end.add(1));
        assert_eq!(mm.spaces().seal(&space, beyond), Err(Error::NoArea(all.end)));
        mm.spaces().seal(&space, part).unwrap();
        mm.spaces().seal(&space, part).unwrap();
        let child = mm.fork(&space, Asid(space.asid().0 + 1)).unwrap();
        let at = At::Fixed(part.start.add(2));
        for space in [&space, &child] {
            let sealed = Err(Error::Sealed(part.start));
            assert_eq!(mm.unmap(space, all), sealed);
            assert_eq!(mm.protect(space, all, Prot::READ), sealed);
            let over = mm.map(space, &Request::anon(1).at(at)).map(drop);
            assert_eq!(over, Err(Error::Sealed(part.start.add(2))));
            let moved = |old, pages, how| mm.remap(space, old, pages, how).map(drop);
            assert_eq!(moved(part, 8, Move::Keep(At::Anywhere)), sealed);
            assert_eq!(moved(part, 4, Move::Never), sealed);
            let onto = moved(span::<X86_64>(40, 4), 4, Move::To(part.start));
            assert_eq!(onto, sealed, "nor does anything come to lie there");
            mm.discard(space, part).unwrap();
            mm.spaces().set_flags(space, part, AreaFlags::DONTDUMP, AreaFlags::empty()).unwrap();
            mm.unmap(space, span::<X86_64>(0, 16)).unwrap();
        }
        verify(mm, &[&space, &child]);
        cpu.leave();
        mm.destroy(child);
        mm.destroy(space);
    });
}

#[test]
fn e3_a_sealed_area_that_cannot_be_written_keeps_its_content() {
    stage::<X86_64>(Config::x86_64(), 4096, &[4], |mm, cpu| {
        let space = space_of(mm, PAGES, AreaFlags::empty());
        let program = Program::on(cpu, mm, &space);
        program.write(page::<X86_64>(3), 3).unwrap();
        let all = span::<X86_64>(0, PAGES);
        {
            let _op = cpu.operation("protect");
            mm.protect(&space, all, Prot::READ).unwrap();
        }
        mm.spaces().seal(&space, all).unwrap();
        let sealed = Err(Error::Sealed(all.start));
        assert_eq!(mm.discard(&space, all), sealed);
        assert_eq!(mm.spaces().free_lazily(&space, all), sealed);
        assert_eq!(mm.spaces().guard(&space, all), sealed);
        for loses in [AreaFlags::WIPEONFORK, AreaFlags::DONTFORK] {
            assert_eq!(mm.spaces().set_flags(&space, all, loses, AreaFlags::empty()), sealed);
        }
        assert_eq!(program.read(page::<X86_64>(3)), Ok(3));
        cpu.leave();
        mm.destroy(space);
    });
}

fn loses_old_pages<A: Arch>(config: Config) {
    stage::<A>(config, 4096, &[4], |mm, cpu| {
        let space = space_of(mm, PAGES, AreaFlags::DROPPABLE);
        let program = Program::on(cpu, mm, &space);
        for number in 0..PAGES {
            program.write(page::<A>(number), number + 1).unwrap();
        }
        let reclaim = |pages| {
            let _op = cpu.operation("reclaim").cleans();
            mm.reclaim().reclaim(pages, &[&space][..]).pages()
        };
        let before = mm.phys().free_frames();
        assert!(reclaim(16) >= 16, "{}: there is no swap device", A::NAME);
        assert!(mm.phys().free_frames() >= before + 16, "{}", A::NAME);
        verify(mm, &[&space]);
        let read: Result<Vec<u64>, Stopped> =
            (0..PAGES).map(|number| program.read(page::<A>(number))).collect();
        let read = read.unwrap();
        let lost = read.iter().filter(|word| **word == 0).count();
        assert!((16..PAGES as usize).contains(&lost), "{}: {lost} lost", A::NAME);
        let kept = read.iter().zip(1..).all(|(word, was)| *word == 0 || *word == was);
        assert!(kept, "{}: all that was written, or nothing", A::NAME);
        cpu.leave();
        mm.destroy(space);
    });
}

#[test]
fn d6_droppable_pages_are_lost_when_memory_is_short() {
    loses_old_pages::<X86_64>(Config::x86_64());
    loses_old_pages::<Arm4k>(Config::arm64_4k());
    loses_old_pages::<Sv39>(Config::riscv64_sv39());
}

fn leaves_its_folio<A: Arch>(config: Config) {
    stage::<A>(config, 8192, &[4], |mm, cpu| {
        let space = space_of(mm, PAGES, AreaFlags::empty());
        let program = Program::on(cpu, mm, &space);
        for number in 0..PAGES {
            program.write(page::<A>(number), number + 1).unwrap();
        }
        // One page of a folio is mapped by another table.
        let far = page::<A>(4 * A::block_order().pages());
        {
            let _op = cpu.operation("remap");
            mm.remap(&space, span::<A>(3, 1), 1, Move::To(far)).unwrap();
        }
        let divided = mm.spaces().divide(&space, far, Division::Uniform(Order::ZERO)).unwrap();
        assert_eq!(divided, Divided::Shared, "{}", A::NAME);
        let frame =
            |at: Vpn| leaves(mm, &space).iter().find(|l| l.pages.start == at).map(|l| l.frame);
        let before = frame(far);
        let pinned = mm.pin(&space, far, Access::Write).unwrap();
        let copy_out = || {
            let _op = cpu.operation("copy");
            mm.spaces().unshare_page(&space, far).unwrap();
        };
        copy_out();
        assert_eq!(frame(far), before, "{}: a pinned page stays", A::NAME);
        assert_eq!(program.write(far, 40), Ok(vec![]), "{}", A::NAME);
        mm.unpin(pinned);
        copy_out();
        assert_ne!(frame(far), before, "{}", A::NAME);
        assert_eq!(program.read(far), Ok(40), "{}", A::NAME);
        assert_eq!(program.write(far, 41), Ok(vec![]), "{}: it is one's own", A::NAME);
        verify(mm, &[&space]);
        cpu.leave();
        mm.destroy(space);
    });
}

#[test]
fn d6_a_page_leaves_a_folio_that_cannot_be_divided() {
    leaves_its_folio::<X86_64>(Config::x86_64());
    leaves_its_folio::<Arm4k>(Config::arm64_4k());
    leaves_its_folio::<Sv39>(Config::riscv64_sv39());
}
