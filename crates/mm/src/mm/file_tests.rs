//! Changes by another CPU between two steps of a fault in a file.

use std::vec::Vec;

use quire_arch::{Arch, X86_64};
use quire_machine::{Config, Machine, Ram};
use quire_units::{Access, Asid, Order, PageSpan, Pfn, Vpn};

use crate::cache::{
    Entry, FILE_PAGES_MAX, File, FileId, FilePages, Pattern, Readahead, Store, identity,
};
use crate::check;
#[cfg(feature = "swap")]
use crate::fault::SizePolicy;
use crate::fault::plan::Reach;
use crate::fault::{BlockSource, Decision, decide};
use crate::folio::{Folio, FolioFlags, Folios};
use crate::phys::{CpuCache, Slot, Zone};
#[cfg(feature = "swap")]
use crate::space::AreaFlags;
use crate::space::{At, Backing, Request, Space};
use crate::stats::Counters;
#[cfg(feature = "swap")]
use crate::stats::Event;
use crate::{Errno, Error, Mm, Need, Parts, ReadFailed, Stop};

type MachineMm<'m, 'r> = Mm<'m, X86_64, Machine<'r>>;

const START: Vpn = Vpn::new(4096);

/// A system with one file in memory, of 64 pages, that a space maps from `START` on.
fn with(test: impl FnOnce(&MachineMm<'_, '_>, &Space<X86_64>, FileId)) {
    let mut ram = Ram::new(4 << 20).expect("the host has 4 MiB");
    let (machine, run) = Machine::new(Config::x86_64(), &mut ram).expect("a valid preset");
    let mut slots: Vec<Slot> = (0..run.count()).map(|_| Slot::default()).collect();
    let (mut caches, counters, mut zones) =
        ([CpuCache::new()], [Counters::new()], [Zone::new(run.span())]);
    let mut files = [File::new(), File::new()];
    let parts =
        Parts::new(run.start(), &mut slots, &mut caches, &counters, &mut zones).files(&mut files);
    let mm = Mm::<X86_64, _>::new(&machine, parts).expect("sound");
    mm.add(run).expect("the zone is RAM");
    let free = mm.allocator().free_frames();
    let space = mm.space(Asid(1), PageSpan::new(START, Vpn::new(8192))).expect("memory");
    let file = mm.files().open(Store::Memory, 64, Order::ZERO).expect("a free file");
    let shown = Request {
        backing: Backing::File { id: file, page: 0 },
        ..Request::anon(64).at(At::Fixed(START))
    };
    mm.map(&space, &shown).expect("free");
    test(&mm, &space, file);
    check::system(&mm, &[&space]).expect("every claim holds");
    mm.destroy(space);
    mm.files().close(file).expect("it is open");
    assert_eq!(machine.verdict(), Ok(()));
    assert_eq!(mm.allocator().free_frames(), free);
}

#[test]
fn b1_what_is_put_into_a_file_behind_its_new_end_is_taken_out_again() {
    with(|mm, _, file| {
        let index = mm.base().index(file).expect("open");
        for known in [FolioFlags::UPTODATE, FolioFlags::empty()] {
            // Another CPU has truncated the file since this one read its length.
            index.file.set_pages(10);
            let run = mm.base().frames(Order::ZERO, true).expect("memory");
            assert!(matches!(mm.files().with(&index).enter(12, run, Order::ZERO, known), Ok(None)));
            assert_eq!(index.next(FilePages::new(0, FILE_PAGES_MAX)), None);
        }
        index.prune(FilePages::new(0, FILE_PAGES_MAX), &mut |run| mm.base().free(run));
    });
}

#[test]
fn e2_a_files_folio_counts_as_pinned_only_while_it_is_held() {
    with(|mm, space, file| {
        mm.fault(space, START, Access::Read).expect("there is memory");
        let pinned = || check::system(mm, &[space]).map(|totals| totals.pinned);
        assert_eq!(pinned(), Ok(0));
        let (mut reader, pages) = (Readahead::default(), FilePages::new(0, 1));
        let held = mm.files().read(file, pages, &mut reader, Pattern::Normal);
        let (held, _) = held.expect("it is in memory");
        assert_eq!(pinned(), Ok(1));
        mm.files().release(held);
        assert_eq!(pinned(), Ok(0));
    });
}

#[test]
fn b1_a_page_is_not_mapped_when_its_area_has_gone_meanwhile() {
    with(|mm, space, _| {
        let page = START.add(3);
        mm.fault(space, page, Access::Read).expect("there is memory");
        mm.discard(space, PageSpan::new(START, START.add(64))).expect("it is mapped");
        let view = mm.base().view(space);
        let decided = decide(&view, mm.policy(), page, Access::Read, Reach::Folio);
        let Decision::File(fault) = decided else { panic!("{decided:?}") };
        mm.unmap(space, PageSpan::new(page, page.add(1))).expect("it is mapped");
        let index = mm.base().index(FileId(0)).expect("open");
        let around = PageSpan::block(page, Order::new(4));
        let shown = crate::cache::map_around(&view, &index, &fault, Order::ZERO, around);
        assert!(shown.is_none(), "{shown:?}");
        assert_eq!(mm.spaces().resident(space), 0);
    });
}

#[test]
fn c4_a_block_is_not_replaced_when_something_in_it_has_changed_meanwhile() {
    let block = PageSpan::block(START, Order::new(4));
    let one = PageSpan::new(START.add(5), START.add(6));
    type Change = fn(&MachineMm<'_, '_>, &Space<X86_64>, PageSpan);
    let changes: [(Change, bool); 4] = [
        (|_, _, _| {}, true),
        (|mm, space, one| mm.discard(space, one).expect("it is mapped"), false),
        (|mm, space, one| mm.unmap(space, one).expect("it is mapped"), false),
        (|mm, space, one| assert!(mm.fault(space, one.start, Access::Write).is_ok()), false),
    ];
    for (change, goes) in changes {
        with(|mm, space, _| {
            mm.fault(space, START, Access::Read).expect("there is memory");
            mm.populate(space, block).expect("there is memory");
            let view = mm.base().view(space);
            let decided = decide(&view, mm.policy(), START, Access::Write, Reach::Folio);
            let Decision::Unshare(unshare) = decided else { panic!("{decided:?}") };
            assert!(unshare.is_of_file());
            let mut pieces = BlockSource::new();
            assert!(pieces.hold(&view, &unshare, block, true), "all of it is mapped");
            assert_eq!(pieces.parts().iter().map(|part| part.frames().count).sum::<u64>(), 16);
            change(mm, space, one);
            let run = mm.base().frames(Order::new(4), true).expect("memory");
            mm.base().clear(&run, 0, &mut || {});
            let to = (block, Order::new(4));
            let replaced = unshare.replace(&view, pieces.parts(), Order::ZERO, to, run);
            pieces.release(&view, &mut |run| mm.base().free(run));
            assert_eq!(replaced.is_ok(), goes);
            mm.base().free(replaced.unwrap_or_else(Some));
        });
    }
}

#[test]
fn b1_a_folio_is_found_only_as_what_it_is() {
    with(|mm, _, file| {
        let folios = Folios::new(mm.allocator().meta());
        let run = mm.base().frames(Order::new(2), true).expect("memory");
        let folio =
            folios.adopt_cached(&run, Order::new(2), identity(file, 8), FolioFlags::UPTODATE);
        for other in [identity(file, 9), identity(FileId(1), 8)] {
            assert!(folios.cached(folio.head, other).is_none());
        }
        assert!(folios.cached(folio.head.add(1), identity(file, 8)).is_none(), "not its head");
        assert!(folios.cached(folio.head, identity(file, 8)).is_some());
        for order in [Order::ZERO, Order::new(1), Order::new(3)] {
            let other = Folio { order, ..folio };
            assert!(folios.identified(other).is_none(), "it has another size");
        }
        let own = folios.identified(folio).map(|(_, owner)| owner);
        assert_eq!(own, Some(identity(file, 8)));
        let found = || folios.cached(folio.head, identity(file, 8));
        assert!(found().expect("it is there").hold());
        let last = found().expect("it is there").forget();
        assert!(last.is_none() && found().is_none(), "it lives on, and is no page of a file");
        mm.base().free(folios.put(folio).expect("the last reference"));
    });
}

#[test]
fn b1_a_hole_gives_its_pages_back_also_those_of_a_folio_across_its_edge() {
    with(|mm, _, _| {
        let file = mm.files().open(Store::Memory, 64, Order::ZERO).expect("one is left");
        let index = mm.base().index(file).expect("open");
        for (page, order) in [(0, Order::new(2)), (4, Order::ZERO), (8, Order::new(2))] {
            let run = mm.base().frames(order, true).expect("memory");
            assert!(matches!(
                mm.files().with(&index).enter(page, run, order, FolioFlags::UPTODATE),
                Ok(Some(_))
            ));
        }
        let cached =
            |from, to| mm.files().next_cached(file, FilePages::new(from, to)).expect("open");
        assert_eq!(cached(2, 64), Some(FilePages::new(0, 4)));
        assert_eq!(cached(5, 8), None);
        let no_spaces: &[&Space<X86_64>] = &[];
        mm.files().punch(file, FilePages::new(2, 64), no_spaces).expect("no store");
        assert_eq!(cached(0, 64), Some(FilePages::new(0, 2)));
        assert_eq!(cached(2, 64), None);
        assert_eq!(mm.files().get(file).map(File::cached), Some(2));
        mm.files().close(file).expect("it is open");
        assert_eq!(mm.files().next_cached(file, FilePages::new(0, 1)), Err(Error::NoFile));
        let stored = mm.files().open(Store::ReadOnly, 1, Order::ZERO).expect("one is left");
        let refused = mm.files().punch(stored, FilePages::new(0, 1), no_spaces);
        assert_eq!(refused, Err(Error::Invalid), "it would lose what the store has not");
        mm.files().close(stored).expect("it is open");
    });
}

#[test]
fn b1_a_reader_does_not_take_the_folio_that_it_read_last_for_a_page_of_another() {
    with(|mm, _, _| {
        let file = mm.files().open(Store::Memory, 64, Order::ZERO).expect("one is left");
        let index = mm.base().index(file).expect("open");
        let enter = |page| {
            let run = mm.base().frames(Order::new(2), true).expect("memory");
            let frame = run.start();
            let known = FolioFlags::UPTODATE;
            let entered = mm.files().with(&index).enter(page, run, Order::new(2), known);
            assert!(matches!(entered, Ok(Some(_))));
            frame
        };
        let mut reader = Readahead::default();
        let mut read = |file, page| {
            let pages = FilePages::new(page, page + 1);
            let held = mm.files().read(file, pages, &mut reader, Pattern::Normal);
            let (held, _) = held.expect("it is in memory");
            let frame = held.frames().start;
            mm.files().release(held);
            frame
        };
        let (first, second) = (enter(0), enter(4));
        for (page, frame) in [(0, first), (1, first.add(1)), (5, second.add(1)), (2, first.add(2))]
        {
            assert_eq!(read(file, page), frame, "page {page}");
        }
        // The frames of the folio that was read last are those of other pages by now.
        let no_spaces: &[&Space<X86_64>] = &[];
        mm.files().punch(file, FilePages::new(0, 4), no_spaces).expect("no store");
        let again = [enter(8), enter(0)];
        assert!(again.contains(&first), "the frames are used again at once");
        assert_eq!(read(file, 1), again[1].add(1));
        // Another file has a page at the same place.
        assert_ne!(read(FileId(0), 1), again[1].add(1));
        mm.files().close(file).expect("it is open");
    });
}

#[test]
fn b1_files_that_cannot_be_are_refused() {
    with(|mm, _, _| {
        let too_long = mm.files().open(Store::Memory, FILE_PAGES_MAX + 1, Order::ZERO);
        assert_eq!(too_long, Err(Error::Invalid));
        let too_coarse = mm.files().open(Store::Memory, 1, X86_64::block_order().up());
        assert_eq!(too_coarse, Err(Error::Invalid));
        let second = mm.files().open(Store::ReadOnly, 1, Order::ZERO).expect("one is left");
        assert_eq!(mm.files().open(Store::Memory, 1, Order::ZERO), Err(Error::NoFile));
        assert_eq!(
            mm.files().mark_dirty(second, 0),
            Err(Error::Invalid),
            "it has no page 0 in memory"
        );
        let mut reader = Readahead::default();
        let beyond = mm.files().read(second, FilePages::new(1, 2), &mut reader, Pattern::Normal);
        assert_eq!(beyond.err(), Some(Error::Invalid.into()));
        mm.files().close(second).expect("it is open");
        assert_eq!(mm.files().close(second), Err(Error::NoFile));
        let gone = mm.files().read(second, FilePages::new(0, 1), &mut reader, Pattern::Normal);
        assert_eq!(gone.err().map(Stop::errno), Some(Errno::ENFILE));
    });
}

#[test]
fn b1_a_read_that_fails_leaves_nothing_in_memory_and_is_told_once() {
    with(|mm, _, _| {
        let file = mm.files().open(Store::ReadOnly, 9, Order::ZERO).expect("one is left");
        let mut reader = Readahead::default();
        let page = |reader: &mut Readahead| {
            let page = mm.files().read(file, FilePages::new(4, 5), reader, Pattern::Random);
            page.map(drop).expect_err("it is never readable")
        };
        for _ in 0..2 {
            let Stop::Need(Need::Read(mut reads)) = page(&mut reader) else {
                panic!("not in memory")
            };
            let read = mm.files().next_read(&mut reads).expect("memory").expect("one page");
            assert_eq!((read.pages(), read.is_wanted()), (FilePages::new(4, 5), true));
            assert_eq!(page(&mut reader), Stop::Need(Need::Wait(file)));
            mm.files().read_done(read, Err(ReadFailed));
            assert_eq!(mm.files().next_read(&mut reads).map(|read| read.is_none()), Ok(true));
            assert_eq!(page(&mut reader), Stop::Refuse(Error::Failed(file, 4)));
        }
        assert_eq!(mm.files().get(file).map(File::cached), Some(0));
        mm.files().close(file).expect("it is open");
    });
}

#[test]
fn b1_a_page_of_a_file_that_cannot_be_written_never_becomes_dirty() {
    for (store, may) in [(Store::ReadOnly, false), (Store::ReadWrite, true)] {
        with(|mm, _, _| {
            let file = mm.files().open(store, 1, Order::ZERO).expect("one is left");
            let (mut reader, page) = (Readahead::default(), FilePages::new(0, 1));
            let read = mm.files().read(file, page, &mut reader, Pattern::Normal);
            let Err(Stop::Need(Need::Read(mut reads))) = read else { panic!("not in memory") };
            while let Some(read) = mm.files().next_read(&mut reads).expect("memory") {
                mm.files().read_done(read, Ok(()));
            }
            let done = if may { Ok(()) } else { Err(Error::Invalid) };
            assert_eq!(mm.files().mark_dirty(file, 0), done, "{store:?}");
            let index = mm.base().index(file).expect("open");
            assert_eq!(index.next_dirty(page).is_some(), may, "{store:?}");
            mm.files().close(file).expect("it is open");
        });
    }
}

#[test]
fn b1_only_pages_that_go_are_told_as_dropped() {
    with(|mm, _, memory| {
        let file = mm.files().open(Store::ReadWrite, 4, Order::ZERO).expect("one is left");
        let all = FilePages::new(0, 4);
        for file in [file, memory] {
            let index = mm.base().index(file).expect("open");
            for page in 0..4 {
                let run = mm.base().frames(Order::ZERO, true).expect("memory");
                let entered =
                    mm.files().with(&index).enter(page, run, Order::ZERO, FolioFlags::UPTODATE);
                assert!(matches!(entered, Ok(Some(_))));
            }
        }
        mm.files().mark_dirty(file, 0).expect("it can be written");
        let mut reader = Readahead::default();
        let held = mm.files().read(file, FilePages::new(2, 3), &mut reader, Pattern::Normal);
        let (held, _) = held.expect("it is in memory");
        assert_eq!(mm.files().drop_clean(file, all), Ok(2), "one is dirty, and one is held");
        assert_eq!(mm.files().drop_clean(memory, all), Ok(0), "they are nowhere else");
        mm.files().release(held);
        assert_eq!(mm.files().drop_clean(file, all), Ok(1));
        assert_eq!(mm.files().get(file).map(File::cached), Some(1));
        mm.files().close(file).expect("it is open");
    });
}

/// No memory is behind these folios: an index knows only their names.
#[test]
fn a9_a_folio_larger_than_a_block_takes_the_place_of_empty_nodes_and_of_nothing_else() {
    with(|mm, _, file| {
        let index = mm.base().index(file).expect("open");
        let open = mm.files().with(&index);
        let page = Folio { head: Pfn::new(3), order: Order::ZERO };
        let giant = Folio { head: Pfn::new(0), order: Order::new(18) };
        let take_out = |page: u64, order: Order| {
            let is_folio = |entry| matches!(entry, Entry::Folio { .. });
            assert!(index.exchange(page, order, is_folio, Entry::Empty, || true).is_some());
            index.file.count_cached(-(order.pages() as i64));
        };
        assert_eq!(open.insert(12, page), Ok(true));
        assert_eq!(open.insert(0, giant), Ok(false), "a page is there");
        assert!(matches!(index.find(12), (Entry::Folio { folio, .. }, _) if folio == page));
        take_out(12, Order::ZERO);
        assert_eq!(open.insert(0, giant), Ok(true), "the nodes below are empty");
        assert_eq!(open.insert(12, page), Ok(false), "a larger folio is there");
        take_out(0, giant.order);
        index.prune(FilePages::new(0, FILE_PAGES_MAX), &mut |run| mm.base().free(run));
    });
}

#[cfg(feature = "swap")]
#[test]
fn e7_a_folio_of_a_file_is_divided_into_none_smaller_than_the_file_has() {
    with(|mm, space, _| {
        let least = Order::new(2);
        mm.policy().set_size(Order::new(4), SizePolicy::Always).expect("a size");
        let coarse = mm.files().open(Store::Memory, 16, least).expect("one is left");
        let first = START.add(1024);
        let request = Request {
            backing: Backing::File { id: coarse, page: 0 },
            flags: AreaFlags::SHARED,
            ..Request::anon(16).at(At::Fixed(first))
        };
        mm.map(space, &request).expect("free");
        mm.fault(space, first, Access::Write).expect("there is memory");
        let index = mm.base().index(coarse).expect("open");
        let (folio, _) = index.next(FilePages::new(0, 16)).expect("it was touched");
        assert!(folio.order > least, "{folio:?}");
        let divide = |most| {
            let (files, owner) = (mm.files(), identity(coarse, 0));
            let divided = files.divide_whole(folio, owner, most, &&[space][..]);
            let counted = |event| mm.totals().event(event);
            (divided, counted(Event::FolioSplit), counted(Event::FolioSplitFailed))
        };
        assert_eq!(divide(Order::new(1)), (false, 0, 1));
        assert_eq!(index.next(FilePages::new(0, 16)).map(|found| found.0), Some(folio));
        assert_eq!(divide(least), (true, 1, 1));
        let (part, pages) = index.next(FilePages::new(0, 16)).expect("its first part");
        assert_eq!((part.head, pages), (folio.head, FilePages::new(0, 4)));
        mm.unmap(space, PageSpan::new(first, first.add(16))).expect("it is mapped");
        mm.files().close(coarse).expect("it is open");
    });
}

#[cfg(feature = "swap")]
#[test]
fn d9_folios_that_end_as_a_whole_are_not_divided_first() {
    with(|mm, space, file| {
        let index = mm.base().index(file).expect("open");
        let order = Order::new(2);
        for at in [0, 4, 8] {
            let run = mm.base().frames(order, true).expect("memory");
            let known = FolioFlags::UPTODATE;
            assert!(matches!(mm.files().with(&index).enter(at, run, order, known), Ok(Some(_))));
        }
        mm.fault(space, START.add(5), Access::Read).expect("it is there");
        mm.files().punch(file, FilePages::new(4, 12), &[space][..]).expect("memory");
        let split = |mm: &MachineMm<'_, '_>| {
            let totals = mm.totals();
            (totals.event(Event::FolioSplit), totals.event(Event::FolioSplitFailed))
        };
        assert_eq!(split(mm), (0, 0), "both are dropped");
        assert_eq!(index.next(FilePages::new(4, 64)), None);
        mm.files().punch(file, FilePages::new(0, 2), &[space][..]).expect("memory");
        assert_eq!(split(mm), (1, 0), "two of its pages stay");
    });
}

#[cfg(feature = "reclaim")]
#[test]
fn b4_pages_that_no_program_may_map_are_collapsed_in_no_file() {
    with(|mm, space, _| {
        let end = Vpn::new(X86_64::USER_PAGES);
        for start in [end, Vpn::new(end.get() - 1)] {
            let beyond = PageSpan::new(start, end.add(4));
            let got = mm.reclaim().collapse_file(space, beyond, &[space][..]);
            assert!(matches!(got, Err(Stop::Refuse(Error::Invalid))), "{got:?}");
        }
    });
}
