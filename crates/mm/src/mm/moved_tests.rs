//! Folios of a file move or are divided where spaces map them: all that is known about them moves
//! along, and all of it stays where they cannot.

use std::collections::BTreeMap;
use std::vec::Vec;

use quire_arch::{Arch, Arm4k, Attrs, Sv39, X86_64};
use quire_machine::Config;
use quire_units::{Access, Asid, Order, PageSpan, Pfn, Vpn};

use super::migrate_tests::{Device, Scene, with_device};
use crate::cache::{Entry, FileId, FilePages, Pattern, Readahead, Store, identity};
use crate::files::{Bound, Mappings};
use crate::folio::{Counts, Folio, FolioFlags, Home};
use crate::space::{AreaFlags, At, Backing, Request, Space};
use crate::stats::Event;

const START: Vpn = Vpn::new((1 << 18) + 1024);
const PAGES: u64 = 64;
const FOLIO: u64 = 16;
const ALL: PageSpan = PageSpan::new(START, Vpn::new((1 << 18) + 1024 + PAGES));

/// A file in memory of four folios, all written; two spaces share it, and the second maps three of
/// four pages.
struct Shown<'a, 'm, 'r, A: Arch> {
    scene: &'a Scene<'a, 'm, 'r, A>,
    id: FileId,
    spaces: [Space<A>; 2],
}

/// The whole state of a file that spaces show, but the frames of its folios.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Record {
    /// Of each folio: its pages, its facts, its holds, its home, and whether it is clean.
    folios: Vec<(FilePages, FolioFlags, Counts, Home, bool)>,
    /// Of each space: the page of the file that each of its pages shows, and its attributes.
    shown: [BTreeMap<Vpn, (u64, Attrs)>; 2],
    cached: u64,
}

impl<A: Arch> Shown<'_, '_, '_, A> {
    fn all(&self) -> [&Space<A>; 2] {
        [&self.spaces[0], &self.spaces[1]]
    }

    fn folio(&self, page: u64) -> Folio {
        let index = self.scene.mm.base().index(self.id).expect("open");
        let (Entry::Folio { folio, .. }, _) = index.find(page) else { panic!("page {page}") };
        folio
    }

    /// The frame of each page of the file.
    fn frames(&self) -> Vec<Pfn> {
        let frame = |page| {
            let folio = self.folio(page);
            folio.head.add(page & (folio.order.pages() - 1))
        };
        (0..PAGES).map(frame).collect()
    }

    fn record(&self) -> Record {
        let (base, frames) = (self.scene.mm.base(), self.frames());
        let (index, folios) = (base.index(self.id).expect("open"), base.folios());
        let (mut found, mut at) = (Vec::new(), 0);
        while at < PAGES {
            let folio = self.folio(at);
            let pages = FilePages::block(at, folio.order);
            let (known, owner) = folios.known(folio);
            assert_eq!(owner, identity(self.id, at));
            let clean = index.is_clean(at, folio);
            found.push((pages, known, folios.counts(folio), folios.home(folio), clean));
            at = pages.end;
        }
        let shown = self.all().map(|space| {
            let leaves = self.scene.frames(space).into_iter();
            let page = |frame: Pfn| frames.iter().position(|of| *of == frame);
            let page =
                |frame| page(frame).expect("no page shows a frame that is no longer the file's");
            leaves.map(|(at, (frame, attrs))| (at, (page(frame) as u64, attrs))).collect()
        });
        Record { folios: found, shown, cached: index.file.cached() }
    }

    /// Lets `folio` have other facts.
    fn learn(&self, page: u64, change: impl Fn(FolioFlags) -> FolioFlags) {
        let cached = self.scene.mm.base().cached(self.id, page, self.folio(page)).expect("cached");
        cached.learn(change(cached.known()));
    }

    /// Moves `folio`, which is to have `owner`, to new frames; whether it could, and these frames.
    fn moves(&self, folio: Folio, owner: u64) -> (bool, Pfn) {
        let mm = self.scene.mm;
        let to = mm.base().frames(folio.order, true).expect("memory");
        let (free, head) = (mm.allocator().free_frames(), to.start());
        let done = mm.files().move_cached(folio, owner, to, &&self.all()[..]);
        self.scene.check(&self.all());
        let back = mm.allocator().free_frames() - free;
        assert_eq!(back, folio.order.pages(), "{}: the old frames are free, or the new", A::NAME);
        (done, head)
    }

    fn divides(&self, folio: Folio, owner: u64, most: u8) -> bool {
        let divide =
            |most| self.scene.mm.files().divide_whole(folio, owner, most, &&self.all()[..]);
        let done = divide(Order::new(most));
        self.scene.check(&self.all());
        done
    }

    /// How often a folio was divided, and how often it could not be.
    fn splits(&self) -> [u64; 2] {
        let totals = self.scene.mm.totals();
        [Event::FolioSplit, Event::FolioSplitFailed].map(|event| totals.event(event))
    }
}

fn with<A: Arch>(config: Config, smallest: u8, test: impl FnOnce(&Shown<'_, '_, '_, A>)) {
    with_device::<A>(config, Device::Moves, |scene| {
        let (mm, space) = (scene.mm, scene.space());
        let id = mm.files().open(Store::Memory, PAGES, Order::new(smallest)).expect("a free file");
        let backing = Backing::File { id, page: 0 };
        let request = Request { backing, flags: AreaFlags::SHARED, ..Request::anon(PAGES) };
        mm.map(&space, &request.at(At::Fixed(START))).expect("free");
        for at in 0..PAGES {
            scene.access(&space, START.add(at), Some(at + 5));
        }
        let child = mm.fork(&space, Asid(9)).expect("memory");
        (0..PAGES).for_each(|at| _ = scene.access(&child, START.add(at), None));
        for at in (3..PAGES).step_by(4) {
            mm.discard(&child, PageSpan::new(START.add(at), START.add(at + 1))).expect("memory");
        }
        let shown = Shown { scene, id, spaces: [space, child] };
        assert_eq!(shown.folio(FOLIO).order, Order::new(4), "{}", A::NAME);
        test(&shown);
        scene.check(&shown.all());
        for of in shown.all() {
            for at in 0..PAGES {
                assert_eq!(scene.access(of, START.add(at), None), at + 5, "{} page {at}", A::NAME);
            }
        }
        scene.end(shown.spaces);
        mm.files().close(id).expect("it is open");
    });
}

/// A folio that two spaces map, or none, moves.
fn moves<A: Arch>(config: Config, is_mapped: bool) {
    with::<A>(config, 0, |shown| {
        let (scene, mm) = (shown.scene, shown.scene.mm);
        let pages = PageSpan::new(START.add(FOLIO), START.add(2 * FOLIO));
        for space in shown.all().into_iter().filter(|_| !is_mapped) {
            mm.discard(space, pages).expect("memory");
        }
        let facts = FolioFlags::READAHEAD | FolioFlags::IDLE_HIGH | FolioFlags::PUBLISHED;
        shown.learn(FOLIO, |known| (known - FolioFlags::IDLE_LOW) | facts);
        let (folio, owner) = (shown.folio(FOLIO), identity(shown.id, FOLIO));
        let (before, frames) = (shown.record(), shown.frames());
        let (done, head) = shown.moves(folio, owner);
        assert!(done, "{}", A::NAME);
        let now = shown.record();
        let of_others = |record: &Record| [0, 2, 3].map(|at| record.folios[at]);
        assert_eq!(of_others(&now), of_others(&before), "{}", A::NAME);
        let (now_of_it, of_it) = (now.folios[1], before.folios[1]);
        assert_eq!((now_of_it.0, now_of_it.4), (of_it.0, of_it.4), "{}", A::NAME);
        // Only the old bytes were published. A mapping takes note of the mark of readahead.
        let lost = FolioFlags::PUBLISHED | FolioFlags::READAHEAD;
        let lost = if is_mapped { lost } else { FolioFlags::PUBLISHED };
        assert_eq!(now_of_it.1, of_it.1 - lost, "{}", A::NAME);
        assert_eq!(now_of_it.3.page, of_it.3.page, "{}: its home", A::NAME);
        assert!(is_mapped || now_of_it.3 == of_it.3, "{}: its home", A::NAME);
        assert_eq!(now.cached, before.cached);
        for (now, before) in now.shown.iter().zip(&before.shown) {
            for (page, (shows, _)) in before {
                assert_eq!(now.get(page).map(|(page, _)| page), Some(shows), "{}", A::NAME);
            }
            let is_there = now.keys().any(|page| pages.contains(*page));
            assert_eq!(is_there, is_mapped, "{}: mapped where it was", A::NAME);
        }
        for (page, (now, before)) in shown.frames().into_iter().zip(frames).enumerate() {
            let is_of_it = (FOLIO..2 * FOLIO).contains(&(page as u64));
            let expected = if is_of_it { head.add(page as u64 - FOLIO) } else { before };
            assert_eq!(now, expected, "{} page {page}", A::NAME);
        }
        scene.check(&shown.all());
    });
}

#[test]
fn e7_a_folio_of_a_file_moves_with_all_that_is_known_about_it() {
    for is_mapped in [true, false] {
        moves::<X86_64>(Config::x86_64(), is_mapped);
        moves::<Arm4k>(Config::arm64_4k(), is_mapped);
        moves::<Sv39>(Config::riscv64_sv39(), is_mapped);
    }
}

/// Of a record, what a fault-around may not change: the folios, and the pages that were shown.
fn stays<A: Arch>(shown: &Shown<'_, '_, '_, A>, why: &str, act: impl FnOnce()) {
    let (before, frames) = (shown.record(), shown.frames());
    act();
    let now = shown.record();
    assert_eq!(shown.frames(), frames, "{} {why}", A::NAME);
    for (now, before) in now.folios.iter().zip(&before.folios) {
        assert_eq!((now.0, now.1), (before.0, before.1), "{} {why}", A::NAME);
        // Its last mapping names its home.
        assert_eq!(now.3.page, before.3.page, "{} {why}", A::NAME);
        assert!(shown.all().iter().any(|space| space.number() == now.3.space), "{why}");
        assert_eq!((now.2.refs, now.2.pins), (before.2.refs, before.2.pins), "{} {why}", A::NAME);
    }
    for (now, before) in now.shown.iter().zip(&before.shown) {
        for (page, (shows, _)) in before {
            let shows_now = now.get(page).map(|(page, _)| page);
            assert_eq!(shows_now, Some(shows), "{} {why}: {page:?}", A::NAME);
        }
    }
    assert_eq!(now.cached, before.cached);
}

/// Each obstacle, and the folio's pages once it is gone.
fn cannot_move<A: Arch>(config: Config) {
    with::<A>(config, 0, |shown| {
        let (scene, mm) = (shown.scene, shown.scene.mm);
        let (folio, owner) = (shown.folio(FOLIO), identity(shown.id, FOLIO));
        let refused = |why: &str, folio, owner| {
            stays(shown, why, || assert!(!shown.moves(folio, owner).0, "{} {why}", A::NAME));
        };
        let flushes = || mm.totals().event(Event::Flush);
        let before = flushes();
        refused("another folio of the file", shown.folio(0), owner);
        refused("another place of the file", folio, identity(shown.id, 2 * FOLIO));
        let half = Folio { order: Order::new(3), ..folio };
        refused("a part of the folio", half, owner);
        refused("a file that is not open", folio, identity(FileId(7), FOLIO));
        assert_eq!(flushes(), before, "{}: no page was unmapped for that", A::NAME);
        let wanted = FilePages::new(FOLIO + 3, FOLIO + 4);
        let held = mm.files().read(shown.id, wanted, &mut Readahead::default(), Pattern::Normal);
        let (held, _) = held.expect("it is in memory");
        refused("held", folio, owner);
        mm.files().release(held);
        let pin = mm.pin(&shown.spaces[1], START.add(FOLIO + 1), Access::Read).expect("there");
        refused("pinned", folio, owner);
        mm.unpin(pin);
        for flag in [FolioFlags::WRITING, FolioFlags::LEAVING] {
            shown.learn(FOLIO, |known| known | flag);
            refused("on its way", folio, owner);
            shown.learn(FOLIO, |known| known - flag);
        }
        let bad = folio.head.add(FOLIO - 1);
        assert!(mm.hardware().set_poisoned(bad, true));
        refused("lost", folio, owner);
        mm.hardware().set_poisoned(bad, false);
        let (done, head) = shown.moves(folio, owner);
        assert!(done && shown.folio(FOLIO).head == head, "{}: nothing is in its way", A::NAME);
        let page = PageSpan::new(START.add(FOLIO + 5), START.add(FOLIO + 6));
        mm.spaces().track(&shown.spaces[1], page).expect("memory");
        refused("tracked", shown.folio(FOLIO), owner);
        assert!(shown.moves(shown.folio(0), identity(shown.id, 0)).0, "only its own pages count");
        scene.check(&shown.all());
    });
}

#[test]
fn e7_a_folio_of_a_file_that_cannot_move_stays_and_its_pages_stay_mapped() {
    cannot_move::<X86_64>(Config::x86_64());
    cannot_move::<Arm4k>(Config::arm64_4k());
}

fn divides<A: Arch>(config: Config) {
    with::<A>(config, 2, |shown| {
        let mm = shown.scene.mm;
        let (folio, owner) = (shown.folio(FOLIO), identity(shown.id, FOLIO));
        let before = shown.splits();
        let refused = |why: &str, folio, owner, most| {
            stays(shown, why, || assert!(!shown.divides(folio, owner, most), "{} {why}", A::NAME));
        };
        refused("another folio", shown.folio(0), owner, 2);
        refused("smaller than the file's folios may be", folio, owner, 1);
        let wanted = FilePages::new(FOLIO + 3, FOLIO + 4);
        let held = mm.files().read(shown.id, wanted, &mut Readahead::default(), Pattern::Normal);
        let (held, _) = held.expect("it is in memory");
        refused("held", folio, owner, 2);
        mm.files().release(held);
        assert_eq!(shown.splits(), [before[0], before[1] + 3]);
        refused("a file that is not open", folio, identity(FileId(7), FOLIO), 2);
        let (record, frames) = (shown.record(), shown.frames());
        assert!(shown.divides(folio, owner, 2), "{}: the smallest that it may have", A::NAME);
        assert_eq!(shown.splits(), [before[0] + 1, before[1] + 3]);
        let now = shown.record();
        assert_eq!(shown.frames(), frames, "{}: they stay where they are", A::NAME);
        let sizes: Vec<u64> = now.folios.iter().map(|(pages, ..)| pages.count()).collect();
        assert_eq!(sizes, [16, 4, 4, 4, 4, 16, 16], "{}", A::NAME);
        for (now, before) in now.shown.iter().zip(&record.shown) {
            assert!(before.keys().all(|page| now.contains_key(page)), "{}: mapped again", A::NAME);
        }
        assert!(now.folios.iter().all(|(_, known, ..)| !known.contains(FolioFlags::SECLUDED)));
        let dirty = |folios: &[(FilePages, FolioFlags, Counts, Home, bool)]| {
            folios.iter().any(|(.., clean)| *clean)
        };
        assert_eq!(dirty(&now.folios), dirty(&record.folios));
    });
}

#[test]
fn e7_a_folio_of_a_file_is_divided_in_place_down_to_the_files_smallest() {
    divides::<X86_64>(Config::x86_64());
    divides::<Arm4k>(Config::arm64_4k());
}

/// Pages are shown again where they were mapped, and no others.
fn shows_again<A: Arch>(config: Config) {
    with::<A>(config, 0, |shown| {
        let (mm, scene) = (shown.scene.mm, shown.scene);
        let file = mm.files().opened(shown.id).expect("open");
        let pages = FilePages::new(FOLIO, 3 * FOLIO);
        let home = Home { space: shown.spaces[1].number(), page: START.add(pages.start) };
        let mapped = |at: usize| -> Vec<u64> {
            let frames = scene.frames(&shown.spaces[at]);
            frames
                .keys()
                .filter(|page| ALL.contains(**page))
                .map(|at| at.offset_from(START))
                .collect()
        };
        let clear = || {
            // One page stays, so that there is a table.
            for space in &shown.spaces {
                mm.discard(space, PageSpan::new(START, START.add(PAGES))).expect("memory");
                scene.access(space, Vpn::new(START.get() - 1024), None);
            }
        };
        let expected: Vec<u64> = (pages.start..pages.end).collect();
        let none: Vec<u64> = Vec::new();
        let cases = [
            (Mappings::Nowhere, [&none, &none]),
            (Mappings::Home(home), [&none, &expected]),
            (Mappings::Home(Home::UNKNOWN), [&none, &none]),
            (Mappings::Anywhere, [&expected, &expected]),
        ];
        for (where_mapped, expected) in cases {
            clear();
            file.show_again(pages, where_mapped, &&shown.all()[..]);
            let now = [mapped(0), mapped(1)];
            assert_eq!([&now[0], &now[1]], expected, "{} {where_mapped:?}", A::NAME);
            scene.check(&shown.all());
        }
    });
}

#[test]
fn e7_pages_are_shown_again_where_they_were_mapped_and_no_others() {
    shows_again::<X86_64>(Config::x86_64());
    shows_again::<Arm4k>(Config::arm64_4k());
}

#[test]
fn e7_a_secluded_folio_says_where_it_was_mapped_and_why_it_is_kept() {
    with::<X86_64>(Config::x86_64(), 0, |shown| {
        let mm = shown.scene.mm;
        let file = mm.files().opened(shown.id).expect("open");
        let folios = mm.base().folios();
        let (one, two) = (FilePages::new(0, FOLIO), FilePages::new(0, 2 * FOLIO));
        // The second space maps the first folio as well: its home does not have all mappings.
        for pages in [one, two] {
            let hidden = file.seclude(pages, &&shown.all()[..]).map_err(|kept| kept.why);
            assert_eq!(hidden, Ok(Mappings::Anywhere));
            assert!(folios.is_secluded(shown.folio(0)));
            assert_eq!(folios.counts(shown.folio(0)).mapped, 0);
            file.readmit(pages);
            assert!(!folios.is_secluded(shown.folio(0)));
        }
        assert_eq!(
            file.seclude(one, &&shown.all()[..]).map_err(|kept| kept.why),
            Ok(Mappings::Nowhere)
        );
        file.readmit(one);
        shown.scene.access(&shown.spaces[0], START.add(2), None);
        let home = folios.home(shown.folio(0));
        assert_eq!(home, Home { space: shown.spaces[0].number(), page: START });
        let hidden = file.seclude(one, &&shown.all()[..]).map_err(|kept| kept.why);
        assert_eq!(hidden, Ok(Mappings::Home(home)));
        file.readmit(one);
        let cases = [
            (FolioFlags::POISONED, Bound::Failed),
            (FolioFlags::WRITING, Bound::Held),
            (FolioFlags::LEAVING, Bound::Held),
        ];
        for (flag, why) in cases {
            shown.learn(FOLIO, |known| known | flag);
            let kept = file.seclude(two, &&shown.all()[..]).map_err(|kept| kept.why);
            assert_eq!(kept, Err(why), "{flag:?}");
            shown.learn(FOLIO, |known| known - flag);
            let is_secluded = |page| folios.is_secluded(shown.folio(page));
            assert!(!is_secluded(0) && !is_secluded(FOLIO), "{flag:?}: all is as before");
        }
    });
}

#[test]
fn b1_a_hole_of_whole_folios_divides_none() {
    with::<X86_64>(Config::x86_64(), 0, |shown| {
        let (scene, mm) = (shown.scene, shown.scene.mm);
        let before = shown.splits();
        let hole = FilePages::new(FOLIO, 3 * FOLIO);
        mm.files().punch(shown.id, hole, &shown.all()[..]).expect("memory");
        assert_eq!(shown.splits(), before, "no folio reaches beyond the hole");
        assert_eq!(mm.files().get(shown.id).map(|file| file.cached()), Some(2 * FOLIO));
        scene.check(&shown.all());
        for at in hole.start..hole.end {
            assert_eq!(scene.access(&shown.spaces[1], START.add(at), None), 0);
            scene.access(&shown.spaces[0], START.add(at), Some(at + 5));
        }
        // An odd hole divides the two folios at its ends, and only those.
        let hole = FilePages::new(FOLIO - 4, 3 * FOLIO + 4);
        mm.files().punch(shown.id, hole, &shown.all()[..]).expect("memory");
        let now = shown.splits();
        assert_eq!([now[0] - before[0], now[1]], [2, before[1]]);
        for at in hole.start..hole.end {
            assert_eq!(scene.access(&shown.spaces[1], START.add(at), None), 0);
            scene.access(&shown.spaces[0], START.add(at), Some(at + 5));
        }
    });
}
