//! Reserved folios, beside a model that knows each folio by number (row A9).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use quire_arch::{Arch, Arm4k, X86_64};
use quire_machine::{Config, Machine, Ram};
use quire_units::{Access, Asid, Order, PageSpan, Prot, Vpn};

use crate::cache::{File, FileId, FilePages, Store};
use crate::check;
use crate::phys::{CpuCache, Slot, Zone};
use crate::space::{AreaFlags, At, Backing, Request, Space};
use crate::stats::Counters;
use crate::{Error, Mm, Parts, PoolCounts, Stop};

type MachineMm<'m, 'r, A> = Mm<'m, A, Machine<'r>>;

const START: Vpn = Vpn::new(1 << 18);
/// The blocks of each file. The first space shows the shared one, and then the private one.
pub(super) const BLOCKS: u64 = 6;

/// A system with a pool, a file that is shared, and one that is not.
pub(super) struct Scene<'t, 'r, A> {
    pub(super) machine: &'t Machine<'r>,
    pub(super) mm: &'t MachineMm<'t, 'r, A>,
    pub(super) order: Order,
    pub(super) files: [FileId; 2],
}

pub(super) fn with<A: Arch>(config: Config, order: u8, test: impl FnOnce(&Scene<'_, '_, A>)) {
    let order = Order::new(order);
    let mut ram = Ram::new(30 << 20).expect("the host has 30 MiB");
    let (machine, run) = Machine::new(config, &mut ram).expect("a valid preset");
    let mut slots: Vec<Slot> = (0..run.count()).map(|_| Slot::default()).collect();
    let (mut caches, counters, mut zones) = (
        [CpuCache::new(), CpuCache::new()],
        [Counters::new(), Counters::new()],
        [Zone::new(run.span())],
    );
    let mut files = [File::new(), File::new(), File::new()];
    let parts =
        Parts::new(run.start(), &mut slots, &mut caches, &counters, &mut zones).files(&mut files);
    #[cfg(feature = "swap")]
    let mut swaps = [crate::swap::Swap::new()];
    #[cfg(feature = "swap")]
    let parts = parts.swaps(&mut swaps);
    let mm = Mm::<A, _>::new(&machine, parts).expect("sound");
    mm.add(run).expect("the zone is RAM");
    let free = mm.allocator().free_frames();
    let pages = BLOCKS << order.get();
    assert_eq!(mm.files().open(Store::Reserved, pages, order), Err(Error::Invalid), "no pool");
    mm.files().open_pool(order).expect("room for a pool");
    let open = || mm.files().open(Store::Reserved, pages, order).expect("a free file");
    let scene = Scene { machine: &machine, mm: &mm, order, files: [open(), open()] };
    test(&scene);
    for file in scene.files {
        mm.files().close(file).expect("it is open");
    }
    let counts = mm.files().resize_pool(order, 0).expect("it is there");
    assert_eq!((counts.size, counts.promised), (0, 0));
    assert_eq!(machine.verdict(), Ok(()));
    mm.allocator().check().expect("the lists are sound");
    assert_eq!(mm.allocator().free_frames(), free, "nothing is lost");
}

impl<A: Arch> Scene<'_, '_, A> {
    pub(super) fn block(&self, block: u64) -> PageSpan {
        let pages = self.order.pages();
        PageSpan::new(START.add(block * pages), START.add((block + 1) * pages))
    }

    pub(super) fn file_pages(&self, blocks: Range<u64>) -> FilePages {
        FilePages::new(blocks.start << self.order.get(), blocks.end << self.order.get())
    }

    pub(super) fn counts(&self) -> PoolCounts {
        self.mm.files().pool(self.order).expect("there is a pool")
    }

    pub(super) fn space(&self, asid: u16) -> Space<A> {
        let window = PageSpan::new(START, START.add(1 << 14));
        let space = self.mm.space(Asid(asid), window).expect("memory");
        for (at, file) in self.files.into_iter().enumerate() {
            let start = self.block(at as u64 * BLOCKS).start;
            let backing = Backing::File { id: file, page: 0 };
            let flags = if at == 0 { AreaFlags::SHARED } else { AreaFlags::empty() };
            let request = Request { backing, flags, ..Request::anon(BLOCKS << self.order.get()) };
            self.mm.map(&space, &request.at(At::Fixed(start))).expect("free");
        }
        space
    }

    pub(super) fn access(
        &self,
        space: &Space<A>,
        page: Vpn,
        store: Option<u64>,
    ) -> Result<u64, Error> {
        let cpu = self.machine.cpu(0);
        cpu.bind();
        space.enter(cpu.number());
        cpu.switch(space.root(), space.asid());
        let access = if store.is_some() { Access::Write } else { Access::Read };
        let addr = page.addr(A::PAGE_SHIFT);
        for _ in 0..12 {
            let done = match store {
                Some(word) => cpu.write(addr, word).map(|()| word),
                None => cpu.read(addr),
            };
            match done.map_err(|_| self.mm.fault(space, page, access)) {
                Ok(word) => return Ok(word),
                Err(Ok(_)) => {}
                Err(Err(Stop::Refuse(error))) => return Err(error),
                Err(Err(stop)) => panic!("{stop}"),
            }
        }
        panic!("{access:?} of {page} traps for ever");
    }
}

#[derive(Clone, Debug)]
enum Act {
    Access { child: bool, block: u64, page: u64, store: bool },
    Promise { file: usize, blocks: Range<u64> },
    Renounce { file: usize, blocks: Range<u64> },
    Punch { blocks: Range<u64> },
    Truncate { blocks: u64 },
    Discard { child: bool, block: u64 },
    Protect { block: u64, write: bool },
    Fork,
    End,
    Resize { folios: u64 },
    Surplus { folios: u64 },
}

fn act() -> impl Strategy<Value = Act> {
    let blocks = || (0..BLOCKS, 1..=3_u64).prop_map(|(at, count)| at..(at + count).min(BLOCKS));
    prop_oneof![
        8 => (any::<bool>(), 0..2 * BLOCKS, 0..16_u64, any::<bool>()).prop_map(
            |(child, block, page, store)| Act::Access { child, block, page, store }
        ),
        2 => (0..2_usize, blocks()).prop_map(|(file, blocks)| Act::Promise { file, blocks }),
        1 => (0..2_usize, blocks()).prop_map(|(file, blocks)| Act::Renounce { file, blocks }),
        1 => blocks().prop_map(|blocks| Act::Punch { blocks }),
        1 => (1..=BLOCKS).prop_map(|blocks| Act::Truncate { blocks }),
        1 => (any::<bool>(), 0..2 * BLOCKS)
            .prop_map(|(child, block)| Act::Discard { child, block }),
        1 => (0..2 * BLOCKS, any::<bool>())
            .prop_map(|(block, write)| Act::Protect { block, write }),
        2 => Just(Act::Fork),
        1 => Just(Act::End),
        2 => (0..9_u64).prop_map(|folios| Act::Resize { folios }),
        1 => (0..4_u64).prop_map(|folios| Act::Surplus { folios }),
    ]
}

/// A folio: the words that were written, by page.
type Words = BTreeMap<u64, u64>;

#[derive(Default)]
struct Model {
    folios: BTreeMap<u64, Words>,
    next: u64,
    /// The folios of the shared file, by block.
    shared: BTreeMap<u64, u64>,
    /// Those of the private areas of parent and child, by block.
    own: [BTreeMap<u64, u64>; 2],
    read_only: BTreeSet<u64>,
    promised: [BTreeSet<u64>; 2],
    /// The end of the shared file.
    end: u64,
    size: u64,
    surplus: u64,
    surplus_most: u64,
}

impl Model {
    fn used(&self) -> u64 {
        let own = self.own.iter().flat_map(BTreeMap::values);
        own.chain(self.shared.values()).collect::<BTreeSet<_>>().len() as u64
    }

    fn promises(&self) -> u64 {
        self.promised.iter().map(|set| set.len() as u64).sum()
    }

    fn shed(&mut self) {
        let spare = self.surplus.min(self.size - self.used() - self.promises());
        (self.size, self.surplus) = (self.size - spare, self.surplus - spare);
    }

    /// Makes room for `folios` more; whether it could.
    fn room(&mut self, folios: u64) -> bool {
        let lacks = (self.promises() + folios).saturating_sub(self.size - self.used());
        let fits = lacks <= self.surplus_most.saturating_sub(self.surplus);
        if fits {
            (self.size, self.surplus) = (self.size + lacks, self.surplus + lacks);
        }
        fits
    }

    /// A new folio for a block of a file; whether there was one.
    fn take(&mut self, file: usize, block: u64) -> Option<u64> {
        if !self.promised[file].remove(&block) && !self.room(1) {
            return None;
        }
        self.next += 1;
        self.folios.insert(self.next, Words::new());
        Some(self.next)
    }

    /// The folio that an access finds, or why there is none.
    fn access(&mut self, child: usize, block: u64, write: bool) -> Result<u64, &'static str> {
        if write && child == 0 && self.read_only.contains(&block) {
            return Err("denied");
        }
        if block < BLOCKS {
            if block >= self.end {
                return Err("missing");
            }
            if let Some(folio) = self.shared.get(&block) {
                return Ok(*folio);
            }
            let folio = self.take(0, block).ok_or("none left")?;
            self.shared.insert(block, folio);
            return Ok(folio);
        }
        match self.own[child].get(&block).copied() {
            None => {
                let folio = self.take(1, block - BLOCKS).ok_or("none left")?;
                self.own[child].insert(block, folio);
                Ok(folio)
            }
            Some(folio) if write && self.own[1 - child].get(&block) == Some(&folio) => {
                if !self.room(1) {
                    return Err("none left");
                }
                self.next += 1;
                let words = self.folios[&folio].clone();
                self.folios.insert(self.next, words);
                self.own[child].insert(block, self.next);
                Ok(self.next)
            }
            Some(folio) => Ok(folio),
        }
    }

    fn resize(&mut self, folios: u64) {
        let wanted = folios.max(self.used() + self.promises());
        self.size = if self.size < folios { folios } else { self.size.min(wanted) };
        self.surplus = self.size.saturating_sub(folios);
        self.shed();
    }
}

/// A life: the spaces and the model.
struct Life<'t, 'r, A: Arch> {
    scene: &'t Scene<'t, 'r, A>,
    spaces: [Option<Space<A>>; 2],
    model: Model,
    /// The most folios of the pool.
    most: u64,
}

impl<A: Arch> Life<'_, '_, A> {
    fn all(&self) -> Vec<&Space<A>> {
        self.spaces.iter().flatten().collect()
    }

    fn access(&mut self, child: bool, block: u64, page: u64, word: Option<u64>) {
        let (scene, child) = (self.scene, usize::from(child));
        let Some(space) = &self.spaces[child] else { return };
        let at = scene.block(block).start.add(page);
        let done = scene.access(space, at, word);
        match self.model.access(child, block, word.is_some()) {
            Ok(folio) => {
                let words = self.model.folios.get_mut(&folio).expect("it is there");
                if let Some(word) = word {
                    words.insert(page, word);
                }
                assert_eq!(done, Ok(words.get(&page).copied().unwrap_or(0)));
            }
            Err("denied") => {
                assert_eq!(done, Err(Error::Denied(at, Access::Write, Prot::READ)));
            }
            Err("missing") => assert_eq!(done, Err(Error::Missing(at))),
            Err(_) => assert_eq!(done, Err(Error::NoReserved(scene.order))),
        }
    }

    fn promise(&mut self, file: usize, blocks: Range<u64>) {
        let (scene, model) = (self.scene, &mut self.model);
        let has = |block: &u64| {
            let own = file == 0 && model.shared.contains_key(block);
            own || model.promised[file].contains(block)
        };
        let new: Vec<u64> = blocks.clone().filter(|block| !has(block)).collect();
        let done = scene.mm.files().promise(scene.files[file], scene.file_pages(blocks));
        if model.room(new.len() as u64) {
            assert_eq!(done, Ok(()));
            model.promised[file].extend(new);
        } else {
            assert_eq!(done, Err(Error::NoReserved(scene.order)));
        }
    }

    fn cut(&mut self, blocks: Range<u64>) {
        self.model.shared.retain(|block, _| !blocks.contains(block));
        self.model.promised[0].retain(|block| !blocks.contains(block));
    }

    fn truncate(&mut self, blocks: u64) {
        let (files, id) = (self.scene.mm.files(), self.scene.files[0]);
        let pages = blocks << self.scene.order.get();
        files.truncate(id, pages, &self.all()[..]).expect("memory");
        if blocks <= self.model.end {
            self.cut(blocks..BLOCKS);
        }
        self.model.end = blocks;
    }

    fn protect(&mut self, block: u64, write: bool) {
        let Some(space) = &self.spaces[0] else { return };
        let prot = if write { Prot::READ | Prot::WRITE } else { Prot::READ };
        self.scene.mm.protect(space, self.scene.block(block), prot).expect("no leaf is cut");
        let read_only = &mut self.model.read_only;
        if write {
            read_only.remove(&block)
        } else {
            read_only.insert(block)
        };
    }

    fn fork(&mut self) {
        // The model keeps the rights of the parent only.
        if self.spaces[1].is_none() && self.model.read_only.is_empty() {
            let parent = self.spaces[0].as_ref().expect("it is there");
            self.spaces[1] = Some(self.scene.mm.fork(parent, Asid(2)).expect("memory"));
            self.model.own[1] = self.model.own[0].clone();
        }
    }

    fn act(&mut self, number: u64, act: Act) {
        let (mm, order, files) = (self.scene.mm, self.scene.order, self.scene.files);
        match act {
            Act::Access { child, block, page, store } => {
                self.access(child, block, page, store.then_some(number));
            }
            Act::Promise { file, blocks } => self.promise(file, blocks),
            Act::Renounce { file, blocks } => {
                let pages = self.scene.file_pages(blocks.clone());
                mm.files().renounce(files[file], pages).expect("it is open");
                self.model.promised[file].retain(|block| !blocks.contains(block));
            }
            Act::Punch { blocks } => {
                let pages = self.scene.file_pages(blocks.clone());
                mm.files().punch(files[0], pages, &self.all()[..]).expect("memory");
                self.cut(blocks);
            }
            Act::Truncate { blocks } => self.truncate(blocks),
            Act::Discard { child, block } => {
                let Some(space) = &self.spaces[usize::from(child)] else { return };
                mm.discard(space, self.scene.block(block)).expect("no leaf is cut");
                self.model.own[usize::from(child)].remove(&block);
            }
            Act::Protect { block, write } => self.protect(block, write),
            Act::Fork => self.fork(),
            Act::End => {
                self.scene.machine.cpu(0).leave();
                self.spaces[1].take().into_iter().for_each(|child| mm.destroy(child));
                self.model.own[1].clear();
            }
            Act::Resize { folios } => {
                let folios = folios.min(self.most - self.model.surplus_most.min(self.most));
                mm.files().resize_pool(order, folios).expect("it is there");
                self.model.resize(folios);
            }
            Act::Surplus { folios } => {
                let folios = folios.min(self.most.saturating_sub(self.model.size));
                mm.files().set_surplus_most(order, folios).expect("it is there");
                self.model.surplus_most = folios;
            }
        }
    }

    fn check(&mut self) {
        self.model.shed();
        let (counts, model) = (self.scene.counts(), &self.model);
        let free = model.size - model.used();
        assert_eq!((counts.size, counts.free), (model.size, free));
        assert_eq!((counts.promised, counts.surplus), (model.promises(), model.surplus));
        check::system(self.scene.mm, &self.all()).expect("every claim holds");
    }
}

fn run<A: Arch>(scene: &Scene<'_, '_, A>, acts: &[Act], most: u64) {
    let spaces = [Some(scene.space(1)), None];
    let model = Model { end: BLOCKS, ..Model::default() };
    let mut life = Life { scene, spaces, model, most };
    for (number, act) in (1..).zip(acts) {
        life.act(number, act.clone());
        life.check();
    }
    scene.machine.cpu(0).leave();
    life.spaces.into_iter().flatten().for_each(|space| scene.mm.destroy(space));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a9_reserved_folios_are_as_in_the_model(acts in prop::collection::vec(act(), 1..60)) {
        with::<X86_64>(Config::x86_64(), 9, |scene| run(scene, &acts, 7));
    }

    #[test]
    fn a9_so_are_folios_smaller_than_a_group(acts in prop::collection::vec(act(), 1..60)) {
        with::<Arm4k>(Config::arm64_4k(), 4, |scene| run(scene, &acts, 9));
    }
}
