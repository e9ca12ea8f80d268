//! A space whose memory is backed as a bench wants it, on a machine of its own.
//!
//! Each sample builds a machine and populates an area in it, so that every page is exclusive and
//! writable, as a program leaves it that has written all its memory. The RAM is fresh: the library
//! knows that it is zero, and nobody touches the folios themselves. What the timed part needs
//! besides, above all frames for tables, has been touched before, so that the host's own page
//! faults are in no figure.
//!
//! Folios that are as large as a block, but mapped by entries, come to be as on real systems:
//! populated as blocks, whose first page is then protected for a moment. That splits the leaf and
//! leaves the folio whole.

use anyhow::{Context, Result, bail};
use quire::Error;
use quire::fault::SizePolicy;
use quire::limits::ORDER_MAX;
use quire::space::{At, Request, Space};
use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware, Reuse};
use quire_machine::{Config, Machine};
use quire_sim::system::{self, HostedMm};
use quire_units::{Asid, CpuId, Order, PageSpan, Prot, Vpn};

use super::backing::Backing;
use crate::isa::{Isa, Job};

/// The CPU that does all of it.
pub(super) const CPU: CpuId = CpuId::new(0);
/// RAM beside the populated memory: for tables, area nodes, CPU caches.
const MARGIN: u64 = 64 << 20;
/// Where the area begins: tables of all levels begin there as well.
const START: u64 = 8 << 30;

/// How much RAM a machine with `region` populated bytes has.
pub(super) fn ram_bytes(region: u64) -> u64 {
    region.saturating_add(MARGIN)
}

/// A populated space.
pub(super) struct Scene<'s, 'm, 'r, A> {
    pub(super) machine: &'s Machine<'r>,
    pub(super) mm: &'s HostedMm<'m, 'r, A>,
    pub(super) space: Space<A>,
    /// The populated area.
    pub(super) span: PageSpan,
}

/// What is done in a scene.
pub(super) trait Work {
    /// What it comes to.
    type Out;

    /// Does it.
    fn run<A: Arch>(self, scene: Scene<'_, '_, '_, A>) -> Result<Self::Out>;
}

/// Builds a scene with `region` bytes in `backing`, and works in it. With `counted` the machine
/// counts what is done to it, which is no machine to measure time on.
///
/// # Errors
/// Memory does not suffice; the library did not back the area as wanted; what `work` says.
pub(super) fn with_scene<W: Work>(
    isa: Isa,
    (backing, region): (Backing, u64),
    counted: bool,
    work: W,
) -> Result<W::Out> {
    isa.with(Build { backing, region, counted, work })
}

struct Build<W> {
    backing: Backing,
    region: u64,
    counted: bool,
    work: W,
}

impl<W: Work> Job for Build<W> {
    type Out = Result<W::Out>;

    fn run<A: Arch>(self, config: Config) -> Result<W::Out> {
        let config = Config { counts: self.counted, ..config.bare() };
        let mut ram = system::ram(usize::try_from(ram_bytes(self.region))?)?;
        system::with::<A, _>(config, &mut ram, |machine, mm| {
            let window = PageSpan::new(Vpn::new(16), Vpn::new(A::USER_PAGES / 2));
            let space = mm.space(Asid(1), window)?;
            space.enter(CPU);
            let pages = self.region >> A::PAGE_SHIFT;
            let at = At::FixedNoReplace(Vpn::new(START >> A::PAGE_SHIFT));
            let order = Order::of_bytes(self.backing.size.bytes(), A::PAGE_SHIFT)
                .context("a folio is a power of two of pages")?;
            only(mm, order);
            let span = mm.map(&space, &Request::anon(pages).at(at))?;
            mm.populate(&space, span)?;
            let scene = Scene { machine, mm, space, span };
            if order == A::block_order() && !self.backing.block {
                scene.split_leaves(order)?;
            }
            scene.verify(self.backing, order)?;
            scene.touch_the_rest();
            self.work.run(scene)
        })?
    }
}

impl<A: Arch> Scene<'_, '_, '_, A> {
    /// Splits the leaf of each block, and leaves its folio and the area whole.
    fn split_leaves(&self, order: Order) -> Result<(), Error> {
        let mut at = self.span.start;
        while at < self.span.end {
            let page = PageSpan::new(at, at.add(1));
            self.mm.protect(&self.space, page, Prot::READ)?;
            self.mm.protect(&self.space, page, Prot::READ | Prot::WRITE)?;
            at = at.add(order.pages());
        }
        Ok(())
    }

    /// Whether all of the area is there, in whole folios of `order`, mapped as wanted.
    fn verify(&self, backing: Backing, order: Order) -> Result<()> {
        let mut areas = Vec::new();
        self.mm.folio_map(&self.space, |map| areas.push(map.clone()));
        let pages = self.span.count();
        match &areas[..] {
            [map]
                if map.sizes[order.index()].aligned == pages
                    && map.resident() == pages
                    && map.by_blocks == if backing.block { pages } else { 0 } =>
            {
                Ok(())
            }
            _ => bail!("the area is not backed by {backing} folios: {areas:?}"),
        }
    }

    /// Writes to all frames that are free, so that the host backs them now.
    fn touch_the_rest(&self) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::entries::backing::backings;

    struct Leaves;

    impl Work for Leaves {
        type Out = u64;

        fn run<A: Arch>(self, scene: Scene<'_, '_, '_, A>) -> Result<u64> {
            let mut leaves = 0;
            quire::check::space(scene.mm, &scene.space)?;
            quire::check::leaves(scene.mm, &scene.space, |_| leaves += 1)?;
            Ok(leaves)
        }
    }

    #[test]
    fn c5_every_backing_of_every_format_can_be_had_and_has_as_many_entries_as_it_says() {
        for isa in [Isa::X86_64, Isa::Arm4k, Isa::Arm16k, Isa::Sv48] {
            for backing in backings(isa, &[], &mut Vec::new()) {
                let region = 64 << 20;
                let leaves = with_scene(isa, (backing, region), false, Leaves).unwrap();
                let entry = backing.entry_bytes(1 << isa.page_shift());
                assert_eq!(leaves, region / entry, "{isa:?} {backing}");
            }
        }
    }
}
