//! Advice that an area remembers, and how a caller learns what a span is made of (row E3).

use quire::Error;
use quire::space::{Area, AreaFlags, At, Backing, FileId, Request};
use quire_arch::X86_64;
use quire_machine::Config;
use quire_sim::program::Program;
use quire_sim::stage::{place, space_of, span, stage, verify};
use quire_units::{Asid, PageSpan, Vpn};

const NONE: AreaFlags = AreaFlags::empty();

fn part(from: u64, pages: u64) -> PageSpan {
    span::<X86_64>(from, pages)
}

fn page(number: u64) -> Vpn {
    place::<X86_64>().add(number)
}

#[test]
fn e3_flags_set_by_advice_split_areas_and_taken_back_merge_them() {
    stage::<X86_64>(Config::x86_64(), 2048, &[], |mm, _| {
        let space = space_of(mm, 30, NONE);
        let flags =
            || mm.spaces().areas(&space, part(0, 30)).map(|area| area.flags).collect::<Vec<_>>();
        let dont = AreaFlags::DONTFORK | AreaFlags::DONTDUMP;
        mm.spaces().set_flags(&space, part(10, 10), dont, NONE).unwrap();
        assert_eq!(flags(), [NONE, dont, NONE]);
        mm.spaces()
            .set_flags(&space, part(5, 10), AreaFlags::RANDOM, AreaFlags::SEQUENTIAL)
            .unwrap();
        assert_eq!(flags(), [NONE, AreaFlags::RANDOM, AreaFlags::RANDOM | dont, dont, NONE]);
        mm.spaces().set_flags(&space, part(0, 30), NONE, dont | AreaFlags::RANDOM).unwrap();
        assert_eq!(flags(), [NONE]);
        verify(mm, &[&space]);
        mm.destroy(space);
    });
}

#[test]
fn e3_advice_may_not_change_what_an_area_is() {
    stage::<X86_64>(Config::x86_64(), 2048, &[], |mm, _| {
        let space = space_of(mm, 4, NONE);
        let shared = Request::anon(4).at(At::Fixed(page(4))).flags(AreaFlags::SHARED);
        let object = Request {
            backing: Backing::File { id: FileId(1), page: 0 },
            ..Request::anon(4).at(At::Fixed(page(8)))
        };
        mm.map(&space, &shared).unwrap();
        mm.map(&space, &object).unwrap();
        let before: Vec<_> = mm.spaces().areas(&space, part(0, 20)).collect();
        for flag in (AreaFlags::all() - AreaFlags::ADVICE).iter() {
            assert_eq!(mm.spaces().set_flags(&space, part(0, 4), flag, NONE), Err(Error::Invalid));
            assert_eq!(mm.spaces().set_flags(&space, part(0, 4), NONE, flag), Err(Error::Invalid));
        }
        let (wipe, random) = (AreaFlags::WIPEONFORK, AreaFlags::RANDOM);
        for (from, pages) in [(2, 4), (5, 1), (9, 1)] {
            let refused = mm.spaces().set_flags(&space, part(from, pages), wipe, NONE);
            assert_eq!(refused, Err(Error::Invalid), "from {from}");
        }
        assert_eq!(mm.spaces().set_flags(&space, part(0, 4), random, random), Err(Error::Invalid));
        let hole = Err(Error::NoArea(page(12)));
        assert_eq!(mm.spaces().set_flags(&space, part(8, 6), random, NONE), hole);
        assert_eq!(mm.spaces().areas(&space, part(0, 20)).collect::<Vec<_>>(), before);
        assert_eq!(mm.spaces().set_flags(&space, part(0, 4), wipe, NONE), Ok(()));
        mm.destroy(space);
    });
}

#[test]
fn c3_a_child_gets_what_was_advised_last() {
    stage::<X86_64>(Config::x86_64(), 2048, &[], |mm, cpu| {
        let space = space_of(mm, 3, NONE);
        let program = Program::on(cpu, mm, &space);
        (0..3).for_each(|at| assert!(program.write(page(at), at + 1).is_ok()));
        mm.spaces().set_flags(&space, part(0, 3), AreaFlags::DONTFORK, NONE).unwrap();
        mm.spaces()
            .set_flags(&space, part(1, 1), AreaFlags::WIPEONFORK, AreaFlags::DONTFORK)
            .unwrap();
        mm.spaces().set_flags(&space, part(2, 1), NONE, AreaFlags::DONTFORK).unwrap();
        let child = mm.fork(&space, Asid(2)).unwrap();
        let within = Program::on(cpu, mm, &child);
        assert!(within.read(page(0)).is_err());
        assert_eq!((within.read(page(1)), within.read(page(2))), (Ok(0), Ok(3)));
        verify(mm, &[&space, &child]);
        cpu.leave();
        mm.destroy(child);
        mm.destroy(space);
    });
}

#[test]
fn e3_a_span_tells_its_areas_whole_and_its_first_hole() {
    stage::<X86_64>(Config::x86_64(), 2048, &[], |mm, _| {
        let space = space_of(mm, 4, NONE);
        mm.map(&space, &Request::anon(4).at(At::Fixed(page(4))).flags(AreaFlags::HUGE)).unwrap();
        mm.map(&space, &Request::anon(4).at(At::Fixed(page(10)))).unwrap();
        let spans = |from, pages| {
            let areas = mm.spaces().areas(&space, part(from, pages));
            areas.map(|area: Area| area.span).collect::<Vec<_>>()
        };
        assert_eq!(spans(3, 2), [part(0, 4), part(4, 4)]);
        assert_eq!(spans(8, 2), []);
        assert_eq!(spans(0, 0), []);
        for (from, pages, hole) in
            [(0, 8, None), (3, 2, None), (3, 6, Some(8)), (8, 1, Some(8)), (10, 9, Some(14))]
        {
            assert_eq!(
                mm.spaces().first_hole(&space, part(from, pages)),
                hole.map(page),
                "{from} {pages}"
            );
        }
        assert_eq!(mm.spaces().first_hole(&space, part(9, 0)), None);
        mm.destroy(space);
    });
}

#[test]
fn e3_areas_mapped_side_by_side_at_fixed_places_are_one() {
    stage::<X86_64>(Config::x86_64(), 2048, &[], |mm, _| {
        // As a heap grows: each piece at its place, behind the one before.
        let space = space_of(mm, 4, NONE);
        for at in [At::Fixed(page(4)), At::FixedNoReplace(page(8)), At::Fixed(page(10))] {
            mm.map(&space, &Request::anon(4).at(at)).unwrap();
        }
        assert_eq!(space.area_count(), 1);
        assert_eq!(
            mm.spaces().areas(&space, part(0, 1)).map(|area| area.span).next(),
            Some(part(0, 14))
        );
        mm.unmap(&space, part(6, 8)).unwrap();
        assert_eq!(mm.spaces().areas(&space, part(0, 20)).map(|a| a.span).next(), Some(part(0, 6)));
        mm.destroy(space);
    });
}
