//! Folios move to other frames while spaces share them, beside a naive model: the word that each
//! page of each space holds.

use std::collections::BTreeMap;
use std::vec::Vec;

use quire_arch::{Arch, Arm4k, Attrs, Sv39, X86_64};
use quire_machine::{Config, Cpu, Machine, Ram};
use quire_units::{Access, Asid, Order, PageSpan, Pfn, Prot, Vpn};

use crate::cache::File;
use crate::check;
use crate::fault::SizePolicy;
use crate::phys::fail::FailPlan;
use crate::phys::{CpuCache, Slot, Zone};
use crate::space::{At, Request, Space};
use crate::stats::{Counters, Event};
use crate::swap::Swap;
use crate::{Error, Migrated, Mm, Parts, Scope};

type Hosted<'m, 'r, A> = Mm<'m, A, Machine<'r>>;

const START: Vpn = Vpn::new(1 << 18);
const PAGES: u64 = 64;
const ALL: PageSpan = PageSpan::new(START, Vpn::new((1 << 18) + PAGES));

/// A system with a device on which nothing is ever written.
pub(super) struct Scene<'a, 'm, 'r, A: Arch> {
    machine: &'a Machine<'r>,
    pub(super) mm: &'a Hosted<'m, 'r, A>,
    cpu: Cpu<'a, 'r>,
}

/// The device that folios have slots of while they move.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Device {
    Swap,
    Moves,
}

/// Runs `test` with folios of 16 pages, and a swap device.
fn with<A: Arch>(config: Config, test: impl FnOnce(&Scene<'_, '_, '_, A>)) {
    with_device(config, Device::Swap, test);
}

/// Runs `test` with folios of 16 pages, and a device of that kind.
pub(super) fn with_device<A: Arch>(
    config: Config,
    device: Device,
    test: impl FnOnce(&Scene<'_, '_, '_, A>),
) {
    let mut ram = Ram::new(16 << 20).expect("the host has 16 MiB");
    let (machine, run) = Machine::new(config, &mut ram).expect("a valid preset");
    let mut slots: Vec<Slot> = (0..run.count()).map(|_| Slot::default()).collect();
    let (mut caches, counters, mut zones) =
        ([CpuCache::new()], [Counters::new()], [Zone::new(run.span())]);
    let (mut files, mut swaps) = ([File::new(), File::new()], [Swap::new()]);
    let parts = Parts::new(run.start(), &mut slots, &mut caches, &counters, &mut zones);
    let mm = Mm::<A, _>::new(&machine, parts.files(&mut files).swaps(&mut swaps)).expect("sound");
    mm.add(run).expect("the zone is RAM");
    mm.policy().set_size(Order::new(4), SizePolicy::Always).expect("a size");
    let free = mm.allocator().free_frames();
    let device = match device {
        Device::Swap => mm.paging().swap_on(512).expect("memory"),
        Device::Moves => mm.paging().moves_on(128).expect("memory"),
    };
    let scene = Scene { machine: &machine, mm: &mm, cpu: machine.cpu(0) };
    test(&scene);
    scene.cpu.leave();
    mm.paging().swap_off(device).expect("no slot is in use");
    assert_eq!(machine.verdict(), Ok(()));
    assert_eq!(check::system(&mm, &[]).map(|totals| totals.held), Ok(0));
    assert_eq!(mm.allocator().free_frames(), free, "{}: nothing is lost", A::NAME);
}

impl<'m, 'r, A: Arch> Scene<'_, 'm, 'r, A> {
    pub(super) fn space(&self) -> Space<A> {
        let window = PageSpan::new(START, START.add(1 << 12));
        let space = self.mm.space(Asid(1), window).expect("memory");
        self.mm.map(&space, &Request::anon(PAGES).at(At::Fixed(START))).expect("free");
        space
    }

    fn enter(&self, space: &Space<A>) {
        self.cpu.bind();
        space.enter(self.cpu.number());
        self.cpu.switch(space.root(), space.asid());
    }

    pub(super) fn access(&self, space: &Space<A>, page: Vpn, store: Option<u64>) -> u64 {
        self.enter(space);
        let access = if store.is_some() { Access::Write } else { Access::Read };
        for _ in 0..8 {
            let done = match store {
                Some(word) => self.cpu.write(page.addr(A::PAGE_SHIFT), word).map(|()| word),
                None => self.cpu.read(page.addr(A::PAGE_SHIFT)),
            };
            match done {
                Ok(word) => return word,
                Err(_) => drop(self.mm.fault(space, page, access).expect("it is in memory")),
            }
        }
        panic!("{access:?} at {page:?} traps for ever");
    }

    pub(super) fn fill(&self, space: &Space<A>, pages: u64, word: u64) {
        for at in 0..pages {
            self.access(space, START.add(at), Some(word + at));
        }
    }

    pub(super) fn holds(&self, space: &Space<A>, pages: u64, word: u64) {
        for at in 0..pages {
            assert_eq!(self.access(space, START.add(at), None), word + at, "{} page {at}", A::NAME);
        }
    }

    /// The frame and the lasting attributes of each page.
    pub(super) fn frames(&self, space: &Space<A>) -> BTreeMap<Vpn, (Pfn, Attrs)> {
        let mut frames = BTreeMap::new();
        check::leaves(self.mm, space, |leaf| {
            for at in 0..leaf.pages.count() {
                let lasting = leaf.attrs - Attrs::YOUNG;
                frames.insert(leaf.pages.start.add(at), (leaf.frame.add(at), lasting));
            }
        })
        .expect("sound tables");
        frames
    }

    pub(super) fn used_slots(&self) -> u64 {
        self.mm.base().swaps.iter().map(Swap::used).sum()
    }

    pub(super) fn check(&self, spaces: &[&Space<A>]) {
        check::system(self.mm, spaces).unwrap_or_else(|why| panic!("{}: {why:?}", A::NAME));
        assert_eq!(self.machine.verdict(), Ok(()));
    }

    pub(super) fn end(&self, spaces: impl IntoIterator<Item = Space<A>>) {
        self.cpu.leave();
        spaces.into_iter().for_each(|space| self.mm.destroy(space));
    }
}

/// All pages of parent and child get other frames by few steps, and nothing else changes.
fn moves_shared<A: Arch>(config: Config, device: Device) {
    with_device::<A>(config, device, |scene| {
        let (mm, parent) = (scene.mm, scene.space());
        scene.fill(&parent, PAGES, 100);
        let child = mm.fork(&parent, Asid(2)).expect("memory");
        scene.access(&child, START.add(3), Some(7));
        let both = [&parent, &child];
        let before = both.map(|space| scene.frames(space));
        let counts = mm.totals();
        let moved = mm.paging().migrate(&parent, ALL, &both[..]).expect("sound pages");
        assert_eq!((moved.pages, moved.stay), (PAGES, 0), "{}", A::NAME);
        let own = mm.paging().migrate(&child, ALL, &both[..]).expect("sound pages");
        assert_eq!(own.stay, 0, "{}", A::NAME);
        scene.check(&both);
        assert_eq!(scene.used_slots(), 0, "{}: all entries are leaves again", A::NAME);
        for (space, before) in both.into_iter().zip(before) {
            let now = scene.frames(space);
            assert_eq!(now.len(), before.len());
            for (page, (frame, attrs)) in &now {
                assert_eq!(attrs, &before[page].1, "{}: {page:?}", A::NAME);
                assert!(space.root() != child.root() || *frame != before[page].0);
            }
        }
        let since = mm.totals();
        let event = |event| since.event(event) - counts.event(event);
        assert_eq!(event(Event::MigratedPages), moved.pages + own.pages);
        assert!(event(Event::Flush) <= 6, "{}: one flush for a batch and space", A::NAME);
        assert_eq!(event(Event::PagesSwapped) + event(Event::PagesSwappedIn), 0);
        scene.holds(&parent, PAGES, 100);
        assert_eq!(scene.access(&child, START.add(3), None), 7);
        scene.access(&parent, START.add(9), Some(5));
        assert_eq!(scene.access(&child, START.add(9), None), 109);
        scene.check(&both);
        scene.end([parent, child]);
    });
}

#[test]
fn e7_folios_of_several_spaces_move_and_nothing_else_changes() {
    for device in [Device::Swap, Device::Moves] {
        moves_shared::<X86_64>(Config::x86_64(), device);
        moves_shared::<Arm4k>(Config::arm64_4k(), device);
        moves_shared::<Sv39>(Config::riscv64_sv39(), device);
    }
}

#[test]
fn e7_a_device_for_moves_takes_no_page_that_leaves_memory() {
    with_device::<X86_64>(Config::x86_64(), Device::Moves, |scene| {
        let (mm, space) = (scene.mm, scene.space());
        scene.fill(&space, 16, 1);
        let out = mm.paging().page_out(&space, ALL, Scope::Own, &[&space][..]);
        assert_eq!(out.map(|out| out.pages), Ok(0));
        assert_eq!((scene.used_slots(), mm.paging().devices().count()), (0, 0));
        let id = mm.base().swaps[0].file().expect("it is in use");
        assert_eq!(mm.paging().swap_closing(id, true), Err(Error::Invalid));
        scene.holds(&space, 16, 1);
        scene.end([space]);
    });
}

#[test]
fn e7_a_pinned_folio_stays_and_moves_later() {
    with::<X86_64>(Config::x86_64(), |scene| {
        let (mm, space) = (scene.mm, scene.space());
        scene.fill(&space, 32, 1);
        let pinned = mm.pin(&space, START.add(20), Access::Write).expect("memory");
        let moved = mm.paging().migrate(&space, ALL, &[&space][..]).expect("sound pages");
        assert_eq!(moved, Migrated { folios: 1, pages: 16, stay: 1 });
        assert_eq!(scene.frames(&space)[&START.add(20)].0, pinned.frame());
        mm.unpin(pinned);
        let moved = mm.paging().migrate(&space, ALL, &[&space][..]).expect("sound pages");
        assert_eq!(moved, Migrated { folios: 2, pages: 32, stay: 0 });
        scene.holds(&space, 32, 1);
        scene.check(&[&space]);
        scene.end([space]);
    });
}

#[test]
fn e7_a_folio_that_is_locked_in_memory_stays_and_keeps_no_slots() {
    for device in [Device::Swap, Device::Moves] {
        with_device::<X86_64>(Config::x86_64(), device, |scene| {
            let (mm, space) = (scene.mm, scene.space());
            scene.fill(&space, 32, 1);
            mm.mlock(&space, ALL).expect("memory");
            let before = scene.frames(&space);
            let moved = mm.paging().migrate(&space, ALL, &[&space][..]).expect("sound pages");
            assert_eq!(moved, Migrated { folios: 0, pages: 0, stay: 4 });
            assert_eq!((scene.frames(&space), scene.used_slots()), (before, 0));
            mm.spaces().munlock(&space, ALL).expect("memory");
            let moved = mm.paging().migrate(&space, ALL, &[&space][..]).expect("sound pages");
            assert_eq!(moved, Migrated { folios: 4, pages: 64, stay: 0 });
            scene.holds(&space, 32, 1);
            scene.end([space]);
        });
    }
}

#[test]
fn e7_a_folio_whose_memory_fails_stays_as_it_was() {
    with::<X86_64>(Config::x86_64(), |scene| {
        let (mm, space) = (scene.mm, scene.space());
        scene.fill(&space, 16, 1);
        let before = scene.frames(&space);
        scene.machine.set_poisoned(before[&START.add(9)].0, true);
        let moved = mm.paging().migrate(&space, ALL, &[&space][..]).expect("sound pages");
        assert_eq!(moved, Migrated { folios: 0, pages: 0, stay: 1 });
        assert_eq!((scene.frames(&space), scene.used_slots()), (before.clone(), 0));
        scene.machine.set_poisoned(before[&START.add(9)].0, false);
        scene.holds(&space, 16, 1);
        scene.check(&[&space]);
        scene.end([space]);
    });
}

#[test]
fn e7_each_allocation_of_a_move_may_fail() {
    for plan in (1..12).flat_map(|nth| [FailPlan::Nth(nth), FailPlan::From(nth)]) {
        with::<Arm4k>(Config::arm64_4k(), |scene| {
            let (mm, parent) = (scene.mm, scene.space());
            scene.fill(&parent, PAGES, 50);
            let child = mm.fork(&parent, Asid(2)).expect("memory");
            let both = [&parent, &child];
            mm.allocator().set_fail_plan(plan);
            let moved = mm.paging().migrate(&parent, ALL, &both[..]).expect("sound pages");
            mm.allocator().set_fail_plan(FailPlan::Never);
            assert!(moved.folios + moved.stay <= PAGES / 16, "{plan:?}: {moved:?}");
            scene.check(&both);
            assert_eq!(scene.used_slots(), 0, "{plan:?}");
            both.iter().for_each(|space| scene.holds(space, PAGES, 50));
            scene.end([parent, child]);
        });
    }
}

#[test]
fn e7_the_record_of_writes_and_the_rights_of_pages_move_along() {
    with::<X86_64>(Config::x86_64(), |scene| {
        let (mm, space) = (scene.mm, scene.space());
        scene.fill(&space, PAGES, 1);
        mm.spaces().track(&space, ALL).expect("memory");
        scene.access(&space, START.add(5), Some(77));
        mm.protect(&space, PageSpan::new(START.add(16), START.add(24)), Prot::READ).expect("room");
        mm.protect(&space, PageSpan::new(START.add(40), START.add(44)), Prot::empty())
            .expect("room");
        let before = scene.frames(&space);
        let moved = mm.paging().migrate(&space, ALL, &[&space][..]).expect("sound pages");
        assert_eq!((moved.pages, moved.stay), (PAGES, 0));
        let now = scene.frames(&space);
        for (page, (frame, attrs)) in &now {
            assert_eq!(attrs, &before[page].1, "{page:?}");
            assert_ne!(*frame, before[page].0);
        }
        assert_eq!(now.len(), before.len());
        let copies = mm.totals().event(Event::CowCopy);
        scene.access(&space, START.add(6), Some(78));
        assert_eq!(mm.totals().event(Event::CowCopy), copies, "its page is still its own");
        scene.check(&[&space]);
        scene.end([space]);
    });
}

/// The SplitMix64 sequence (Steele, Lea, Flood 2014).
pub(super) fn random(seed: &mut u64, end: u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*seed ^ *seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ mixed >> 31) % end
}

/// A space, and the word of each page that was written.
type Modelled<A> = (Space<A>, BTreeMap<u64, u64>);

/// One step of a random life.
fn step<A: Arch>(
    scene: &Scene<'_, '_, '_, A>,
    (seed, tag): (&mut u64, &mut u16),
    all: &mut Vec<Modelled<A>>,
) {
    let mm = scene.mm;
    let (at, page) = (random(seed, all.len() as u64) as usize, random(seed, PAGES));
    let span = PageSpan::new(START.add(page), START.add((page + 1 + random(seed, 32)).min(PAGES)));
    match random(seed, 12) {
        0..=3 => {
            let word = random(seed, 1 << 40);
            scene.access(&all[at].0, START.add(page), Some(word));
            all[at].1.insert(page, word);
        }
        4..=7 => {
            let spaces: Vec<&Space<A>> = all.iter().map(|(space, _)| space).collect();
            mm.paging().migrate(spaces[at], ALL, &spaces[..]).expect("sound pages");
        }
        8 if all.len() < 4 => {
            *tag += 1;
            let child = mm.fork(&all[at].0, Asid(*tag)).expect("memory");
            let words = all[at].1.clone();
            all.push((child, words));
        }
        9 => {
            mm.discard(&all[at].0, span).expect("memory");
            all[at].1.retain(|page, _| !span.contains(START.add(*page)));
        }
        10 => {
            let spaces: Vec<&Space<A>> = all.iter().map(|(space, _)| space).collect();
            mm.paging().page_out(spaces[at], span, Scope::All, &spaces[..]).expect("sound");
        }
        _ if all.len() > 1 => {
            let (space, _) = all.swap_remove(at);
            scene.end([space]);
        }
        _ => {}
    }
}

fn lives<A: Arch>(config: fn() -> Config) {
    for first in 0..12 {
        let device = if first % 2 == 0 { Device::Swap } else { Device::Moves };
        with_device::<A>(config(), device, |scene| {
            let (mut seed, mut tag, mut all) =
                (first, 1, std::vec![(scene.space(), BTreeMap::new())]);
            for _ in 0..60 {
                step(scene, (&mut seed, &mut tag), &mut all);
                let spaces: Vec<&Space<A>> = all.iter().map(|(space, _)| space).collect();
                scene.check(&spaces);
            }
            for (space, words) in &all {
                for page in 0..PAGES {
                    let word = words.get(&page).copied().unwrap_or(0);
                    let found = scene.access(space, START.add(page), None);
                    assert_eq!(found, word, "{} seed {first}, page {page}", A::NAME);
                }
            }
            scene.end(all.into_iter().map(|(space, _)| space));
        });
    }
}

#[test]
fn i19_moves_between_forks_writes_and_page_outs_lose_no_byte() {
    lives::<X86_64>(Config::x86_64);
    lives::<Arm4k>(Config::arm64_4k);
    lives::<Sv39>(Config::riscv64_sv39);
}
