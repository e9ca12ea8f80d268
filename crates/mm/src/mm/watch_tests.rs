//! Watched areas, beside a model that goes page by page.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::vec::Vec;

use proptest::prelude::*;
use quire_arch::X86_64;
use quire_hw::FrameRun;
use quire_machine::{Config, Machine, Ram};
use quire_units::{Access, Asid, Order, PageSpan, Vpn};

use crate::cache::{File, FileId, Store};
use crate::check;
use crate::fault::SizePolicy;
use crate::phys::fail::FailPlan;
use crate::phys::{CpuCache, Slot, Zone};
use crate::space::{AreaFlags, At, Backing, Request, Space, Watch, WatchFor, Watched, Watcher};
use crate::stats::Counters;
use crate::table::Sight;
use crate::{Answer, Error, Mm, Need, Parts, Shield, Stop};

type MachineMm<'m, 'r> = Mm<'m, X86_64, Machine<'r>>;

pub(super) const START: Vpn = Vpn::new(4096);
pub(super) const PAGES: u64 = 96;

/// A system, a space, and a file in memory.
pub(super) struct Scene<'t, 'r> {
    pub(super) machine: &'t Machine<'r>,
    pub(super) mm: &'t MachineMm<'t, 'r>,
    pub(super) space: &'t Space<X86_64>,
    pub(super) file: FileId,
}

pub(super) fn with(test: impl FnOnce(&Scene<'_, '_>)) {
    let mut ram = Ram::new(8 << 20).expect("the host has 8 MiB");
    let (machine, run) = Machine::new(Config::x86_64(), &mut ram).expect("a valid preset");
    let mut slots: Vec<Slot> = (0..run.count()).map(|_| Slot::default()).collect();
    let (mut caches, counters, mut zones) =
        ([CpuCache::new()], [Counters::new()], [Zone::new(run.span())]);
    let mut files = [File::new(), File::new()];
    let parts =
        Parts::new(run.start(), &mut slots, &mut caches, &counters, &mut zones).files(&mut files);
    let mm = Mm::<X86_64, _>::new(&machine, parts).expect("sound");
    mm.add(run).expect("the zone is RAM");
    mm.policy().set_size(Order::new(2), SizePolicy::Always).expect("a size");
    let free = mm.allocator().free_frames();
    let space = mm.space(Asid(1), PageSpan::new(START, Vpn::new(8192))).expect("memory");
    let file = mm.files().open(Store::Memory, PAGES, Order::ZERO).expect("a free file");
    test(&Scene { machine: &machine, mm: &mm, space: &space, file });
    check::system(&mm, &[&space]).expect("every claim holds");
    mm.destroy(space);
    mm.files().close(file).expect("it is open");
    assert_eq!(machine.verdict(), Ok(()));
    assert_eq!(mm.allocator().free_frames(), free);
}

pub(super) fn span(start: u64, end: u64) -> PageSpan {
    PageSpan::new(START.add(start), START.add(end))
}

pub(super) fn watch(events: WatchFor) -> Option<Watch> {
    Watcher::new(7).map(|watcher| Watch { watcher, events })
}

impl Scene<'_, '_> {
    fn map(&self, shared: bool) {
        let request = Request::anon(PAGES).at(At::Fixed(START));
        let request = match shared {
            true => Request {
                backing: Backing::File { id: self.file, page: 0 },
                ..request.flags(AreaFlags::SHARED)
            },
            false => request,
        };
        self.mm.map(self.space, &request).expect("free");
    }

    fn watch(&self, pages: PageSpan, events: WatchFor) {
        self.mm.spaces().watch(self.space, pages, watch(events)).expect("it is mapped");
    }

    /// The event of an access, or none where the page is there now.
    fn event(&self, page: u64, access: Access) -> Option<WatchFor> {
        let page = START.add(page);
        match self.mm.fault(self.space, page, access) {
            Ok(_) => None,
            Err(Stop::Need(Need::Watcher(told))) => {
                let watcher = Watcher::new(7).expect("not 0");
                assert_eq!(told, Watched { watcher, page, event: told.event, access });
                Some(told.event)
            }
            Err(stop) => panic!("{stop}"),
        }
    }

    /// Answers with pages that begin with `word` and their number.
    fn copy(&self, pages: PageSpan, word: u64) -> (u64, Option<Stop>) {
        let ram = self.machine;
        let write = &mut |pages: PageSpan, run: &FrameRun| {
            let words = ram.ram().words(run).chunks(512);
            for (page, of_page) in (pages.start.offset_from(START)..).zip(words) {
                of_page[0].store(word + page, Ordering::Relaxed);
            }
            true
        };
        let done = self.mm.files().answer(self.space, pages, &mut Answer::Copy(write), Shield::Off);
        (done.pages, done.end.err())
    }

    fn zero(&self, pages: PageSpan) -> (u64, Option<Stop>) {
        let done = self.mm.files().answer(self.space, pages, &mut Answer::Zeroes, Shield::Off);
        (done.pages, done.end.err())
    }

    /// The first word of a page that is mapped.
    fn word(&self, page: u64) -> u64 {
        let mut found = None;
        self.mm.spaces().runs(self.space, span(page, page + 1), &mut |seen| {
            if let Sight::Leaf { frame, .. } = seen.what {
                found = Some(frame);
            }
        });
        self.machine.ram().load(found.expect("it is mapped"), 0)
    }
}

#[test]
fn d8_an_access_to_a_missing_page_is_the_watchers_until_it_has_answered() {
    with(|scene| {
        scene.map(false);
        assert!(!scene.mm.spaces().was_watched(scene.space));
        scene.watch(span(8, 40), WatchFor::MISSING);
        assert!(scene.mm.spaces().was_watched(scene.space));
        for access in [Access::Read, Access::Write] {
            assert_eq!(scene.event(9, access), Some(WatchFor::MISSING));
        }
        assert_eq!(scene.event(7, Access::Write), None, "it is not watched");
        assert_eq!(scene.copy(span(8, 24), 100), (16, None));
        assert_eq!(scene.event(9, Access::Write), None);
        assert_eq!((scene.word(8), scene.word(23)), (108, 123));
        let folios: u64 = scene.mm.totals().alloc[2];
        assert_eq!(folios, 1 + 4, "an answer has folios of the sizes that the area may have");
        assert_eq!(scene.zero(span(24, 30)), (6, None));
        assert_eq!((scene.word(29), scene.event(30, Access::Read)), (0, Some(WatchFor::MISSING)));
        scene.mm.spaces().watch(scene.space, span(8, 40), None).expect("it is mapped");
        assert_eq!(scene.event(30, Access::Read), None);
        assert_eq!(scene.mm.spaces().areas(scene.space, span(0, PAGES)).count(), 1);
    });
}

#[test]
fn d8_an_answer_replaces_nothing_and_says_where_it_ended() {
    with(|scene| {
        scene.map(false);
        scene.watch(span(0, 16), WatchFor::MISSING);
        assert_eq!(scene.copy(span(4, 5), 50), (1, None));
        let there = Some(Error::Present(START.add(4)).into());
        assert_eq!(scene.copy(span(0, 8), 0), (4, there));
        assert_eq!(scene.zero(span(4, 8)), (0, there));
        assert_eq!(scene.word(4), 54);
        assert_eq!(scene.copy(span(5, 20), 0), (11, Some(Error::NoArea(START.add(16)).into())));
        let cannot = &mut |_: PageSpan, _: &FrameRun| false;
        scene.watch(span(16, 20), WatchFor::MISSING);
        let done = scene.mm.files().answer(
            scene.space,
            span(16, 20),
            &mut Answer::Copy(cannot),
            Shield::Off,
        );
        assert_eq!((done.pages, done.end), (0, Err(Error::Missing(START.add(16)).into())));
        let bad = PageSpan::new(START, START);
        assert_eq!(scene.zero(bad), (0, Some(Error::Invalid.into())));
    });
}

#[test]
fn d8_a_page_that_the_file_has_is_a_minor_event() {
    with(|scene| {
        scene.map(true);
        scene.watch(span(0, PAGES), WatchFor::MISSING | WatchFor::MINOR);
        assert_eq!(scene.event(3, Access::Write), Some(WatchFor::MISSING));
        assert_eq!(scene.copy(span(0, 16), 70), (16, None));
        let there = Some(Error::Present(START.add(3)).into());
        assert_eq!(scene.copy(span(3, 4), 70), (0, there));
        scene.mm.discard(scene.space, span(0, PAGES)).expect("mapped");
        assert_eq!(scene.event(3, Access::Read), Some(WatchFor::MINOR));
        assert_eq!(scene.copy(span(3, 4), 70), (0, there), "the file has it");
        let cached =
            |pages| scene.mm.files().answer(scene.space, pages, &mut Answer::Cached, Shield::Off);
        assert_eq!(
            (cached(span(3, 6)).pages, scene.event(6, Access::Read)),
            (3, Some(WatchFor::MINOR))
        );
        assert_eq!((scene.word(3), scene.word(5)), (73, 75));
        let end = Err(Error::Missing(START.add(16)).into());
        assert_eq!((cached(span(6, 20)).pages, cached(span(16, 20)).end), (10, end));
        assert_eq!(scene.event(15, Access::Write), None);
    });
}

#[test]
fn d8_neither_a_child_nor_a_moved_page_is_watched() {
    with(|scene| {
        scene.map(false);
        scene.watch(span(0, 16), WatchFor::MISSING);
        let child = scene.mm.fork(scene.space, Asid(2)).expect("memory");
        scene.mm.fault(&child, START, Access::Read).expect("memory");
        scene.mm.destroy(child);
        assert_eq!(scene.event(0, Access::Read), Some(WatchFor::MISSING));
        let to = START.add(1024);
        let how = crate::Move::To(to);
        scene.mm.remap(scene.space, span(0, 16), 16, how).expect("there is room");
        scene.mm.fault(scene.space, to, Access::Read).expect("memory");
    });
}

#[cfg(feature = "watch")]
#[test]
fn d8_a_watch_goes_with_moves_and_to_children_if_it_asks_for_that() {
    with(|scene| {
        scene.map(false);
        let keeps = WatchFor::MOVED | WatchFor::FORKED;
        scene.watch(span(0, 16), WatchFor::MISSING | WatchFor::WRITE | keeps);
        assert_eq!(scene.zero(span(0, 8)), (8, None));
        // A pinned page is copied for the child: the copy is protected as well.
        let pinned = scene.mm.pin(scene.space, START, Access::Write).expect("it is there");
        scene.mm.spaces().write_protect(scene.space, span(0, 8), Shield::All).expect("watched");
        let child = scene.mm.fork(scene.space, Asid(2)).expect("memory");
        let told = |space: &Space<X86_64>, page: u64, access| match scene.mm.fault(
            space,
            START.add(page),
            access,
        ) {
            Err(Stop::Need(Need::Watcher(told))) => Some(told.event),
            other => panic!("{other:?}"),
        };
        for page in [0, 1, 7] {
            assert_eq!(told(&child, page, Access::Write), Some(WatchFor::WRITE), "page {page}");
        }
        assert_eq!(told(&child, 9, Access::Read), Some(WatchFor::MISSING));
        check::system(scene.mm, &[scene.space, &child]).expect("every claim holds");
        scene.mm.destroy(child);
        scene.mm.unpin(pinned);
        let how = crate::Move::To(START.add(1025));
        scene.mm.remap(scene.space, span(0, 16), 16, how).expect("there is room");
        for page in [1025, 1026, 1032] {
            assert_eq!(told(scene.space, page, Access::Write), Some(WatchFor::WRITE));
        }
        assert_eq!(told(scene.space, 1034, Access::Read), Some(WatchFor::MISSING));
    });
}

#[cfg(feature = "watch")]
#[test]
fn d8_moved_pages_are_not_protected_and_count_as_written() {
    with(|scene| {
        scene.map(false);
        scene.watch(span(0, 64), WatchFor::MISSING | WatchFor::WRITE);
        assert_eq!(scene.zero(span(0, 8)), (8, None));
        let spaces = scene.mm.spaces();
        spaces.write_protect(scene.space, span(0, 64), Shield::All).expect("watched");
        spaces.track(scene.space, span(0, 64)).expect("memory");
        // Nor does a marker of an absent page keep a page out.
        let done = spaces.move_pages(scene.space, span(1, 6), START.add(33), false);
        assert_eq!((done.pages, done.end), (5, Ok(())));
        let area = spaces.areas(scene.space, span(33, 34)).next().expect("it is mapped");
        let mut written = 0;
        spaces.runs(scene.space, span(33, 38), &mut |seen| {
            written += if crate::is_written(&area, seen) { seen.pages.count() } else { 0 };
        });
        assert_eq!(written, 5);
        assert_eq!(scene.event(35, Access::Write), None);
        assert_eq!(scene.event(7, Access::Write), Some(WatchFor::WRITE));
        assert_eq!(scene.event(2, Access::Read), Some(WatchFor::MISSING));
    });
}

#[cfg(feature = "watch")]
#[test]
fn d8_an_answer_protects_the_pages_that_it_gives_where_it_says_so() {
    with(|scene| {
        scene.map(false);
        let give = |from: u64, shield| {
            let zeroes = &mut Answer::Zeroes;
            let done = scene.mm.files().answer(scene.space, span(from, from + 4), zeroes, shield);
            (done.pages, done.end.err())
        };
        scene.watch(span(0, 8), WatchFor::MISSING);
        assert_eq!(give(0, Shield::All), (0, Some(Error::Invalid.into())), "not for writes");
        scene.watch(span(0, 16), WatchFor::MISSING | WatchFor::WRITE);
        for (from, shield) in [(0, Shield::Off), (4, Shield::Present), (8, Shield::All)] {
            assert_eq!(give(from, shield), (4, None));
            let told = (shield != Shield::Off).then_some(WatchFor::WRITE);
            for page in [from, from + 3] {
                assert_eq!(scene.event(page, Access::Read), None);
                assert_eq!(scene.event(page, Access::Write), told, "{shield:?}");
            }
        }
    });
}

#[test]
fn d8_a_move_ends_at_the_first_page_that_is_missing_or_there() {
    with(|scene| {
        scene.map(false);
        scene.watch(span(32, 64), WatchFor::MISSING);
        let moved = |from: u64, to: u64, target: u64, holes: bool| {
            let to = span(from, to);
            let done = scene.mm.spaces().move_pages(scene.space, to, START.add(target), holes);
            (done.pages, done.end.err())
        };
        let refused = |error: Error| Some(Stop::Refuse(error));
        scene.mm.populate(scene.space, span(0, 8)).expect("memory");
        let missing = refused(Error::Missing(START.add(8)));
        assert_eq!(moved(3, 16, 33, false), (5, missing), "in the middle of a folio");
        assert_eq!(scene.event(38, Access::Read), Some(WatchFor::MISSING));
        assert_eq!(moved(0, 8, 32, true), (1, refused(Error::Present(START.add(33)))));
        assert_eq!(moved(8, 12, 40, true), (4, None), "holes alone");
        assert_eq!(moved(8, 12, 40, false), (0, missing));
        assert_eq!(moved(0, 4, 64, false), (0, refused(Error::NoArea(START.add(64)))));
        assert_eq!(moved(34, 36, 35, false), (0, refused(Error::Invalid)), "they overlap");
        // Nothing is lost where it was, and the source is zero again.
        assert_eq!(scene.mm.spaces().resident(scene.space), 8);
        scene.mm.fault(scene.space, START.add(3), Access::Write).expect("memory");
    });
}

#[test]
fn d8_a_move_ends_at_a_hole_between_pages_unless_holes_may_move() {
    with(|scene| {
        scene.map(false);
        scene.watch(span(32, 64), WatchFor::MISSING);
        scene.mm.populate(scene.space, span(0, 8)).expect("memory");
        for hole in [span(2, 3), span(4, 6)] {
            scene.mm.discard(scene.space, hole).expect("memory");
        }
        let moved = |from: u64, to: u64, target: u64, holes: bool| {
            let done =
                scene.mm.spaces().move_pages(scene.space, span(from, to), START.add(target), holes);
            (done.pages, done.end.err())
        };
        let missing = |page: u64| Some(Stop::Refuse(Error::Missing(START.add(page))));
        assert_eq!(moved(0, 8, 32, false), (2, missing(2)), "the first hole");
        assert_eq!(moved(3, 8, 40, false), (1, missing(4)), "the next one");
        assert_eq!(moved(4, 8, 48, true), (4, None));
        let is_mapped = |page: &u64| scene.event(*page, Access::Read).is_none();
        let mapped: Vec<u64> = (32..64).filter(is_mapped).collect();
        assert_eq!(mapped, [32, 33, 40, 50, 51]);
    });
}

#[test]
fn d8_an_answer_without_memory_changes_nothing() {
    with(|scene| {
        scene.map(false);
        scene.watch(span(0, 8), WatchFor::MISSING);
        for nth in 1..=4 {
            scene.mm.allocator().set_fail_plan(FailPlan::Nth(nth));
            let done = scene.copy(span(0, 1), 9);
            scene.mm.allocator().set_fail_plan(FailPlan::Never);
            match done {
                (0, Some(Stop::Refuse(Error::NoMemory(_)))) => {
                    assert_eq!(scene.event(0, Access::Read), Some(WatchFor::MISSING));
                }
                (1, None) => return assert!(nth > 3, "three tables or a page are lacking before"),
                other => panic!("{other:?}"),
            }
        }
        panic!("it never succeeds");
    });
}

/// One action on the pages of a span.
#[derive(Clone, Copy, Debug)]
enum Act {
    Watch(u8),
    Copy(u64),
    Zero,
    Cached,
    Access(bool),
    Discard,
    /// To these pages; holes move, too.
    Move(u64, bool),
}

/// A page in the model.
#[derive(Clone, Copy, Default)]
struct Page {
    watched: WatchFor,
    mapped: Option<u64>,
    cached: Option<u64>,
}

#[derive(PartialEq, Eq, Debug)]
enum Ended {
    Done,
    Unwatched,
    Present,
    Missing,
    Invalid,
}

/// The model's end of an answer for one page.
fn answer_one(page: &mut Page, shared: bool, given: Option<u64>) -> Ended {
    let known = if shared { page.cached } else { None };
    page.mapped = match (page.watched.is_empty(), page.mapped, given, known) {
        (true, ..) => return Ended::Unwatched,
        (_, Some(_), ..) | (_, _, Some(_), Some(_)) => return Ended::Present,
        (_, _, None, None) => return Ended::Missing,
        (_, _, Some(word), None) | (_, _, None, Some(word)) => Some(word),
    };
    page.cached = page.mapped;
    Ended::Done
}

fn ended(stop: Option<Stop>) -> Ended {
    match stop {
        None => Ended::Done,
        Some(Stop::Refuse(Error::NoArea(_))) => Ended::Unwatched,
        Some(Stop::Refuse(Error::Present(_))) => Ended::Present,
        Some(Stop::Refuse(Error::Missing(_))) => Ended::Missing,
        Some(Stop::Refuse(Error::Invalid)) => Ended::Invalid,
        Some(other) => panic!("{other}"),
    }
}

impl Scene<'_, '_> {
    /// Takes over what a fault has mapped around its page, and checks that it might.
    fn learn(&self, model: &mut [Page], shared: bool) {
        self.mm.spaces().runs(self.space, span(0, PAGES), &mut |seen| {
            for at in seen.pages.start.get()..seen.pages.end.get() {
                let page = &mut model[(at - START.get()) as usize];
                if page.mapped.is_none() {
                    let hidden = if shared { WatchFor::MINOR } else { WatchFor::MISSING };
                    assert!(!page.watched.contains(hidden), "{at} is its watcher's");
                    page.mapped = if shared { page.cached } else { Some(0) };
                }
            }
        });
    }

    fn act(&self, model: &mut [Page], shared: bool, act: Act, from: u64, to: u64) {
        let pages = span(from, to);
        let part = from as usize..to as usize;
        let given = |at: u64| match act {
            Act::Copy(word) => Some(word + at),
            Act::Zero => Some(0),
            _ => None,
        };
        match act {
            Act::Watch(bits) => {
                let all = WatchFor::MISSING | WatchFor::MINOR;
                let all = if shared { all } else { WatchFor::MISSING };
                let events = WatchFor::from_bits_truncate(bits) & all;
                let some = Some(events).filter(|events| !events.is_empty()).and_then(watch);
                self.mm.spaces().watch(self.space, pages, some).expect("it is mapped");
                model[part].iter_mut().for_each(|page| page.watched = events);
            }
            Act::Copy(_) | Act::Zero | Act::Cached => {
                let (done, stop) = match act {
                    Act::Copy(word) => self.copy(pages, word),
                    Act::Zero => self.zero(pages),
                    _ => {
                        let done = self.mm.files().answer(
                            self.space,
                            pages,
                            &mut Answer::Cached,
                            Shield::Off,
                        );
                        (done.pages, done.end.err())
                    }
                };
                let mut expected = (to - from, Ended::Done);
                for at in from..to {
                    let one = answer_one(&mut model[at as usize], shared, given(at));
                    if one != Ended::Done {
                        expected = (at - from, one);
                        break;
                    }
                }
                assert_eq!((done, ended(stop)), expected);
            }
            Act::Access(writes) => {
                let page = model[from as usize];
                if shared && page.mapped.or(page.cached).is_none() && page.watched.is_empty() {
                    return;
                }
                let cached = shared && page.cached.is_some();
                let event = if cached { WatchFor::MINOR } else { WatchFor::MISSING };
                let tells = page.mapped.is_none() && page.watched.contains(event);
                if !tells && !cached && shared && page.mapped.is_none() {
                    return;
                }
                let access = if writes { Access::Write } else { Access::Read };
                assert_eq!(self.event(from, access), tells.then_some(event));
                self.learn(model, shared);
            }
            Act::Discard => {
                self.mm.discard(self.space, pages).expect("mapped");
                model[part].iter_mut().for_each(|page| page.mapped = None);
            }
            Act::Move(target, holes) => {
                let target = target.min(PAGES - (to - from));
                let to = START.add(target);
                let done = self.mm.spaces().move_pages(self.space, pages, to, holes);
                let expected = move_each(model, part, target as usize, holes, shared);
                assert_eq!((done.pages, ended(done.end.err())), expected);
            }
        }
    }
}

/// The model's end of a move, page by page, and how many moved.
fn move_each(
    model: &mut [Page],
    from: Range<usize>,
    to: usize,
    holes: bool,
    shared: bool,
) -> (u64, Ended) {
    let (target, pages) = (to..to + from.len(), from.len() as u64);
    let one_area = |part: Range<usize>| {
        let first = model[part.start].watched;
        model[part].iter().all(|page| page.watched == first)
    };
    if !one_area(from.clone()) || !one_area(target.clone()) {
        return (0, Ended::Unwatched);
    }
    if shared || from.start < target.end && target.start < from.end {
        return (0, Ended::Invalid);
    }
    if model[to].watched.is_empty() {
        return (0, Ended::Unwatched);
    }
    for (done, (at, there)) in from.zip(target).enumerate() {
        let end = match (model[at].mapped, model[there].mapped) {
            (_, Some(_)) => Ended::Present,
            (None, _) if !holes => Ended::Missing,
            (moved, None) => {
                (model[at].mapped, model[there].mapped) = (None, moved);
                continue;
            }
        };
        return (done as u64, end);
    }
    (pages, Ended::Done)
}

fn acts() -> impl Strategy<Value = Vec<(Act, u64, u64)>> {
    let act = prop_oneof![
        (0..4_u8).prop_map(Act::Watch),
        (1..9_u64).prop_map(|word| Act::Copy(word << 20)),
        Just(Act::Zero),
        Just(Act::Cached),
        any::<bool>().prop_map(Act::Access),
        Just(Act::Discard),
        (0..PAGES, any::<bool>()).prop_map(|(to, holes)| Act::Move(to, holes)),
    ];
    let one = (act, 0..PAGES, 1..33_u64)
        .prop_map(|(act, from, count)| (act, from, (from + count).min(PAGES)));
    prop::collection::vec(one, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn i17_watched_areas_are_as_a_model_of_pages_says(acts in acts(), shared in any::<bool>()) {
        with(|scene| {
            scene.map(shared);
            let mut model = [Page::default(); PAGES as usize];
            for (act, from, to) in acts {
                scene.act(&mut model, shared, act, from, to);
            }
            for (at, page) in (0..).zip(&model) {
                if let Some(word) = page.mapped {
                    assert_eq!(scene.word(at), word, "page {at}");
                }
            }
        });
    }
}

/// Page 65 is there, in the middle of a folio that begins before it and whose other pages are
/// missing: an answer from page 52 on ends before it.
#[test]
fn i17_an_answer_ends_at_a_page_that_is_there_within_a_folio() {
    with(|scene| {
        scene.map(true);
        let mut model = [Page::default(); PAGES as usize];
        let mut act = |act, from, to| scene.act(&mut model, true, act, from, to);
        act(Act::Watch(1), 44, 68);
        act(Act::Copy(1 << 20), 48, 68);
        act(Act::Discard, 66, 67);
        act(Act::Discard, 52, 65);
        act(Act::Cached, 52, 67);
    });
}
