//! Pages of files leave, and nothing else with them; folios move in the order in which most of
//! them find room; memory that fails twice is held once.

use std::collections::BTreeMap;
use std::vec::Vec;

use quire_arch::{Arch, Arm4k, X86_64};
use quire_machine::Config;
use quire_units::{Asid, CpuId, FrameSpan, Order, PageSpan, Pfn, Vpn};

use super::migrate_tests::{Device, Scene, with_device};
use super::shared_tests;
use crate::base::folios_within;
use crate::cache::{FileId, FilePages, Pattern, Readahead, Store};
use crate::fault::SizePolicy;
use crate::files::Held;
use crate::folio::FolioFlags;
use crate::limits::GROUP_ORDER;
use crate::space::{AreaFlags, At, Backing, Request, Space};
use crate::stats::Event;
use crate::{Loss, Need, Scope, Stop};

const START: Vpn = Vpn::new((1 << 18) + 1024);
const PAGES: u64 = 64;

/// A file with a store, all of it in memory, that two spaces show.
struct Stored<'a, 'm, 'r, A: Arch> {
    scene: &'a Scene<'a, 'm, 'r, A>,
    id: FileId,
    spaces: [Space<A>; 2],
}

impl<A: Arch> Stored<'_, '_, '_, A> {
    fn all(&self) -> [&Space<A>; 2] {
        [&self.spaces[0], &self.spaces[1]]
    }

    fn hold(&self, page: u64) -> Held {
        let (files, wanted) = (self.scene.mm.files(), FilePages::new(page, page + 1));
        loop {
            match files.read(self.id, wanted, &mut Readahead::default(), Pattern::Random) {
                Ok((held, _)) => return held,
                Err(Stop::Need(Need::Read(mut reads))) => {
                    while let Ok(Some(read)) = files.next_read(&mut reads) {
                        files.read_done(read, Ok(()));
                    }
                }
                Err(other) => panic!("{other:?}"),
            }
        }
    }

    fn is_cached(&self, page: u64) -> bool {
        let next = self.scene.mm.files().next_cached(self.id, FilePages::new(page, page + 1));
        next.expect("open").is_some()
    }

    /// The frame of each page of the file that a space maps.
    fn mapped(&self, space: usize) -> BTreeMap<u64, Pfn> {
        let frames = self.scene.frames(&self.spaces[space]).into_iter();
        let own = frames.filter(|(page, _)| *page >= START);
        own.map(|(page, (frame, _))| (page.offset_from(START), frame)).collect()
    }
}

fn with<A: Arch>(config: Config, store: Store, test: impl FnOnce(&Stored<'_, '_, '_, A>)) {
    with_device::<A>(config, Device::Swap, |scene| {
        let (mm, space) = (scene.mm, scene.space());
        mm.policy().set_size(Order::new(4), SizePolicy::Never).expect("a size");
        let id = mm.files().open(store, PAGES, Order::ZERO).expect("a free file");
        let backing = Backing::File { id, page: 0 };
        let request = Request { backing, flags: AreaFlags::SHARED, ..Request::anon(PAGES) };
        mm.map(&space, &request.at(At::Fixed(START))).expect("free");
        let child = mm.fork(&space, Asid(9)).expect("memory");
        let stored = Stored { scene, id, spaces: [space, child] };
        if store != Store::Memory {
            (0..PAGES).for_each(|page| mm.files().release(stored.hold(page)));
        }
        test(&stored);
        scene.check(&stored.all());
        scene.end(stored.spaces);
        mm.files().close(id).expect("it is open");
    });
}

/// Pages leave from old to young. A page that stays is mapped where it was.
fn sheds<A: Arch>(config: Config) {
    with::<A>(config, Store::ReadWrite, |stored| {
        let (scene, reclaim) = (stored.scene, stored.scene.mm.reclaim());
        for page in 0..PAGES {
            for space in stored.all() {
                scene.access(space, START.add(page), None);
            }
        }
        for _ in 0..3 {
            reclaim.age_all(&stored.all()[..]);
            (16..40).for_each(|page| _ = scene.access(&stored.spaces[0], START.add(page), None));
        }
        let before = [stored.mapped(0), stored.mapped(1)];
        assert_eq!(before.each_ref().map(BTreeMap::len), [PAGES as usize; 2], "{}", A::NAME);
        let mut dropped = 0;
        while dropped < 30 {
            for page in (16..40).filter(|page| stored.is_cached(*page)) {
                scene.access(&stored.spaces[0], START.add(page), None);
            }
            let done = reclaim.reclaim(6, &stored.all()[..]);
            assert!(done.dropped > 0 && done.dropped <= 8, "{}: {done:?}", A::NAME);
            dropped += done.dropped;
            scene.check(&stored.all());
            let cached: Vec<u64> = (0..PAGES).filter(|page| stored.is_cached(*page)).collect();
            assert_eq!(cached.len() as u64, PAGES - dropped, "{}", A::NAME);
            for (space, before) in before.iter().enumerate() {
                let mut expected = before.clone();
                expected.retain(|page, _| cached.contains(page));
                assert_eq!(stored.mapped(space), expected, "{}: all that stays is mapped", A::NAME);
            }
        }
    });
}

#[test]
fn d6_pages_that_are_not_dropped_stay_mapped_where_they_were() {
    sheds::<X86_64>(Config::x86_64());
    sheds::<Arm4k>(Config::arm64_4k());
}

/// The pages of a file that may be dropped: those of whole folios in `pages` that are clean, and
/// that nothing holds.
fn droppable<A: Arch>(stored: &Stored<'_, '_, '_, A>, pages: FilePages, held: u64) -> Vec<u64> {
    let base = stored.scene.mm.base();
    let (index, folios) = (base.index(stored.id).expect("open"), base.folios());
    let idle = folios_within(&index, pages).filter(|(folio, at)| {
        let counts = folios.counts(*folio);
        counts.mapped == 0
            && counts.pins == 0
            && !at.contains(held)
            && index.is_clean(at.start, *folio)
            && !folios.known(*folio).0.contains(FolioFlags::WRITING)
    });
    idle.flat_map(|(_, at)| at.start..at.end).collect()
}

fn drops_clean<A: Arch>(config: Config) {
    with::<A>(config, Store::ReadWrite, |stored| {
        let (scene, mm) = (stored.scene, stored.scene.mm);
        let page = |at| START.add(at);
        scene.access(&stored.spaces[0], page(3), Some(1));
        scene.access(&stored.spaces[1], page(30), None);
        let all = PageSpan::new(page(0), page(16));
        mm.discard(&stored.spaces[0], all).expect("memory");
        let held = stored.hold(9);
        let pages = FilePages::new(2, 60);
        let expected = droppable(stored, pages, 9);
        assert!(expected.len() > 20 && !expected.contains(&3) && !expected.contains(&30));
        let (free, left) = (mm.allocator().free_frames(), stored.mapped(1));
        let dropped = mm.files().drop_clean(stored.id, pages).expect("open");
        assert_eq!(dropped, expected.len() as u64, "{}", A::NAME);
        scene.check(&stored.all());
        for at in 0..PAGES {
            assert_eq!(stored.is_cached(at), !expected.contains(&at), "{} page {at}", A::NAME);
        }
        // The nodes of its index stay: some of its pages do.
        assert_eq!(mm.allocator().free_frames(), free + dropped, "{}", A::NAME);
        assert_eq!(mm.files().get(stored.id).map(|file| file.cached()), Some(PAGES - dropped));
        assert_eq!(stored.mapped(1), left, "{}: a mapped page stays", A::NAME);
        assert_eq!(mm.files().drop_clean(stored.id, pages), Ok(0));
        mm.files().release(held);
        assert_eq!(mm.files().drop_clean(stored.id, pages), Ok(1));
        assert!(stored.is_cached(3), "it is dirty");
    });
}

#[test]
fn b1_a_drop_takes_the_clean_pages_that_nothing_holds_and_says_how_many() {
    drops_clean::<X86_64>(Config::x86_64());
    drops_clean::<Arm4k>(Config::arm64_4k());
}

#[test]
fn b1_a_clean_page_of_a_file_in_memory_is_not_dropped() {
    with::<X86_64>(Config::x86_64(), Store::Memory, |stored| {
        let (scene, mm) = (stored.scene, stored.scene.mm);
        scene.access(&stored.spaces[0], START.add(5), None);
        let all = PageSpan::new(START, START.add(PAGES));
        mm.discard(&stored.spaces[0], all).expect("memory");
        assert_eq!(mm.files().drop_clean(stored.id, FilePages::new(0, PAGES)), Ok(0));
        assert!(stored.is_cached(5), "it has no other place");
    });
}

/// A shorter file has none of the pages behind its end, and all of those before it, whole or not.
#[test]
fn b1_a_shorter_file_keeps_exactly_the_pages_before_its_end() {
    with::<X86_64>(Config::x86_64(), Store::ReadWrite, |stored| {
        let (scene, mm) = (stored.scene, stored.scene.mm);
        (0..PAGES).for_each(|page| _ = scene.access(&stored.spaces[1], START.add(page), None));
        for end in [63, 50, 49, 17, 16, 1, 0] {
            let free = mm.allocator().free_frames();
            let before = mm.files().get(stored.id).map_or(0, |file| file.cached());
            mm.files().truncate(stored.id, end, &stored.all()[..]).expect("shorter");
            scene.check(&stored.all());
            let cached: Vec<u64> = (0..PAGES).filter(|page| stored.is_cached(*page)).collect();
            assert_eq!(cached, (0..end).collect::<Vec<_>>());
            assert_eq!(stored.mapped(1).into_keys().collect::<Vec<_>>(), cached);
            assert!(mm.allocator().free_frames() >= free + before - end, "they are free");
        }
    });
}

/// Small folios fit anywhere. So the large one chooses first, and is not divided.
fn large_first<A: Arch>(config: Config) {
    with_device::<A>(config, Device::Moves, |scene| {
        let (mm, space, cpu) = (scene.mm, scene.space(), CpuId::new(0));
        scene.fill(&space, 64, 1);
        mm.policy().set_size(Order::new(4), SizePolicy::Never).expect("a size");
        let more = PageSpan::new(START, START.add(1792));
        mm.map(&space, &Request::anon(1792).at(At::Fixed(START))).expect("free");
        for at in 0..more.count() {
            scene.access(&space, more.start.add(at), Some(at));
        }
        // The index of the device keeps the nodes that it needs.
        let first = Vpn::new(1 << 18);
        let few = PageSpan::new(first, first.add(64));
        mm.paging().migrate(&space, few, &[&space][..]).expect("sound pages");
        let orders = (0..=GROUP_ORDER.get()).rev().map(Order::new);
        let alloc = |order| std::iter::from_fn(move || mm.allocator().alloc(cpu, order));
        let held: Vec<_> = orders.flat_map(alloc).collect();
        let frames = scene.frames(&space);
        let group_of = |frame: Pfn| frame.align_down(GROUP_ORDER.pages());
        let group = group_of(frames[&first].0);
        // In the group stay one large folio and 16 single pages; elsewhere one large part becomes
        // free, and 15 single pages.
        let single = |page: &Vpn| *page >= START;
        let here = |page: &Vpn| group_of(frames[page].0) == group;
        let singles: Vec<Vpn> = frames.keys().copied().filter(single).collect();
        let own: Vec<Vpn> = singles.iter().copied().filter(here).collect();
        assert!(own.len() >= 16, "{}: {} pages", A::NAME, own.len());
        let others: BTreeMap<Pfn, Vpn> =
            singles.iter().filter(|page| !here(page)).map(|page| (frames[page].0, *page)).collect();
        let part = others.keys().copied().find(|frame| {
            frame.is_aligned(16) && (0..16).all(|at| others.contains_key(&frame.add(at)))
        });
        let part = part.expect("16 single pages side by side");
        let apart = others.keys().filter(|frame| {
            frame.get() % 2 == 1
                && frame.align_down(16) != part
                && frame.align_down(32) != part.align_down(32)
        });
        let free_one = |page: Vpn| {
            mm.discard(&space, PageSpan::new(page, page.add(1))).expect("memory");
        };
        apart.take(15).for_each(|frame| free_one(others[frame]));
        (0..16).for_each(|at| free_one(others[&part.add(at)]));
        own[16..].iter().for_each(|page| free_one(*page));
        mm.discard(&space, PageSpan::new(first.add(16), first.add(64))).expect("memory");
        mm.allocator().drain();
        assert!(mm.allocator().isolate(group), "{}", A::NAME);
        let splits = mm.totals().event(Event::FolioSplit);
        let frames = FrameSpan::new(group, GROUP_ORDER.pages());
        let done = mm.paging().vacate(frames, &&[&space][..], &mut || {});
        mm.allocator().end_isolation(group);
        assert_eq!((done.moved, done.stay), (31, 1), "{}: one page has no room", A::NAME);
        assert_eq!(done.scanned, 32, "{}", A::NAME);
        assert_eq!(mm.totals().event(Event::FolioSplit), splits, "{}", A::NAME);
        assert_eq!(scene.frames(&space)[&first].0, part, "{}: its only room", A::NAME);
        scene.check(&[&space]);
        held.into_iter().for_each(|run| mm.allocator().free(cpu, run));
        scene.end([space]);
    });
}

#[test]
fn e7_large_folios_choose_their_new_place_before_small_ones() {
    large_first::<X86_64>(Config::x86_64());
    large_first::<Arm4k>(Config::arm64_4k());
}

/// Two frames of one folio fail that two spaces share, so that it cannot be divided.
#[test]
fn d4_a_folio_of_which_two_frames_fail_is_held_once() {
    with_device::<X86_64>(Config::x86_64(), Device::Swap, |scene| {
        let (mm, space) = (scene.mm, scene.space());
        scene.fill(&space, 32, 1);
        let child = mm.fork(&space, Asid(9)).expect("memory");
        let all = [&space, &child];
        let (first, folios) = (Vpn::new(1 << 18), mm.base().folios());
        let head = scene.frames(&space)[&first].0;
        let folio = folios.of(head).expect("a folio");
        assert_eq!((folio.head, folio.order), (head, Order::new(4)));
        let before = folios.counts(folio);
        for (at, frame) in [(3, head.add(3)), (0, head), (15, head.add(15))] {
            let left = scene.frames(&space).len();
            assert_eq!(mm.memory_failed(frame, &all[..]), Ok(Loss::Content));
            assert_eq!(folios.counts(folio).refs, before.refs + 1, "one reference for all");
            assert!(folios.known(folio).0.contains(FolioFlags::POISONED));
            for of in all {
                assert!(!scene.frames(of).contains_key(&first.add(at)));
                assert_eq!(scene.frames(of).len(), left - 1, "no other page is lost");
            }
        }
        assert_eq!(folios.counts(folio).mapped, before.mapped - 6);
        mm.destroy(child);
        scene.end([space]);
        assert!(mm.memory_mended(head) && !mm.memory_mended(head));
    });
}

/// Folios of shared memory come back whole. Then there is nothing to collapse.
#[test]
fn d9_a_block_that_comes_back_whole_for_a_collapse_is_not_copied() {
    shared_tests::with::<X86_64>(Config::x86_64(), 256, |scene| {
        let (mm, space) = (scene.mm, scene.shared(1));
        for page in 0..shared_tests::PAGES {
            scene.access(&space, page, Some(page + 3));
        }
        let spaces = [&space];
        assert_eq!(scene.page_out(&space, Scope::All, &spaces).pages, shared_tests::PAGES);
        scene.begin_writing(usize::MAX);
        scene.answer();
        mm.reclaim().reclaim(u64::MAX, &spaces[..]);
        let (before, first) = (mm.totals(), shared_tests::START.add(16));
        let block = PageSpan::new(first, first.add(16));
        let done = loop {
            match mm.reclaim().collapse_file(&space, block, &spaces[..]) {
                Err(Stop::Need(need)) => scene.serve(need).expect("the disk answers"),
                done => break done.expect("memory"),
            }
        };
        assert_eq!((done.made, done.why), (1, None), "{done:?}");
        let copies = mm.totals().event(Event::CollapseAlloc) - before.event(Event::CollapseAlloc);
        assert_eq!(copies, 0, "it is one folio already");
        for page in 0..shared_tests::PAGES {
            assert_eq!(scene.access(&space, page, None), page + 3);
        }
        scene.end([space]);
    });
}
