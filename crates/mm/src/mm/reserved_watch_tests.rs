//! Watched areas of reserved folios, beside a model that knows each block (rows A9, D8).

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::vec::Vec;

use proptest::prelude::*;
use quire_arch::{Arch, Arm4k, X86_64};
use quire_hw::FrameRun;
use quire_machine::Config;
use quire_units::{Access, Asid, Order, PageSpan, Prot, Vpn};

use super::reserved_tests::{BLOCKS, Scene, with};
use crate::cache::Store;
use crate::check;
use crate::space::{AreaFlags, At, Backing, Request, Space, Watch, WatchFor, Watcher};
use crate::table::{Sight, WATCHED};
use crate::{Answer, Error, Need, Shield, Stop};

const ALL: u64 = 2 * BLOCKS;

#[derive(Clone, Copy, Debug)]
enum Given {
    Zeroes,
    Copy(u64),
    Cached,
}

#[derive(Clone, Debug)]
enum Act {
    Touch {
        block: u64,
        page: u64,
        store: Option<u64>,
    },
    Answer {
        blocks: Range<u64>,
        given: Given,
        shield: bool,
    },
    Protect {
        blocks: Range<u64>,
        on: bool,
    },
    Discard {
        block: u64,
    },
    Punch {
        block: u64,
    },
    /// The watch ends and begins anew.
    Rewatch,
}

fn blocks() -> impl Strategy<Value = Range<u64>> {
    (0..ALL, 1..=4_u64).prop_map(|(at, count)| at..(at + count).min(ALL))
}

fn act() -> impl Strategy<Value = Act> {
    let given =
        prop_oneof![Just(Given::Zeroes), (1..1000_u64).prop_map(Given::Copy), Just(Given::Cached)];
    let store = prop::option::of(1000..2000_u64);
    prop_oneof![
        8 => (0..ALL, 0..16_u64, store)
            .prop_map(|(block, page, store)| Act::Touch { block, page, store }),
        8 => (blocks(), given, any::<bool>())
            .prop_map(|(blocks, given, shield)| Act::Answer { blocks, given, shield }),
        4 => (blocks(), any::<bool>()).prop_map(|(blocks, on)| Act::Protect { blocks, on }),
        3 => (0..ALL).prop_map(|block| Act::Discard { block }),
        2 => (0..BLOCKS).prop_map(|block| Act::Punch { block }),
        1 => Just(Act::Rewatch),
    ]
}

/// A block, as far as the model knows it.
#[derive(Clone, Default, Debug)]
struct Block {
    /// The first words of its first pages, where there is a folio.
    words: Option<[u64; 16]>,
    mapped: bool,
    shielded: bool,
}

struct Life<'t, 'r, A: Arch> {
    scene: &'t Scene<'t, 'r, A>,
    space: Space<A>,
    events: WatchFor,
    blocks: Vec<Block>,
}

fn is_shared(block: u64) -> bool {
    block < BLOCKS
}

impl<'t, 'r, A: Arch> Life<'t, 'r, A> {
    fn new(scene: &'t Scene<'t, 'r, A>, events: WatchFor) -> Self {
        let counts = scene.mm.files().resize_pool(scene.order, ALL).expect("there is a pool");
        assert_eq!(counts.size, ALL);
        let blocks = (0..ALL).map(|_| Block::default()).collect();
        let life = Self { scene, space: scene.space(1), events, blocks };
        life.watch(true);
        life
    }

    fn span(&self, blocks: Range<u64>) -> PageSpan {
        PageSpan::new(self.scene.block(blocks.start).start, self.scene.block(blocks.end).start)
    }

    fn watch(&self, on: bool) {
        let watcher = Watcher::new(3).expect("not 0");
        let watch = on.then_some(Watch { watcher, events: self.events });
        for areas in [0..BLOCKS, BLOCKS..ALL] {
            self.scene.mm.spaces().watch(&self.space, self.span(areas), watch).expect("they fit");
        }
    }

    fn act(&mut self, act: &Act) {
        match act.clone() {
            Act::Touch { block, page, store } => self.touch(block, page, store),
            Act::Answer { blocks, given, shield } => self.answer(blocks, given, shield),
            Act::Protect { blocks, on } => {
                let shield = if on { Shield::All } else { Shield::Off };
                let span = self.span(blocks.clone());
                self.scene.mm.spaces().write_protect(&self.space, span, shield).expect("it fits");
                blocks.for_each(|block| self.blocks[block as usize].shielded = on);
            }
            Act::Discard { block } => {
                let span = self.span(block..block + 1);
                self.scene.mm.discard(&self.space, span).expect("no folio is cut");
                let block = &mut self.blocks[block as usize];
                block.mapped = false;
                if span.start >= self.scene.block(BLOCKS).start && block.words.take().is_some() {
                    block.shielded = false;
                }
            }
            Act::Punch { block } => {
                let (file, hole) = (self.scene.files[0], self.scene.file_pages(block..block + 1));
                self.scene.mm.files().punch(file, hole, &[&self.space][..]).expect("memory");
                let block = &mut self.blocks[block as usize];
                (block.words, block.mapped) = (None, false);
            }
            Act::Rewatch => {
                self.watch(false);
                self.blocks.iter_mut().for_each(|block| block.shielded = false);
                self.watch(true);
            }
        }
    }

    /// The word that an access reads or writes, or the event that its watcher is told.
    fn access(&self, page: Vpn, store: Option<u64>) -> Result<u64, WatchFor> {
        let cpu = self.scene.machine.cpu(0);
        cpu.bind();
        self.space.enter(cpu.number());
        cpu.switch(self.space.root(), self.space.asid());
        let access = if store.is_some() { Access::Write } else { Access::Read };
        let addr = page.addr(A::PAGE_SHIFT);
        for _ in 0..12 {
            let done = match store {
                Some(word) => cpu.write(addr, word).map(|()| word),
                None => cpu.read(addr),
            };
            match done.map_err(|_| self.scene.mm.fault(&self.space, page, access)) {
                Ok(word) => return Ok(word),
                Err(Ok(_)) => {}
                Err(Err(Stop::Need(Need::Watcher(told)))) => {
                    assert_eq!((told.page, told.access), (page, access));
                    return Err(told.event);
                }
                Err(Err(stop)) => panic!("{stop}"),
            }
        }
        panic!("{access:?} of {page} traps for ever");
    }

    fn touch(&mut self, block: u64, page: u64, store: Option<u64>) {
        let at = self.scene.block(block).start.add(page);
        let done = self.access(at, store);
        let (model, is_shared) = (&mut self.blocks[block as usize], is_shared(block));
        let Some(words) = &mut model.words else {
            return assert_eq!(done, Err(WatchFor::MISSING));
        };
        if is_shared && !model.mapped && self.events.contains(WatchFor::MINOR) {
            return assert_eq!(done, Err(WatchFor::MINOR));
        }
        model.mapped = true;
        if store.is_some() && model.shielded {
            if !self.events.contains(WatchFor::ASYNC) {
                return assert_eq!(done, Err(WatchFor::WRITE));
            }
            model.shielded = false;
        }
        let word = &mut words[page as usize];
        *word = store.unwrap_or(*word);
        assert_eq!(done, Ok(*word));
    }

    fn answer(&mut self, blocks: Range<u64>, given: Given, shield: bool) {
        let (ram, span) = (self.scene.machine.ram(), self.span(blocks.clone()));
        let (start, word) =
            (self.scene.block(0).start, if let Given::Copy(word) = given { word } else { 0 });
        let copy = &mut |pages: PageSpan, run: &FrameRun| {
            for (page, of_page) in
                (pages.start.offset_from(start)..).zip(ram.words(run).chunks(512))
            {
                of_page[0].store(word + page, Ordering::Relaxed);
            }
            true
        };
        let mut answer = match given {
            Given::Zeroes => Answer::Zeroes,
            Given::Copy(_) => Answer::Copy(copy),
            Given::Cached => Answer::Cached,
        };
        let how = if shield { Shield::Present } else { Shield::Off };
        let done = self.scene.mm.files().answer(&self.space, span, &mut answer, how);
        let (mut pages, mut end) = (0, Ok(()));
        for block in blocks {
            let first = self.scene.block(block).start;
            let model = &mut self.blocks[block as usize];
            let is_there = model.words.is_some();
            let refused = match given {
                Given::Cached if !is_there => Some(Error::Missing(first)),
                Given::Cached => model.mapped.then_some(Error::Present(first)),
                _ => is_there.then_some(Error::Present(first)),
            };
            if let Some(error) = refused {
                end = Err(Stop::Refuse(error));
                break;
            }
            if !is_there {
                let page = |page| match given {
                    Given::Copy(word) => word + first.add(page).offset_from(start),
                    _ => 0,
                };
                model.words = Some(core::array::from_fn(|at| page(at as u64)));
            }
            (model.mapped, model.shielded) = (true, model.shielded | shield);
            pages += self.scene.order.pages();
        }
        assert_eq!((done.pages, done.end), (pages, end));
    }

    /// The tables and the pool say what the model says.
    fn compare(&self) {
        let mm = self.scene.mm;
        for (block, model) in (0..).zip(&self.blocks) {
            let (mut mapped, mut shielded) = (0, 0);
            mm.spaces().runs(&self.space, self.scene.block(block), &mut |seen| {
                let pages = seen.pages.count();
                match seen.what {
                    Sight::Leaf { attrs, .. } => {
                        mapped += pages;
                        shielded += if attrs.contains(WATCHED) { pages } else { 0 };
                    }
                    Sight::Marker(_) => shielded += pages,
                }
            });
            let of = |is: bool| if is { self.scene.order.pages() } else { 0 };
            assert_eq!((mapped, shielded), (of(model.mapped), of(model.shielded)), "block {block}");
        }
        let used = self.blocks.iter().filter(|block| block.words.is_some()).count() as u64;
        assert_eq!(self.scene.counts().free, ALL - used);
        check::system(mm, &[&self.space]).expect("every claim holds");
    }

    fn end(self) {
        self.scene.machine.cpu(0).leave();
        self.scene.mm.destroy(self.space);
    }
}

fn lives<A: Arch>(config: Config, order: u8, events: WatchFor, acts: &[Act]) {
    with::<A>(config, order, |scene| {
        let mut life = Life::new(scene, WatchFor::MISSING | WatchFor::WRITE | events);
        for act in acts {
            life.act(act);
            life.compare();
        }
        life.end();
    });
}

fn events() -> impl Strategy<Value = WatchFor> {
    (any::<bool>(), any::<bool>()).prop_map(|(minor, notes)| {
        let minor = if minor { WatchFor::MINOR } else { WatchFor::empty() };
        minor | if notes { WatchFor::ASYNC } else { WatchFor::empty() }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a9_d8_watchers_answer_for_reserved_folios_of_a_block(
        events in events(),
        acts in prop::collection::vec(act(), 1..24),
    ) {
        lives::<X86_64>(Config::x86_64(), 9, events, &acts);
    }

    #[test]
    fn a9_d8_watchers_answer_for_reserved_folios_of_contiguous_entries(
        events in events(),
        acts in prop::collection::vec(act(), 1..48),
    ) {
        lives::<Arm4k>(Config::arm64_4k(), 4, events, &acts);
    }
}

#[test]
fn a9_d8_an_answer_ends_at_a_page_that_is_there_behind_one_that_is_only_protected() {
    let answer = |blocks, given, shield| Act::Answer { blocks, given, shield };
    let acts = [
        answer(0..4, Given::Zeroes, true),
        Act::Discard { block: 1 },
        Act::Discard { block: 3 },
        answer(1..4, Given::Cached, false),
    ];
    lives::<Arm4k>(Config::arm64_4k(), 4, WatchFor::empty(), &acts);
}

#[test]
fn a9_d8_a_part_of_a_reserved_folio_is_neither_watched_nor_protected_nor_filled() {
    with::<X86_64>(Config::x86_64(), 9, |scene| {
        let life = Life::new(scene, WatchFor::MISSING | WatchFor::WRITE);
        for block in [1, BLOCKS + 1] {
            let span = scene.block(block);
            let (half, spaces) = (span.start.add(span.count() / 2), scene.mm.spaces());
            for part in [PageSpan::new(span.start, half), PageSpan::new(half, span.end)] {
                let watch = spaces.watch(&life.space, part, None);
                assert_eq!(watch, Err(Error::Invalid));
                let protect = spaces.write_protect(&life.space, part, Shield::All);
                assert_eq!(protect, Err(Error::Invalid));
                for answer in [&mut Answer::Zeroes, &mut Answer::Poison] {
                    let done = scene.mm.files().answer(&life.space, part, answer, Shield::Off);
                    assert_eq!((done.pages, done.end), (0, Err(Error::Invalid.into())));
                }
            }
        }
        life.compare();
        life.end();
    });
}

/// A watcher that cannot write the content leaves the block as it was, and its promise.
#[test]
fn a9_d8_a_folio_without_content_is_free_and_promised_again() {
    with::<X86_64>(Config::x86_64(), 9, |scene| {
        let life = Life::new(scene, WatchFor::MISSING | WatchFor::WRITE);
        for file in scene.files {
            scene.mm.files().promise(file, scene.file_pages(0..1)).expect("there are enough");
        }
        for block in [0, 1, BLOCKS, BLOCKS + 1] {
            let (span, none) = (scene.block(block), &mut |_: PageSpan, _: &FrameRun| false);
            let answer = &mut Answer::Copy(none);
            let done = scene.mm.files().answer(&life.space, span, answer, Shield::Off);
            assert_eq!((done.pages, done.end), (0, Err(Error::Missing(span.start).into())));
            assert_eq!(scene.counts().promised, 2);
            life.compare();
        }
        life.end();
    });
}

/// An access to a block whose content failed is refused, until the block is discarded.
#[test]
fn a9_d8_a_poisoned_block_is_refused_until_it_is_discarded() {
    with::<X86_64>(Config::x86_64(), 9, |scene| {
        let life = Life::new(scene, WatchFor::MISSING | WatchFor::WRITE);
        for block in [2, BLOCKS + 2] {
            let span = scene.block(block);
            let answer = &mut Answer::Poison;
            let done = scene.mm.files().answer(&life.space, span, answer, Shield::Off);
            assert_eq!((done.pages, done.end), (span.count(), Ok(())));
            let refused = scene.mm.fault(&life.space, span.start.add(5), Access::Read);
            assert!(matches!(refused, Err(Stop::Refuse(Error::Poisoned(_)))), "{refused:?}");
            scene.mm.discard(&life.space, span).expect("no folio is cut");
            assert_eq!(life.access(span.start, None), Err(WatchFor::MISSING));
        }
        life.end();
    });
}

/// Rights that change meanwhile do not let a protected folio be written.
#[test]
fn a9_d8_protection_stays_through_changed_rights() {
    with::<X86_64>(Config::x86_64(), 9, |scene| {
        let mut life = Life::new(scene, WatchFor::MISSING | WatchFor::WRITE);
        life.answer(0..ALL, Given::Zeroes, true);
        for block in [3, BLOCKS + 3] {
            let span = scene.block(block);
            for prot in [Prot::READ, Prot::READ | Prot::WRITE] {
                scene.mm.protect(&life.space, span, prot).expect("no folio is cut");
            }
            life.touch(block, 0, None);
            life.touch(block, 7, Some(9));
        }
        life.compare();
        life.end();
    });
}

/// One marker protects a gigabyte: a folio in it takes a marker of its own size.
#[test]
fn a9_d8_a_marker_for_more_than_a_folio_is_divided_at_folios() {
    for flags in [AreaFlags::SHARED, AreaFlags::empty()] {
        with::<X86_64>(Config::x86_64(), 9, |scene| {
            let (mm, start) = (scene.mm, Vpn::new(1 << 19));
            mm.files().resize_pool(scene.order, 2).expect("there is a pool");
            let count = 1 << 18;
            let span = PageSpan::new(start, start.add(count));
            let file = mm.files().open(Store::Reserved, count, scene.order).expect("a free file");
            let space = mm.space(Asid(1), span).expect("memory");
            let backing = Backing::File { id: file, page: 0 };
            let request = Request { backing, flags, ..Request::anon(count) };
            mm.map(&space, &request.at(At::Fixed(start))).expect("free");
            let watcher = Watcher::new(3).expect("not 0");
            let watch = Watch { watcher, events: WatchFor::WRITE };
            mm.spaces().watch(&space, span, Some(watch)).expect("it fits");
            mm.spaces().write_protect(&space, span, Shield::All).expect("there are tables");
            let leaves = || {
                let mut leaves = Vec::new();
                mm.spaces()
                    .runs(&space, span, &mut |seen| leaves.push((seen.leaf, seen.pages.count())));
                leaves
            };
            assert_eq!(leaves(), [(Order::new(18), count)]);
            let spares = |take: bool| {
                let change = mm.base().change(&space);
                while let Some(run) = take.then(|| change.writer().unstock()).flatten() {
                    mm.base().free(run);
                }
                change.writer().spares()
            };
            assert_eq!(spares(true), 0);
            let page = start.add(5 << 9).add(17);
            mm.fault(&space, page, Access::Read).expect("a folio is free");
            assert_eq!(leaves(), [(scene.order, 1 << 9); 512]);
            assert_eq!(spares(false), 0, "a fault adds no area, and takes no frame for one");
            let told = mm.fault(&space, page, Access::Write).err();
            assert!(matches!(told, Some(Stop::Need(Need::Watcher(_)))), "{told:?}");
            check::system(mm, &[&space]).expect("every claim holds");
            mm.destroy(space);
            mm.files().close(file).expect("it is open");
        });
    }
}

/// While a watcher writes a folio's content, another answer for it is told neither that it is
/// there nor that it is not: the source of the first may not go yet.
#[test]
fn a9_d8_an_answer_beside_one_under_way_is_busy() {
    with::<X86_64>(Config::x86_64(), 9, |scene| {
        let mut life = Life::new(scene, WatchFor::MISSING | WatchFor::WRITE);
        for block in [3, BLOCKS + 3] {
            let span = scene.block(block);
            let other =
                || scene.mm.files().answer(&life.space, span, &mut Answer::Zeroes, Shield::Off);
            let within = &mut |_: PageSpan, run: &FrameRun| {
                let done = other();
                assert_eq!((done.pages, done.end), (0, Err(Error::Busy(span.start).into())));
                scene
                    .machine
                    .ram()
                    .words(run)
                    .iter()
                    .for_each(|word| word.store(0, Ordering::Relaxed));
                true
            };
            let done =
                scene.mm.files().answer(&life.space, span, &mut Answer::Copy(within), Shield::Off);
            assert_eq!((done.pages, done.end), (span.count(), Ok(())));
            assert_eq!(other().end, Err(Error::Present(span.start).into()));
            life.blocks[block as usize] =
                Block { words: Some([0; 16]), mapped: true, shielded: false };
        }
        life.compare();
        life.end();
    });
}

/// The area of a folio changes while a watcher writes the folio's content: the folio goes back,
/// with its promise if it had one, and the answer begins anew.
#[test]
fn a9_d8_an_answer_that_a_change_overtakes_gives_its_folio_and_promise_back() {
    with::<X86_64>(Config::x86_64(), 9, |scene| {
        let mut life = Life::new(scene, WatchFor::MISSING | WatchFor::WRITE);
        let file = scene.files[1];
        scene.mm.files().promise(file, scene.file_pages(2..3)).expect("there are enough");
        for (block, promised) in [(BLOCKS + 2, 1), (BLOCKS + 3, 0)] {
            let (span, mut times) = (scene.block(block), 0);
            let within = &mut |_: PageSpan, run: &FrameRun| {
                times += 1;
                for prot in [Prot::READ, Prot::RW].into_iter().filter(|_| times == 1) {
                    scene.mm.protect(&life.space, span, prot).expect("no folio is cut");
                }
                let words = scene.machine.ram().words(run);
                words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
                true
            };
            let before = scene.counts();
            assert_eq!(before.promised, promised);
            let done =
                scene.mm.files().answer(&life.space, span, &mut Answer::Copy(within), Shield::Off);
            assert_eq!((done.pages, done.end, times), (span.count(), Ok(()), 2));
            assert_eq!((scene.counts().promised, scene.counts().free), (0, before.free - 1));
            life.blocks[block as usize] =
                Block { words: Some([0; 16]), mapped: true, shielded: false };
            life.compare();
        }
        life.end();
    });
}
