//! Quire's own faults: the whole of `Mm` on the hosted machine.
//!
//! Every sample builds a new machine, so that each begins with the same free blocks and takes the
//! same frames in the same order. Samples that clear share one RAM, which the host has backed
//! before and which counts as dirty. Samples of everything but the clear ([`Bed::rest`]) get fresh
//! RAM: its frames are known to be zero, and `Mm` does not clear what is zero (row A5).

use anyhow::{Context, Result, bail};
use quire::Stop;
use quire::space::{Request, Space};
use quire_arch::{Arch, X86_64};
use quire_hw::extent::Backend;
use quire_hw::{Chosen, FrameRun, Memory, Reuse, read_through};
use quire_machine::{Config, Machine, Ram};
use quire_sim::system::{self, HostedMm};
use quire_units::{Access, Asid, Order, PageSpan};

use crate::bench::clear::LINUX_TURNS;
use crate::bench::scene::{CPU, MARGIN, backed_ram, only, window};
use crate::host::fault::Form;
use crate::host::memory::Area;
use crate::isa::{Isa, with_isa};
use crate::size::Size;
use crate::stats::timed;
use crate::threads::{self, Timing};

/// Fresh RAM up to this size is backed by the host before the faults; more holds folios that no
/// program touches.
const BACKED: u64 = 512 << 20;
/// The number of folios that are faulted in to measure all but the clear, where memory suffices.
const REST_FOLIOS: u64 = 4096;
/// The most fresh RAM for it, unless one folio is larger.
const REST_BYTES: u64 = 128 << 20;
/// Faults of each thread when two are measured.
const PARALLEL_PAGES: u64 = 16 << 10;

/// The pieces in which memory is taken and mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    /// Folios of the size in question.
    Folio,
    /// Base pages, one after the other.
    Page,
}

/// Memory to fault in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Faults {
    pub(crate) form: Form,
    pub(crate) size: Size,
    pub(crate) unit: Unit,
}

/// One thread against several, in nanoseconds for each fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parallel {
    pub(crate) one: Timing,
    pub(crate) areas: Timing,
    pub(crate) shared: Timing,
}

/// RAM to fault in, and how it is cleared.
pub(crate) struct Bed {
    pub(crate) isa: Isa,
    pub(crate) chosen: Chosen,
    /// Clears page at a time, as Linux does.
    pub(crate) pages: Chosen,
    pub(crate) near_cache: u64,
    pub(crate) threads: u32,
    ram: Ram,
    clean: Area,
}

/// How much RAM `threads` regions of `region` bytes need.
pub(crate) fn ram_bytes(region: u64, threads: u32) -> u64 {
    region.saturating_mul(threads.into()).saturating_add(MARGIN).next_multiple_of(1 << 21)
}

impl Bed {
    /// RAM for `threads` regions of `region` bytes, backed by the host; `cache` is the size of its
    /// last-level cache.
    pub(crate) fn new(
        (isa, region, threads): (Isa, u64, u32),
        (chosen, page): (Chosen, Backend),
        (near_cache, cache): (u64, u64),
    ) -> Result<Bed> {
        let ram = backed_ram(ram_bytes(region, threads))?;
        let clean = Area::present((2 * cache).next_multiple_of(1 << 21) as usize)?;
        let pages = Chosen::always(page);
        Ok(Bed { isa, chosen, pages, near_cache, threads, ram, clean })
    }

    /// Nanoseconds for each `faults.size` bytes that are faulted in, as each thread sees it: CPU
    /// time of one thread, time by the clock of several.
    pub(crate) fn faults(&mut self, faults: Faults, region: u64) -> Result<f64> {
        let clears = match faults.unit {
            Unit::Folio => self.chosen,
            Unit::Page => self.pages,
        };
        std::hint::black_box(read_through(self.clean.bytes()));
        let (near_cache, threads) = (self.near_cache, self.threads);
        let (areas, pinned) = (true, threads > 1);
        let wanted = Sample { clears, near_cache, faults, region, threads, areas, pinned };
        let (config, ram) = (self.isa.config(), &mut self.ram);
        let timing = with_isa!(self.isa, A => sample::<A>(config, ram, wanted))?;
        Ok(timing.seen(threads))
    }

    /// The same with memory that is known to be zero, in one thread: everything but the clear.
    pub(crate) fn rest(&self, faults: Faults) -> Result<f64> {
        let size = faults.size.bytes();
        let region = match faults.unit {
            Unit::Folio => (REST_FOLIOS.saturating_mul(size)).min(REST_BYTES.max(size)),
            // All base pages are alike: some of them tell what all of them take.
            Unit::Page => REST_FOLIOS << self.isa.page_shift(),
        };
        let some = Faults { size: Size(size.min(region)), ..faults };
        let ns = self.on_zeroes(some, region, (1, true), false)?.cpu;
        Ok(ns * size as f64 / some.size.bytes() as f64)
    }

    /// Base pages that are known to be zero, faulted in by one thread and by `threads` of them.
    pub(crate) fn parallel(&self, threads: u32) -> Result<Parallel> {
        let size = self.isa.nearest(Size(1));
        let faults = Faults { form: Form::Demand, size, unit: Unit::Folio };
        let region = (PARALLEL_PAGES * size.bytes()).min(REST_BYTES);
        Ok(Parallel {
            one: self.on_zeroes(faults, region, (1, true), true)?,
            areas: self.on_zeroes(faults, region, (threads, true), true)?,
            shared: self.on_zeroes(faults, region, (threads, false), true)?,
        })
    }

    fn on_zeroes(
        &self,
        faults: Faults,
        region: u64,
        (threads, areas): (u32, bool),
        pinned: bool,
    ) -> Result<Timing> {
        let bytes = ram_bytes(region, threads);
        let mut ram = system::ram(usize::try_from(bytes)?)?;
        if bytes <= BACKED {
            ram.populate();
        }
        let (clears, near_cache) = (self.chosen, self.near_cache);
        let wanted = Sample { clears, near_cache, faults, region, threads, areas, pinned };
        with_isa!(self.isa, A => sample::<A>(self.isa.config(), &mut ram, wanted))
    }

    /// Nanoseconds to clear `size` bytes of the frames that [`faults`](Self::faults) takes, in its
    /// order, each folio as one extent and nothing else.
    pub(crate) fn raw(&mut self, size: Size, region: u64) -> Result<f64> {
        std::hint::black_box(read_through(self.clean.bytes()));
        let reuse = if size.bytes() > self.near_cache { Reuse::Later } else { Reuse::Soon };
        let clear =
            |machine: &Machine<'_>, run: &FrameRun| machine.clear(run, 0..run.count(), reuse);
        let (config, ram, clears) = (self.isa.config(), &mut self.ram, self.chosen);
        with_isa!(self.isa, A => raw::<A>(config, ram, clears, (size, region), clear))
    }

    /// The same as Linux does it: 4 KiB at a time, up to 4 MiB the last page first.
    pub(crate) fn raw_as_linux(&mut self, size: Size, region: u64) -> Result<f64> {
        std::hint::black_box(read_through(self.clean.bytes()));
        let clear = |machine: &Machine<'_>, run: &FrameRun| {
            let page = |at: u64| machine.clear(run, at..at + 1, Reuse::Soon);
            match size.bytes() <= LINUX_TURNS {
                true => (0..run.count()).rev().for_each(page),
                false => (0..run.count()).for_each(page),
            }
        };
        let (ram, clears) = (&mut self.ram, self.pages);
        raw::<X86_64>(Config::x86_64(), ram, clears, (size, region), clear)
    }
}

/// One sample of faults.
struct Sample {
    clears: Chosen,
    near_cache: u64,
    faults: Faults,
    region: u64,
    threads: u32,
    /// Each thread has an area of its own; otherwise its part of one.
    areas: bool,
    /// Each thread has a CPU of the host to itself.
    pinned: bool,
}

fn sample<A: Arch>(config: Config, ram: &mut Ram, sample: Sample) -> Result<Timing> {
    let Sample { clears, near_cache, faults, region, threads, areas, pinned } = sample;
    let config = config.bare().with_cpus(threads as usize);
    let config = Config { near_cache_bytes: near_cache, ..config };
    let work = |machine: &Machine<'_>, mm: &HostedMm<'_, '_, A>| {
        let order = order_of::<A>(faults);
        only(mm, order);
        let space = mm.space(Asid(1), window::<A>())?;
        warm(mm, &space)?;
        let pages = region >> A::PAGE_SHIFT;
        let spans = place(mm, &space, pages, (threads, areas))?;
        let before = mm.totals().alloc[order.index()];
        let touch = |at: usize| touch(mm, &space, spans[at], faults, order);
        let timing = threads::on_machine(machine, (threads, pinned), touch)?;
        let folios = mm.totals().alloc[order.index()] - before;
        let wanted = (u64::from(threads) * pages) >> order.get();
        if folios != wanted {
            bail!("{folios} folios of {} came, not {wanted}", faults.size);
        }
        Ok(timing.per(region / faults.size.bytes()))
    };
    system::with_machine::<A, _>(config, ram, |machine| machine.with_clears(clears), work)?
}

/// The order of the folios that are faulted in.
fn order_of<A: Arch>(faults: Faults) -> Order {
    match faults.unit {
        Unit::Folio => Order::of_bytes(faults.size.bytes(), A::PAGE_SHIFT).unwrap_or_default(),
        Unit::Page => Order::ZERO,
    }
}

/// One fault in an area of its own, so that code, and the memory that the first tables are in,
/// have been used before.
fn warm<A: Arch>(mm: &HostedMm<'_, '_, A>, space: &Space<A>) -> Result<()> {
    let span = mm.map(space, &Request::anon(1))?;
    mm.fault(space, span.start, Access::Write)?;
    Ok(())
}

/// Where each thread faults: in `pages` pages each.
fn place<A: Arch>(
    mm: &HostedMm<'_, '_, A>,
    space: &Space<A>,
    pages: u64,
    (threads, areas): (u32, bool),
) -> Result<Vec<PageSpan>> {
    let part = |all: PageSpan, at: u64| {
        let start = all.start.add(at * pages);
        PageSpan::new(start, start.add(pages))
    };
    if !areas {
        let all = mm.map(space, &Request::anon(pages * u64::from(threads)))?;
        return Ok((0..u64::from(threads)).map(|at| part(all, at)).collect());
    }
    // An unmapped page between them: neighbours with equal rights would become one area.
    let span = |_| Ok(part(mm.map(space, &Request::anon(pages + 1))?, 0));
    let spans: Vec<PageSpan> = (0..threads).map(span).collect::<Result<_>>()?;
    for span in &spans {
        mm.unmap(space, PageSpan::new(span.end, span.end.add(1)))?;
    }
    Ok(spans)
}

/// Faults `span` in, in folios of `order`.
fn touch<A: Arch>(
    mm: &HostedMm<'_, '_, A>,
    space: &Space<A>,
    span: PageSpan,
    faults: Faults,
    order: Order,
) -> Result<(), Stop> {
    let mut at = span.start;
    match (faults.form, faults.unit) {
        (Form::Demand, _) => {
            while at < span.end {
                mm.fault(space, at, Access::Write)?;
                at = at.add(order.pages());
            }
        }
        (Form::Populate, Unit::Folio) => {
            mm.populate(space, span)?;
        }
        (Form::Populate, Unit::Page) => {
            while at < span.end {
                mm.populate(space, PageSpan::new(at, at.add(1)))?;
                at = at.add(1);
            }
        }
    }
    Ok(())
}

/// One sample of clearing alone: folios of `size` bytes in `region` bytes, each by `clear`.
fn raw<A: Arch>(
    config: Config,
    ram: &mut Ram,
    clears: Chosen,
    (size, region): (Size, u64),
    clear: impl Fn(&Machine<'_>, &FrameRun),
) -> Result<f64> {
    let order = Order::of_bytes(size.bytes(), A::PAGE_SHIFT).unwrap_or_default();
    let work = |machine: &Machine<'_>, mm: &HostedMm<'_, '_, A>| {
        let take = |_| mm.bare_phys().alloc(CPU, order).context("the machine has too little RAM");
        let runs: Vec<FrameRun> = (0..region / size.bytes()).map(take).collect::<Result<_>>()?;
        let ns = timed(|| {
            runs.iter().for_each(|run| clear(machine, run));
            anyhow::Ok(())
        })?;
        let count = runs.len() as f64;
        runs.into_iter().for_each(|run| mm.bare_phys().free(CPU, run));
        Ok(ns / count)
    };
    system::with_machine::<A, _>(config.bare(), ram, |m| m.with_clears(clears), work)?
}
