//! Reserved folios: failures, several CPUs, and what is refused (row A9).

use std::cell::Cell;
use std::sync::Barrier;

use quire_arch::X86_64;
use quire_machine::Config;
use quire_units::{Access, Asid, PageSpan, Prot};

use super::reserved_tests::{BLOCKS, with};
use crate::Error;
use crate::cache::FilePages;
use crate::check;
use crate::phys::fail::FailPlan;
use crate::space::{At, Backing, Request, Space};
use crate::spaces::Move;

/// Every allocation of a life is made to fail in turn: the claims hold after each step.
#[test]
fn i20_a9_without_memory_for_records_no_folio_and_no_promise_is_lost() {
    let seen = Cell::new(0);
    for fails in 0..40 {
        with::<X86_64>(Config::x86_64(), 9, |scene| {
            let mm = scene.mm;
            mm.files().resize_pool(scene.order, 5).expect("it is there");
            let parent = scene.space(1);
            let check = |spaces: &[&Space<X86_64>]| {
                check::system(mm, spaces).expect("every claim holds");
            };
            mm.allocator().set_fail_plan(FailPlan::Nth(fails));
            let note = |failed: bool| seen.set(seen.get() + u64::from(failed));
            for file in scene.files {
                note(mm.files().promise(file, scene.file_pages(1..3)).is_err());
                check(&[&parent]);
            }
            for block in [1, 2, 4, BLOCKS, BLOCKS + 1] {
                let page = scene.block(block).start;
                note(scene.access(&parent, page, Some(7)).is_err());
                check(&[&parent]);
            }
            let child = mm.fork(&parent, Asid(2)).ok();
            if let Some(child) = &child {
                note(scene.access(child, scene.block(BLOCKS).start, Some(8)).is_err());
                check(&[&parent, child]);
                let _ =
                    mm.files().punch(scene.files[0], scene.file_pages(0..2), &[&parent, child][..]);
                check(&[&parent, child]);
            }
            mm.allocator().set_fail_plan(FailPlan::Never);
            scene.machine.cpu(0).leave();
            child.into_iter().for_each(|child| mm.destroy(child));
            check(&[&parent]);
            mm.destroy(parent);
        });
    }
    assert!(seen.get() > 5, "{seen:?} failures");
}

/// Two CPUs access a block with one folio left, which was promised to it or not: none is refused.
#[test]
fn a9_of_two_cpus_one_takes_the_last_folio_and_both_see_it() {
    let config = Config { cpus: 2, ..Config::x86_64() };
    with::<X86_64>(config, 9, |scene| {
        let mm = scene.mm;
        mm.files().resize_pool(scene.order, 1).expect("it is there");
        for round in 0..200_u64 {
            let space = scene.space(1);
            let block = if round % 2 == 0 { 2 } else { BLOCKS + 2 };
            if round % 3 == 0 {
                let file = scene.files[(round % 2) as usize];
                mm.files().promise(file, scene.file_pages(2..3)).expect("one is free");
            }
            let page = scene.block(block).start.add(round);
            let both = Barrier::new(2);
            let fault = || {
                both.wait();
                (0..1000).any(|_| {
                    mm.fault(&space, page, Access::Write).expect("there is one for both");
                    mm.spaces().resident(&space) > 0
                })
            };
            std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    scene.machine.cpu(1).bind();
                    fault()
                });
                scene.machine.cpu(0).bind();
                assert!(fault());
                assert!(other.join().expect("no panic"));
            });
            assert_eq!(mm.spaces().resident(&space), scene.order.pages());
            check::system(mm, &[&space]).expect("every claim holds");
            mm.destroy(space);
            mm.files().punch(scene.files[0], scene.file_pages(0..BLOCKS), &[][..]).expect("memory");
            assert_eq!(scene.counts().free, 1);
        }
    });
}

/// One CPU gives the only folio back while another touches its page: the touch is never refused.
#[test]
fn a9_a_touch_beside_a_discard_finds_the_folio_that_comes_back() {
    let config = Config { cpus: 2, ..Config::x86_64() };
    with::<X86_64>(config, 9, |scene| {
        let mm = scene.mm;
        mm.files().resize_pool(scene.order, 1).expect("it is there");
        let space = scene.space(1);
        let block = scene.block(BLOCKS);
        std::thread::scope(|scope| {
            let touches = scope.spawn(|| {
                scene.machine.cpu(1).bind();
                let mut refused = None;
                for _ in 0..3000 {
                    let touched = mm.fault(&space, block.start, Access::Write);
                    refused = refused.or(touched.err());
                }
                refused
            });
            scene.machine.cpu(0).bind();
            // Not a flag of the thread: it would not set one if it panicked.
            while !touches.is_finished() {
                mm.discard(&space, block).expect("no leaf is cut");
            }
            assert_eq!(touches.join().expect("no panic"), None);
        });
        check::system(mm, &[&space]).expect("every claim holds");
        mm.destroy(space);
    });
}

/// Folios that a file has are mapped ahead where those before them are mapped, so touches in order
/// fault less often; touches in another order map what they touch.
#[test]
fn a9_touches_in_order_of_folios_that_are_there_map_the_next_ones() {
    with::<X86_64>(Config::x86_64(), 9, |scene| {
        let mm = scene.mm;
        mm.files().resize_pool(scene.order, BLOCKS).expect("it is there");
        let (one, other, third) = (scene.space(1), scene.space(2), scene.space(3));
        let all = PageSpan::new(scene.block(0).start, scene.block(BLOCKS).start);
        let mapped = |space: &Space<X86_64>| {
            let mut pages = 0;
            mm.spaces().runs(space, all, &mut |seen| {
                pages += seen.pages.count();
            });
            pages >> 9
        };
        for block in 0..BLOCKS {
            scene.access(&one, scene.block(block).start, Some(block)).expect("there are some");
            assert_eq!(mapped(&one), block + 1, "a folio that is not there is not made ahead");
        }
        let seen = [1, 3, 3, 6, 6, 6];
        for (block, expected) in (0..BLOCKS).zip(seen) {
            assert_eq!(scene.access(&other, scene.block(block).start, None), Ok(block));
            assert_eq!(mapped(&other), expected);
        }
        for (count, block) in [4, 2, 0].into_iter().enumerate() {
            assert_eq!(scene.access(&third, scene.block(block).start, None), Ok(block));
            assert_eq!(mapped(&third), count as u64 + 1, "only what it touches");
        }
        check::system(mm, &[&one, &other, &third]).expect("every claim holds");
        scene.machine.cpu(0).leave();
        [one, other, third].into_iter().for_each(|space| mm.destroy(space));
    });
}

#[test]
fn a9_no_area_of_reserved_folios_is_cut_within_one() {
    with::<X86_64>(Config::x86_64(), 9, |scene| {
        let (mm, space) = (scene.mm, scene.space(1));
        mm.files().resize_pool(scene.order, 4).expect("it is there");
        let block = scene.block(BLOCKS + 1);
        scene.access(&space, block.start, Some(9)).expect("there are some");
        let invalid = Err(Error::Invalid);
        let odd = block.start.add(1);
        let few = PageSpan::new(scene.block(24).start, scene.block(24).start.add(4));
        mm.map(&space, &Request::anon(few.count()).at(At::Fixed(few.start))).expect("free");
        for cut in [PageSpan::new(odd, block.end), PageSpan::new(block.start, odd)] {
            assert_eq!(mm.unmap(&space, cut), invalid);
            assert_eq!(mm.protect(&space, cut, Prot::READ), invalid);
            assert_eq!(mm.discard(&space, cut), invalid);
            assert_eq!(mm.spaces().guard(&space, cut), invalid);
            assert_eq!(mm.spaces().unguard(&space, cut), invalid);
            assert_eq!(mm.spaces().track(&space, cut), invalid);
            let moved = mm.remap(&space, few, few.count(), Move::To(cut.start));
            assert_eq!(moved.err(), Some(Error::Invalid));
            assert_eq!(
                mm.remap(&space, cut, cut.count(), Move::Allowed).err(),
                Some(Error::Invalid)
            );
            let fixed = Request::anon(cut.count()).at(At::Fixed(cut.start));
            assert_eq!(mm.map(&space, &fixed).err(), Some(Error::Invalid));
        }
        let grown = mm.remap(&space, block, 2 * block.count(), Move::Allowed);
        assert_eq!(grown.err(), Some(Error::Invalid));
        let moved = mm.remap(&space, block, block.count(), Move::To(scene.block(20).start));
        assert_eq!(moved, Ok(scene.block(20)));
        assert_eq!(scene.access(&space, scene.block(20).start, None), Ok(9));
        let backing = Backing::File { id: scene.files[0], page: 1 };
        let odd = Request { backing, ..Request::anon(scene.order.pages()) };
        assert_eq!(mm.map(&space, &odd).err(), Some(Error::Invalid));
        let any = Request { backing: Backing::File { id: scene.files[0], page: 0 }, ..odd };
        let placed = mm.map(&space, &any).expect("there is room");
        assert!(placed.start.is_aligned(scene.order.pages()));
        scene.machine.cpu(0).leave();
        mm.destroy(space);
    });
}

#[test]
fn a9_a_hole_takes_the_private_copies_of_its_folios_as_well() {
    with::<X86_64>(Config::x86_64(), 9, |scene| {
        let (mm, space) = (scene.mm, scene.space(1));
        mm.files().resize_pool(scene.order, 4).expect("it is there");
        let (shared, own) = (scene.block(0).start, scene.block(20).start);
        let backing = Backing::File { id: scene.files[0], page: 0 };
        let request = Request { backing, ..Request::anon(2 * scene.order.pages()) };
        mm.map(&space, &request.at(At::Fixed(own))).expect("free");
        assert_eq!(scene.access(&space, shared, Some(1)), Ok(1));
        assert_eq!(scene.access(&space, own, None), Ok(1), "the file's");
        assert_eq!(scene.counts().free, 3);
        assert_eq!(scene.access(&space, own.add(1), Some(2)), Ok(2));
        let next = own.add(scene.order.pages());
        assert_eq!(scene.access(&space, next, Some(3)), Ok(3), "its own: the file has none");
        assert_eq!(scene.counts().free, 1);
        mm.files().punch(scene.files[0], FilePages::new(0, 700), &[&space][..]).expect("memory");
        assert_eq!(scene.counts().free, 3, "the hole ends within the next folio");
        assert_eq!(scene.access(&space, own.add(1), None), Ok(0));
        assert_eq!(scene.access(&space, next, None), Ok(3));
        check::system(mm, &[&space]).expect("every claim holds");
        scene.machine.cpu(0).leave();
        mm.destroy(space);
    });
}

#[cfg(all(feature = "swap", feature = "reclaim"))]
#[test]
fn a9_reserved_folios_stay_in_memory_and_whole() {
    use crate::{
        Scope,
        table::{Division, Sight},
    };
    use quire_units::{FrameSpan, Order};
    with::<X86_64>(Config::x86_64(), 9, |scene| {
        let mm = scene.mm;
        mm.files().resize_pool(scene.order, 3).expect("it is there");
        let swap = mm.paging().swap_on(4096).expect("memory");
        let space = scene.space(1);
        for block in [0, BLOCKS] {
            let (page, span) = (scene.block(block).start.add(3), scene.block(block));
            scene.access(&space, page, Some(block + 1)).expect("there are some");
            for scope in [Scope::Own, Scope::All] {
                let out = mm.paging().page_out(&space, span, scope, &[&space][..]).expect("pages");
                assert_eq!(out.pages, 0);
            }
            let moved = mm.paging().migrate(&space, span, &[&space][..]).expect("pages");
            assert_eq!(moved.folios, 0);
            let how = Division::Around(page, Order::ZERO);
            assert_eq!(mm.spaces().divide(&space, page, how).err(), Some(Error::Invalid));
            let mut frame = None;
            mm.spaces().runs(&space, span, &mut |seen| {
                if let Sight::Leaf { frame: first, .. } = seen.what {
                    frame = Some(first);
                }
            });
            let taken = FrameSpan::new(frame.expect("it is mapped"), 4);
            let got = mm.reclaim().take_span(taken, &[&space][..], &mut || {});
            assert_eq!(got.err().map(|occupied| occupied.frame), frame);
            assert_eq!(scene.access(&space, page, None), Ok(block + 1));
        }
        assert_eq!(scene.counts().free, 1, "they are the pool's still");
        scene.machine.cpu(0).leave();
        mm.destroy(space);
        mm.paging().swap_off(swap).expect("no slot is in use");
    });
}

/// A surplus leaves with the last promise that needs it, before a call asks for the numbers.
#[test]
fn a9_a_surplus_is_free_memory_again_when_its_promises_end() {
    with::<X86_64>(Config::x86_64(), 9, |scene| {
        let (mm, file) = (scene.mm, scene.files[0]);
        mm.files().resize_pool(scene.order, 1).expect("it is there");
        mm.files().set_surplus_most(scene.order, 3).expect("it is there");
        // The file's record of promises needs a frame.
        mm.files().promise(file, scene.file_pages(3..4)).expect("one is free");
        let (free, each) = (mm.allocator().free_frames(), scene.order.pages());
        mm.files().promise(file, scene.file_pages(0..3)).expect("it may grow");
        assert_eq!(mm.allocator().free_frames(), free - 3 * each);
        mm.files().renounce(file, scene.file_pages(0..2)).expect("it is open");
        assert_eq!(mm.allocator().free_frames(), free - each);
        mm.files().renounce(file, scene.file_pages(3..4)).expect("it is open");
        assert_eq!(mm.allocator().free_frames(), free, "one is promised, and one is the size");
        assert_eq!((scene.counts().size, scene.counts().surplus), (1, 0));
    });
}

#[test]
fn a9_a_frame_of_a_pool_says_so_whether_its_folio_is_private_or_shared() {
    with::<X86_64>(Config::x86_64(), 9, |scene| {
        scene.mm.files().resize_pool(scene.order, 4).expect("memory");
        let space = scene.space(1);
        let places = [scene.block(0).start, scene.block(BLOCKS).start.add(5)];
        for page in places {
            scene.access(&space, page, Some(7)).expect("a folio");
            let pin = scene.mm.pin(&space, page, Access::Read);
            let pin = pin.expect("it is mapped");
            let info = scene.mm.frame_info(pin.frame()).expect("it is RAM");
            assert!(info.is_reserved && info.order == scene.order, "{info:?}");
            scene.mm.unpin(pin);
        }
        let root = scene.mm.frame_info(space.root()).expect("it is RAM");
        assert!(!root.is_reserved);
        scene.machine.cpu(0).leave();
        scene.mm.destroy(space);
    });
}

/// Not even one by one: what is in use moves to no other frames, and what is free stays the pool's.
#[cfg(all(feature = "swap", feature = "reclaim"))]
#[test]
fn a9_frames_of_a_pool_are_taken_for_no_other_use() {
    use crate::table::Sight;
    use quire_arch::Arm4k;
    use quire_units::FrameSpan;
    with::<Arm4k>(Config::arm64_4k(), 4, |scene| {
        let mm = scene.mm;
        mm.files().resize_pool(scene.order, 3).expect("it is there");
        let moves = mm.paging().moves_on(64).expect("memory");
        let space = scene.space(1);
        for block in [0, BLOCKS] {
            scene.access(&space, scene.block(block).start, Some(block + 1)).expect("some are free");
        }
        let mut heads = std::vec::Vec::new();
        mm.spaces().runs(
            &space,
            PageSpan::new(scene.block(0).start, scene.block(BLOCKS).end),
            &mut |seen| {
                if let Sight::Leaf { frame, .. } = seen.what {
                    heads.push(frame);
                }
            },
        );
        assert_eq!(heads.len(), 2);
        let free = FrameSpan::new(heads[0].align_down(512).add(448), 16);
        let used = heads.into_iter().map(|head| FrameSpan::new(head, 4));
        for span in used.chain([free]) {
            let got = mm.reclaim().take_span(span, &[&space][..], &mut || {});
            assert_eq!(got.err().map(|occupied| occupied.frame), Some(span.start));
        }
        assert_eq!((scene.counts().size, scene.counts().free), (3, 1));
        assert_eq!(scene.access(&space, scene.block(BLOCKS).start, None), Ok(BLOCKS + 1));
        check::system(mm, &[&space]).expect("every claim holds");
        scene.machine.cpu(0).leave();
        mm.destroy(space);
        mm.paging().swap_off(moves).expect("no folio is on its way");
    });
}
