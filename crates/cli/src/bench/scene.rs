//! A space whose memory is backed as a bench needs it, on a hosted machine.
//!
//! An area is populated so that every page is exclusive and writable, as a program leaves memory
//! that it has written. Folios that are as large as a block, but mapped by entries, are made as on
//! real systems: populated as blocks, whose first page is then protected for a moment. That splits
//! the leaf and leaves the folio whole.

use std::fmt;

use anyhow::{Context, Result, bail};
use quire::Error;
use quire::fault::SizePolicy;
use quire::limits::ORDER_MAX;
use quire::space::{At, Request, Space};
use quire_arch::Arch;
use quire_hw::{FrameRun, Memory, Reuse};
use quire_machine::{Config, Machine, Ram};
use quire_sim::system::{self, HostedMm};
use quire_units::{Asid, CpuId, Order, PageSpan, Prot, Vpn};

use crate::host::{Host, memory};
use crate::isa::Isa;
use crate::refused::Refused;
use crate::size::Size;

/// The CPU that does all of it.
pub(crate) const CPU: CpuId = CpuId::new(0);
/// The note of folios that one entry of a higher level maps.
pub(crate) const BLOCK: &str = "block";
/// RAM beside the memory that is measured: for tables, area nodes, slots, CPU caches, buffers.
pub(crate) const MARGIN: u64 = 64 << 20;
/// The start of the area, where tables of all levels begin.
const START: u64 = 8 << 30;

/// RAM of `bytes` that the host has backed and that counts as dirty.
pub(crate) fn backed_ram(bytes: u64) -> Result<Ram> {
    let mut ram = system::ram(usize::try_from(bytes)?)?;
    ram.populate();
    // A caller that has the bytes may have written them: from now on they count as dirty.
    let _ = ram.bytes_mut();
    Ok(ram)
}

/// The named amount of memory, or the largest of `usual`, its half, … and `least` for which
/// `need` is available; a smaller one than `usual` is told in the second value.
pub(crate) fn affordable(
    host: &Host,
    what: impl Fn(Size) -> String,
    (named, usual, least): (Option<Size>, u64, u64),
    need: impl Fn(u64) -> u64,
) -> Result<(u64, Option<String>), Refused> {
    let fits = |bytes: u64| memory::require(host, &what(Size(bytes)), need(bytes));
    if let Some(Size(bytes)) = named {
        return fits(bytes).map(|()| (bytes, None));
    }
    let mut bytes = usual;
    while let Err(refused) = fits(bytes) {
        if bytes == least {
            return Err(refused);
        }
        bytes /= 2;
    }
    let (wanted, less) = (Size(usual), Size(bytes));
    let told = format!("Memory does not suffice for {wanted}: {less} instead.");
    Ok((bytes, (bytes < usual).then_some(told)))
}

/// Memory in folios of one size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Backing {
    /// The size of each folio.
    pub(crate) size: Size,
    /// One entry above the last level maps each folio; otherwise one entry maps each base page.
    pub(crate) block: bool,
}

impl Backing {
    /// The bytes that one entry maps, with pages of `page` bytes.
    pub(crate) fn entry_bytes(self, page: u64) -> u64 {
        if self.block { self.size.bytes() } else { page }
    }

    pub(crate) fn note(self) -> &'static str {
        if self.block { BLOCK } else { "" }
    }
}

impl fmt::Display for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.size, if self.block { " " } else { "" }, self.note())
    }
}

/// A populated space.
pub(crate) struct Scene<'s, 'm, 'r, A> {
    pub(crate) machine: &'s Machine<'r>,
    pub(crate) mm: &'s HostedMm<'m, 'r, A>,
    pub(crate) space: Space<A>,
    /// The populated area, and the size of its folios.
    pub(crate) span: PageSpan,
    pub(crate) order: Order,
    backing: Backing,
}

/// Builds a scene with `region` bytes in `backing` on a machine of `ram`, and works in it. A
/// machine that is `counted` counts its operations; time is not measured on it.
pub(crate) fn with_scene<A: Arch, T>(
    ram: &mut Ram,
    (isa, backing, region): (Isa, Backing, u64),
    counted: bool,
    work: impl FnOnce(&Scene<'_, '_, '_, A>) -> Result<T>,
) -> Result<T> {
    let config = Config { counts: counted, ..isa.config().bare() };
    system::with::<A, _>(config, ram, |machine, mm| {
        let scene = Scene::<A>::populated((machine, mm), Asid(1), (backing, region))?;
        work(&scene)
    })?
}

/// The same in fresh RAM, which the library knows to be zero, so that it clears no folio. The
/// memory that the work takes besides, above all frames for tables, has been touched before: no
/// page fault of the host is in a figure.
pub(crate) fn with_fresh<A: Arch, T>(
    place: (Isa, Backing, u64),
    counted: bool,
    work: impl FnOnce(&Scene<'_, '_, '_, A>) -> Result<T>,
) -> Result<T> {
    let mut ram = system::ram(usize::try_from(place.2.saturating_add(MARGIN))?)?;
    with_scene(&mut ram, place, counted, |scene| {
        scene.wipe_free();
        work(scene)
    })
}

/// The addresses that a program may use.
pub(crate) fn window<A: Arch>() -> PageSpan {
    PageSpan::new(Vpn::new(16), Vpn::new(A::USER_PAGES / 2))
}

/// Allows folios of `order` and no others above the base page.
pub(crate) fn only<A: Arch>(mm: &HostedMm<'_, '_, A>, order: Order) {
    for at in 1..=ORDER_MAX.get() {
        let choice = if at == order.get() { SizePolicy::Always } else { SizePolicy::Never };
        // Every order from 1 to the largest has a choice.
        let _ = mm.policy().set_size(Order::new(at), choice);
    }
}

impl<'s, 'm, 'r, A: Arch> Scene<'s, 'm, 'r, A> {
    /// A space with `region` bytes in `backing`, on its CPU.
    fn populated(
        (machine, mm): (&'s Machine<'r>, &'s HostedMm<'m, 'r, A>),
        asid: Asid,
        (backing, region): (Backing, u64),
    ) -> Result<Self> {
        let space = mm.space(asid, window::<A>())?;
        space.enter(CPU);
        let at = At::FixedNoReplace(Vpn::new(START >> A::PAGE_SHIFT));
        let order = Order::of_bytes(backing.size.bytes(), A::PAGE_SHIFT)
            .context("a folio is a power of two of pages")?;
        only(mm, order);
        let span = mm.map(&space, &Request::anon(region >> A::PAGE_SHIFT).at(at))?;
        mm.populate(&space, span)?;
        let scene = Scene { machine, mm, space, span, order, backing };
        if order == A::block_order() && !backing.block {
            scene.split_leaves()?;
        }
        scene.verify_backing()?;
        Ok(scene)
    }

    /// Does `work` in a small scene of the same backing, then protects this one as it is and reads
    /// all its words: the next measurement finds code, areas and words in the caches, as far as
    /// they fit there.
    pub(crate) fn warmed(&self, work: impl FnOnce(&Self) -> Result<()>) -> Result<()> {
        self.space.leave(CPU);
        let place = (self.backing, self.backing.size.bytes() * 2);
        let small = Scene::populated((self.machine, self.mm), Asid(2), place)?;
        work(&small)?;
        small.space.leave(CPU);
        self.mm.destroy(small.space);
        self.space.enter(CPU);
        self.mm.protect(&self.space, self.span, Prot::READ | Prot::WRITE)?;
        quire::check::leaves(self.mm, &self.space, |leaf| {
            std::hint::black_box(leaf.frame);
        })?;
        Ok(())
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

    /// Fails unless all of the area is there, in whole folios of the size, mapped as wanted.
    pub(crate) fn verify_backing(&self) -> Result<()> {
        let mut areas = Vec::new();
        self.mm.spaces().folio_map(&self.space, |map| areas.push(map.clone()));
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

    /// Overwrites all free memory.
    pub(crate) fn wipe_free(&self) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c5_an_entry_maps_a_page_or_a_block() {
        let size = Size(2 << 20);
        assert_eq!(Backing { size, block: false }.entry_bytes(4096), 4096);
        assert_eq!(Backing { size, block: true }.entry_bytes(4096), 2 << 20);
    }

    #[test]
    fn less_memory_is_taken_where_memory_is_short_and_it_is_told() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("proc")).unwrap();
        let host = Host::new(dir.path());
        let fit = |kib: u64, named: Option<u64>| {
            let text = format!("MemAvailable: {kib} kB\n");
            std::fs::write(dir.path().join("proc/meminfo"), text).unwrap();
            let what = |size: Size| format!("fork of {size}");
            affordable(&host, what, (named.map(Size), 1 << 30, 64 << 20), |bytes| bytes + MARGIN)
        };
        assert_eq!(fit(4 << 20, None).unwrap(), (1 << 30, None));
        let (bytes, told) = fit(1 << 20, None).unwrap();
        assert_eq!(
            (bytes, told.unwrap().as_str()),
            (512 << 20, "Memory does not suffice for 1G: 512M instead.")
        );
        assert!(fit(100 << 10, None).unwrap_err().0.contains("fork of 64M"));
        assert!(fit(1 << 20, Some(1 << 30)).unwrap_err().0.contains("fork of 1G"));
    }
}
