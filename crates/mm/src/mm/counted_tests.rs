//! Each operation counts what it did: these events as often as pages had them, and no others.

use quire_arch::X86_64;
use quire_machine::Config;
use quire_units::{Access, Asid, Order, PageSpan, Prot, Vpn};

use super::migrate_tests::{Device, Scene, with_device};
use crate::cache::{FileId, FilePages, Pattern, Readahead, Reads, Store};
use crate::fault::SizePolicy;
use crate::limits::GROUP_ORDER;
use crate::space::{AreaFlags, At, Backing, Request, Space};
use crate::stats::Event;
use crate::{Compaction, Move, Need, ReadFailed, Scope, Stop, WriteFailed};

type Of<'a, 'm, 'r> = Scene<'a, 'm, 'r, X86_64>;

const FIRST: Vpn = Vpn::new(1 << 18);

/// The events that stand for one page, entry, table or call each.
const COUNTED: [Event; 26] = [
    Event::Fault,
    Event::Spurious,
    Event::Refused,
    Event::EntriesMade,
    Event::EntriesChanged,
    Event::EntriesCleared,
    Event::EntriesMoved,
    Event::EntriesSwapped,
    Event::TableMade,
    Event::TableMoved,
    Event::LeafSplit,
    Event::FilePagesRead,
    Event::FileReadsFailed,
    Event::FilePagesWritten,
    Event::PagesSwapped,
    Event::PagesSwappedIn,
    Event::PagesAged,
    Event::LazyFree,
    Event::ZeroesDropped,
    Event::MigratedPages,
    Event::MigrateFailed,
    Event::CompactStall,
    Event::CompactSuccess,
    Event::CompactFailed,
    Event::CompactWoken,
    Event::CollapseAlloc,
];

/// Acts, and compares the events since before with `expected`.
fn counts<T>(scene: &Of<'_, '_, '_>, expected: &[(Event, u64)], act: impl FnOnce() -> T) -> T {
    let before = scene.mm.totals();
    let done = act();
    let now = scene.mm.totals();
    for event in COUNTED {
        let wanted = expected.iter().find(|(of, _)| *of == event).map_or(0, |(_, count)| *count);
        let count = now.event(event) - before.event(event);
        assert_eq!(count, wanted, "{event:?} of {expected:?}");
    }
    done
}

fn pages(from: u64, count: u64) -> PageSpan {
    PageSpan::new(FIRST.add(from), FIRST.add(from + count))
}

/// A space with 16 written base pages, and room for more.
fn with(test: impl FnOnce(&Of<'_, '_, '_>, &Space<X86_64>)) {
    with_device::<X86_64>(Config::x86_64(), Device::Swap, |scene| {
        let (mm, space) = (scene.mm, scene.space());
        mm.policy().set_size(Order::new(4), SizePolicy::Never).expect("a size");
        scene.fill(&space, 16, 1);
        test(scene, &space);
        scene.check(&[&space]);
        scene.end([space]);
    });
}

#[test]
fn e5_faults_are_counted_by_their_end() {
    with(|scene, space| {
        let mm = scene.mm;
        let fault = |page, access| mm.fault(space, page, access);
        let made = [(Event::Fault, 1), (Event::EntriesMade, 1)];
        counts(scene, &made, || fault(FIRST.add(20), Access::Write)).expect("memory");
        let found = [(Event::Fault, 1), (Event::Spurious, 1)];
        counts(scene, &found, || fault(FIRST.add(20), Access::Read)).expect("it is there");
        let refused = [(Event::Refused, 1)];
        let beyond = counts(scene, &refused, || fault(FIRST.add(64), Access::Read));
        assert!(beyond.is_err(), "there is no area");
        // The next page of another table.
        let far = FIRST.add(600);
        let one = Request::anon(1).at(At::Fixed(far));
        counts(scene, &[], || mm.map(space, &one)).expect("free");
        let with_table = [made[0], made[1], (Event::TableMade, 1)];
        counts(scene, &with_table, || fault(far, Access::Write)).expect("memory");
    });
}

#[test]
fn e5_changes_of_pages_are_counted_by_entries() {
    with(|scene, space| {
        let mm = scene.mm;
        let changed = [(Event::EntriesChanged, 12)];
        counts(scene, &changed, || mm.protect(space, pages(4, 40), Prot::READ)).expect("memory");
        counts(scene, &[(Event::EntriesMoved, 6)], || {
            mm.remap(space, pages(0, 4), 4, Move::To(FIRST.add(700))).expect("memory");
            mm.remap(space, pages(14, 2), 2, Move::To(FIRST.add(710))).expect("memory");
        });
        let cleared = [(Event::EntriesCleared, 10)];
        counts(scene, &cleared, || mm.discard(space, pages(4, 10))).expect("memory");
        let cleared = [(Event::EntriesCleared, 4)];
        counts(scene, &cleared, || mm.unmap(space, pages(700, 4))).expect("memory");
        counts(scene, &[], || mm.discard(space, pages(4, 10))).expect("memory");
    });
}

#[test]
fn e5_a_table_that_moves_whole_is_one_event() {
    with(|scene, space| {
        let mm = scene.mm;
        let table = X86_64_TABLE;
        let from = PageSpan::new(FIRST.add(table), FIRST.add(2 * table));
        mm.map(space, &Request::anon(table).at(At::Fixed(from.start))).expect("free");
        (0..3).for_each(|at| _ = scene.access(space, from.start.add(at), Some(at)));
        let before = mm.totals();
        let to = FIRST.add(4 * table);
        mm.remap(space, from, table, Move::To(to)).expect("memory");
        let event = |event| mm.totals().event(event) - before.event(event);
        assert_eq!(event(Event::TableMoved), 1);
        (0..3).for_each(|at| assert_eq!(scene.access(space, to.add(at), None), at));
    });
}

const X86_64_TABLE: u64 = 512;

#[test]
fn e5_aging_and_lazily_freed_pages_are_counted_by_pages() {
    with(|scene, space| {
        let (mm, all) = (scene.mm, [space]);
        let aged = counts(scene, &[(Event::PagesAged, 16)], || mm.reclaim().age_all(&all[..]));
        assert_eq!(aged, 16);
        let lazy = [(Event::LazyFree, 7)];
        counts(scene, &lazy, || mm.spaces().free_lazily(space, pages(9, 30))).expect("memory");
        assert_eq!(mm.spaces().lazily_free(space, pages(0, 64)), 7);
        counts(scene, &[], || mm.spaces().free_lazily(space, pages(16, 8))).expect("memory");
    });
}

#[test]
fn e5_pages_that_leave_and_come_back_are_counted_by_pages_and_entries() {
    with(|scene, space| {
        let (mm, all) = (scene.mm, [space]);
        let out = [(Event::PagesSwapped, 6), (Event::EntriesSwapped, 6)];
        let gone = counts(scene, &out, || {
            mm.paging().page_out(space, pages(10, 20), Scope::Own, &all[..]).expect("sound")
        });
        assert_eq!((gone.pages, gone.stay), (6, 0));
        let before = mm.totals();
        (10..16).for_each(|at| assert_eq!(scene.access(space, FIRST.add(at), None), 1 + at));
        let event = |event| mm.totals().event(event) - before.event(event);
        assert_eq!((event(Event::PagesSwappedIn), event(Event::EntriesMade)), (6, 6));
        let pin = mm.pin(space, FIRST.add(3), Access::Write).expect("it is there");
        let before = mm.totals();
        let done = mm.paging().migrate(space, pages(0, 64), &all[..]).expect("sound");
        assert_eq!((done.pages, done.stay), (15, 1));
        let event = |event| mm.totals().event(event) - before.event(event);
        assert_eq!((event(Event::MigratedPages), event(Event::MigrateFailed)), (15, 1));
        mm.unpin(pin);
    });
}

#[test]
fn e5_pages_of_zeroes_that_are_dropped_are_counted() {
    with(|scene, space| {
        let mm = scene.mm;
        (4..9).for_each(|at| _ = scene.access(space, FIRST.add(at), Some(0)));
        let before = mm.totals();
        assert_eq!(mm.reclaim().drop_zeroes(space, pages(0, 64)), Ok(5));
        let event = |event| mm.totals().event(event) - before.event(event);
        assert_eq!(event(Event::ZeroesDropped), 5);
        assert_eq!(scene.frames(space).len(), 11);
        (0..16).for_each(|at| {
            let word = if (4..9).contains(&at) { 0 } else { at + 1 };
            assert_eq!(scene.access(space, FIRST.add(at), None), word);
        });
    });
}

/// The reads that a page of a file needs.
fn lacking(scene: &Of<'_, '_, '_>, id: FileId, page: u64) -> Reads {
    let wanted = FilePages::new(page, page + 1);
    let done = scene.mm.files().read(id, wanted, &mut Readahead::default(), Pattern::Random);
    let Err(Stop::Need(Need::Read(reads))) = done else { panic!("it is in memory") };
    reads
}

#[test]
fn e5_reads_and_writes_of_files_are_counted_by_pages_also_those_that_fail() {
    with(|scene, space| {
        let (mm, all) = (scene.mm, [space]);
        let id = mm.files().open(Store::ReadWrite, 8, Order::ZERO).expect("a free file");
        for (page, good) in [(0, true), (1, true), (5, true), (6, false)] {
            let mut reads = lacking(scene, id, page);
            let begun = [(Event::FilePagesRead, 1)];
            let read = counts(scene, &begun, || mm.files().next_read(&mut reads));
            let read = read.expect("memory").expect("a page");
            assert_eq!(read.pages(), FilePages::new(page, page + 1));
            let failed = [(Event::FileReadsFailed, u64::from(!good))];
            let done = if good { Ok(()) } else { Err(ReadFailed) };
            counts(scene, &failed, || mm.files().read_done(read, done));
        }
        for page in [0, 5] {
            mm.files().mark_dirty(id, page).expect("it is in memory");
        }
        let mut left = FilePages::new(0, 8);
        for (page, good) in [(0, false), (5, true)] {
            let begun = [(Event::FilePagesWritten, 1)];
            let write = counts(scene, &begun, || mm.files().next_write(id, &mut left, &all[..]));
            let write = write.expect("no wait").expect("a dirty page");
            assert_eq!(write.pages(), FilePages::new(page, page + 1));
            let done = if good { Ok(()) } else { Err(WriteFailed) };
            counts(scene, &[], || mm.files().write_done(write, done));
        }
        let none = counts(scene, &[], || mm.files().next_write(id, &mut left, &all[..]));
        assert!(none.expect("no wait").is_none());
        mm.files().close(id).expect("it is open");
    });
}

#[test]
fn e5_pages_of_a_file_that_are_mapped_are_counted_by_entries() {
    with(|scene, space| {
        let mm = scene.mm;
        let id = mm.files().open(Store::Memory, 8, Order::ZERO).expect("a free file");
        let backing = Backing::File { id, page: 0 };
        let request = Request { backing, flags: AreaFlags::SHARED, ..Request::anon(8) };
        mm.map(space, &request.at(At::Fixed(FIRST.add(100)))).expect("free");
        let before = mm.totals();
        (0..8).for_each(|at| _ = scene.access(space, FIRST.add(100 + at), Some(at)));
        let event = |event| mm.totals().event(event) - before.event(event);
        assert_eq!(event(Event::EntriesMade), 8);
        let child = mm.fork(space, Asid(9)).expect("memory");
        let before = mm.totals();
        let done = mm.populate(&child, pages(100, 8)).expect("memory");
        assert!(done.pages == 8 || done.pages == 0, "{done:?}");
        let event = |event| mm.totals().event(event) - before.event(event);
        assert_eq!(event(Event::EntriesMade), done.pages);
        mm.unmap(&child, pages(0, 512)).expect("memory");
        mm.destroy(child);
        mm.unmap(space, pages(100, 8)).expect("memory");
        mm.files().close(id).expect("it is open");
    });
}

#[test]
fn e5_compactions_are_counted_by_their_end() {
    with(|scene, space| {
        let (mm, all) = (scene.mm, [space]);
        let mut nothing = || {};
        let stall = [(Event::CompactStall, 1), (Event::CompactFailed, 1)];
        // Blocks of that size are free: a compaction makes none.
        let done = counts(scene, &stall, || {
            mm.reclaim().compact_for(Order::new(4), 64, &all[..], &mut nothing)
        });
        assert_eq!((done.made, done.enough), (0, true));
        let order = GROUP_ORDER;
        let goal = Compaction { order, blocks: u64::MAX, pages: u64::MAX };
        let before = mm.totals();
        let done = mm.reclaim().compact(goal, &all[..], &mut nothing);
        let event = |event| mm.totals().event(event) - before.event(event);
        assert_eq!(event(Event::MigratedPages), done.moved);
        assert!(event(Event::CompactScanned) >= done.moved);
    });
}
