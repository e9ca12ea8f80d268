//! Memory in folios of one size, and a swap device with just as much room, on one machine.
//!
//! What the device holds lies in frames of the same machine, so that to copy is all that a write
//! or a read is. The RAM stays the host's from scene to scene: no fault of the host is in a figure.

use anyhow::{Context, Result, bail};
use quire::Error;
use quire::cache::FileId;
use quire::fault::SizePolicy;
use quire::limits::ORDER_MAX;
use quire::space::{At, Request, Space};
use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware, Reuse};
use quire_machine::{Config, Machine, Ram};
use quire_sim::system::{self, HostedMm};
use quire_units::{Asid, CpuId, FrameSpan, Order, PageSpan, Prot, Vpn};

use crate::bench::entries::Backing;
use crate::isa::{Isa, Job};

/// The CPU that does all of it.
pub(super) const CPU: CpuId = CpuId::new(0);
/// RAM beside the memory and what the device holds: tables, slots, nodes of the index.
const MARGIN: u64 = 64 << 20;
/// Where the area begins: tables of all levels begin there as well.
const START: u64 = 8 << 30;

/// RAM for `bytes` that are paged out.
pub(super) fn ram_bytes(bytes: u64) -> u64 {
    2 * bytes + MARGIN
}

/// RAM for `bytes` that are paged out, backed by the host.
///
/// # Errors
/// The host does not give the memory.
pub(super) fn ram(bytes: u64) -> Result<Ram> {
    let mut ram = system::ram(usize::try_from(ram_bytes(bytes))?)?;
    ram.populate();
    // Whoever has the bytes may have written them: from now on they count as dirty.
    let _ = ram.bytes_mut();
    Ok(ram)
}

/// A populated space, and a device.
pub(super) struct Scene<'s, 'm, 'r, A: Arch> {
    pub(super) machine: &'s Machine<'r>,
    pub(super) mm: &'s HostedMm<'m, 'r, A>,
    pub(super) space: Space<A>,
    /// The populated area.
    pub(super) span: PageSpan,
    /// The size of its folios.
    pub(super) order: Order,
    backing: Backing,
    pub(super) device: FileId,
    /// Frames that were taken to keep account of its slots.
    pub(super) slot_frames: u64,
    /// What it holds, a block of slots in each.
    store: Vec<FrameRun>,
}

/// What is done in a scene.
pub(super) trait Work {
    /// What it comes to.
    type Out;

    /// Does it.
    fn run<A: Arch>(self, scene: &Scene<'_, '_, '_, A>) -> Result<Self::Out>;
}

/// Works on a machine of `ram` with `bytes` in `backing`.
///
/// # Errors
/// Memory does not suffice; the library did not back the area as wanted; what `work` says.
pub(super) fn with_scene<W: Work>(
    ram: &mut Ram,
    (isa, backing, bytes): (Isa, Backing, u64),
    work: W,
) -> Result<W::Out> {
    isa.with(Build { ram, backing, bytes, work })
}

struct Build<'a, W> {
    ram: &'a mut Ram,
    backing: Backing,
    bytes: u64,
    work: W,
}

impl<W: Work> Job for Build<'_, W> {
    type Out = Result<W::Out>;

    fn run<A: Arch>(self, config: Config) -> Result<W::Out> {
        let Build { ram, backing, bytes, work } = self;
        system::with::<A, _>(config.bare(), ram, |machine, mm| {
            let scene = Scene::new(machine, mm, backing, bytes >> A::PAGE_SHIFT)?;
            work.run(&scene)
        })?
    }
}

impl<'s, 'm, 'r, A: Arch> Scene<'s, 'm, 'r, A> {
    fn new(
        machine: &'s Machine<'r>,
        mm: &'s HostedMm<'m, 'r, A>,
        backing: Backing,
        pages: u64,
    ) -> Result<Self> {
        let order = Order::of_bytes(backing.size.bytes(), A::PAGE_SHIFT)
            .context("a folio is a power of two of pages")?;
        only(mm, order);
        let before = mm.phys().free_frames();
        let device = mm.paging().swap_on(pages)?;
        let slot_frames = before - mm.phys().free_frames();
        let block = A::block_order();
        let store = (0..pages.div_ceil(block.pages())).map(|_| mm.bare_phys().alloc(CPU, block));
        let store = store.collect::<Option<_>>().context("the machine has too little RAM")?;
        let window = PageSpan::new(Vpn::new(16), Vpn::new(A::USER_PAGES / 2));
        let space = mm.space(Asid(1), window)?;
        space.enter(CPU);
        let at = At::FixedNoReplace(Vpn::new(START >> A::PAGE_SHIFT));
        let span = mm.map(&space, &Request::anon(pages).at(at))?;
        mm.populate(&space, span)?;
        let scene = Scene { machine, mm, space, span, order, backing, device, slot_frames, store };
        if order == A::block_order() && !backing.block {
            scene.split_leaves()?;
        }
        scene.verify_backing()?;
        Ok(scene)
    }

    /// Splits the leaf of each block, and leaves its folio and the area whole.
    fn split_leaves(&self) -> Result<(), Error> {
        let mut at = self.span.start;
        while at < self.span.end {
            let page = PageSpan::new(at, at.add(1));
            self.mm.protect(&self.space, page, Prot::READ)?;
            self.mm.protect(&self.space, page, Prot::READ | Prot::WRITE)?;
            at = at.add(self.order.pages());
        }
        Ok(())
    }

    /// Whether all of the area is there, in whole folios of the size, mapped as wanted.
    ///
    /// # Errors
    /// It is not; the text has what there is.
    pub(super) fn verify_backing(&self) -> Result<()> {
        let mut areas = Vec::new();
        self.mm.folio_map(&self.space, |map| areas.push(map.clone()));
        let (pages, Backing { block, .. }) = (self.span.count(), self.backing);
        match &areas[..] {
            [map]
                if map.sizes[self.order.index()].aligned == pages
                    && map.resident() == pages
                    && map.by_blocks == if block { pages } else { 0 } =>
            {
                Ok(())
            }
            _ => bail!("the area is not backed by {} folios: {areas:?}", self.backing),
        }
    }

    /// How many folios the area has.
    pub(super) fn folios(&self) -> u64 {
        self.span.count() >> self.order.get()
    }

    /// Where the device keeps the slots from `slot` on, which lie in one block.
    pub(super) fn stored(&self, slot: u64) -> (&FrameRun, u64) {
        let pages = A::block_order().pages();
        (&self.store[(slot / pages) as usize], slot % pages)
    }

    /// The same as frames, `count` of them.
    pub(super) fn stored_frames(&self, slot: u64, count: u64) -> FrameSpan {
        let (run, at) = self.stored(slot);
        FrameSpan::new(run.start().add(at), count)
    }

    /// Overwrites all free memory: what is found afterwards came from the device.
    pub(super) fn wipe_free(&self) {
        let phys = self.mm.bare_phys();
        let mut runs: Vec<FrameRun> = Vec::new();
        for order in (0..=ORDER_MAX.get()).rev() {
            while let Some(run) = phys.alloc(CPU, Order::new(order)) {
                self.machine.clear(&run, 0..run.count(), Reuse::Later);
                runs.push(run);
            }
        }
        runs.into_iter().for_each(|run| phys.free(CPU, run));
        phys.drain();
    }
}

/// Allows folios of `order` and no others above the base page.
fn only<A: Arch>(mm: &HostedMm<'_, '_, A>, order: Order) {
    for at in 1..=ORDER_MAX.get() {
        let choice = if at == order.get() { SizePolicy::Always } else { SizePolicy::Never };
        // Every order from 1 to the largest has a choice.
        let _ = mm.policy().set_size(Order::new(at), choice);
    }
}
