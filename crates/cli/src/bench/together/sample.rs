//! One sample: an operation by one thread or by several, on a machine of its own.

use std::sync::OnceLock;

use anyhow::{Context, Result};
use quire::Stop;
use quire::space::{At, Request, Space};
use quire_arch::Arch;
use quire_machine::Ram;
use quire_sim::system::{self, HostedMm};
use quire_units::{Access, Asid, CpuId, Order, PageSpan, Vpn};

use crate::bench::scene::{MARGIN, only, window};
use crate::isa::{Isa, with_isa};
use crate::size::Size;
use crate::threads::{self, Start, Timing};

/// Areas of each thread.
pub(super) const AREAS: u64 = 2048;
/// Forks of each thread, and the bytes that each copies.
pub(super) const FORKS: u64 = 16;
pub(super) const FORKED: Size = Size(64 << 20);
/// Where the first thread works; the others follow, each this much further.
const START: u64 = 1 << 30;
/// The first address-space number; each thread's own space has one of those behind it.
const SHARED: u16 = 1;

/// An operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Op {
    Mmap,
    MmapFault,
    UnmapVirtual,
    Unmap,
    Fault,
    /// Of memory that each thread took alone.
    Fork,
    /// Of memory that the threads took at the same time, so that their frames lie in turns.
    ForkMixed,
}

impl Op {
    pub(super) const ALL: [Op; 7] =
        [Op::Mmap, Op::MmapFault, Op::UnmapVirtual, Op::Unmap, Op::Fault, Op::Fork, Op::ForkMixed];

    fn is_fork(self) -> bool {
        matches!(self, Op::Fork | Op::ForkMixed)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Op::Mmap => "mmap",
            Op::MmapFault => "mmap-PF",
            Op::UnmapVirtual => "unmap-virt",
            Op::Unmap => "unmap",
            Op::Fault => "PF",
            Op::Fork => "fork",
            Op::ForkMixed => "fork-mixed",
        }
    }

    /// Whether it needs areas, and folios in them.
    fn needs(self) -> (bool, bool) {
        match self {
            Op::Mmap | Op::MmapFault | Op::Fork | Op::ForkMixed => (false, false),
            Op::UnmapVirtual | Op::Fault => (true, false),
            Op::Unmap => (true, true),
        }
    }

    fn times(self) -> u64 {
        if self.is_fork() { FORKS } else { AREAS }
    }
}

/// The machine's memory for folios of `size` in `threads` threads.
pub(super) fn ram_bytes(size: Size, threads: u32) -> u64 {
    let each = (AREAS * size.bytes()).max(FORKED.bytes());
    (each.saturating_add(MARGIN)).saturating_mul(threads.into()).next_multiple_of(1 << 21)
}

/// Nanoseconds for each operation, as each of `threads` threads sees it, in one space.
pub(super) fn sample(isa: Isa, (op, size): (Op, Size), threads: u32) -> Result<Timing> {
    let mut ram = ram(size, threads)?;
    let config = isa.config().bare().with_cpus(threads as usize);
    with_isa!(isa, A => system::with::<A, _>(config, &mut ram, |machine, mm| {
        let bench = Bench::new(mm, size, threads)?;
        let own: Vec<OnceLock<Space<A>>> = (0..threads).map(|_| OnceLock::new()).collect();
        // Each thread prepares what it will work on: its frames, and what is in its CPU's caches.
        let prepare = |at: usize| {
            let _ = own[at].set(bench.own(op, at)?);
            bench.prepare(op, at, own[at].get())
        };
        match op {
            Op::ForkMixed => threads::on_machine(machine, (threads, true), prepare).map(|_| ())?,
            _ => threads::in_turn(machine, threads, prepare)?,
        }
        let run = |at: usize| bench.run(op, at, own[at].get());
        Ok(threads::on_machine(machine, (threads, true), run)?.per(op.times()))
    })?)
}

/// The same with a machine and a library for each thread: they have nothing in common.
pub(super) fn apart(isa: Isa, (op, size): (Op, Size), threads: u32) -> Result<Timing> {
    let config = || isa.config().bare();
    let lane = |_: usize, start: &Start| {
        let mut ram = ram(size, 1)?;
        with_isa!(isa, A => system::with::<A, _>(config(), &mut ram, |machine, mm| {
            let _cpu = machine.cpu(0);
            let bench = Bench::new(mm, size, 1)?;
            let own = bench.own(op, 0)?;
            bench.prepare(op, 0, Some(&own))?;
            Ok(start.lane(|| bench.run(op, 0, Some(&own)))?)
        })?)
    };
    Ok(threads::apart(threads, lane)?.per(op.times()))
}

fn ram(size: Size, threads: u32) -> Result<Ram> {
    let mut ram = system::ram(usize::try_from(ram_bytes(size, threads))?)?;
    ram.populate();
    Ok(ram)
}

struct Bench<'a, 'm, 'r, A> {
    mm: &'a HostedMm<'m, 'r, A>,
    order: Order,
    space: Space<A>,
}

impl<'a, 'm, 'r, A: Arch> Bench<'a, 'm, 'r, A> {
    /// A space that `threads` CPUs are in.
    fn new(mm: &'a HostedMm<'m, 'r, A>, size: Size, threads: u32) -> Result<Self> {
        let order = Order::of_bytes(size.bytes(), A::PAGE_SHIFT);
        let order = order.context("a folio is a power of two of pages")?;
        only(mm, order);
        let space = mm.space(Asid(SHARED), window::<A>())?;
        (0..threads as usize).for_each(|cpu| space.enter(CpuId::new(cpu)));
        Ok(Bench { mm, order, space })
    }

    /// A space for thread `at`, which it alone uses.
    fn own(&self, op: Op, at: usize) -> Result<Space<A>, Stop> {
        let space = self.mm.space(Asid(SHARED + 1 + at as u16), window::<A>())?;
        if op.is_fork() {
            space.enter(CpuId::new(at));
        }
        Ok(space)
    }

    /// Area `nth` of thread `at`, with as much room behind it as it has pages.
    fn area(&self, at: usize, nth: u64) -> PageSpan {
        let start = (START * (at as u64 + 1)) >> A::PAGE_SHIFT;
        let start = Vpn::new(start + nth * 2 * self.order.pages());
        PageSpan::new(start, start.add(self.order.pages()))
    }

    fn map(&self, space: &Space<A>, span: PageSpan) -> Result<(), Stop> {
        let at = At::FixedNoReplace(span.start);
        self.mm.map(space, &Request::anon(span.count()).at(at))?;
        Ok(())
    }

    fn touch(&self, span: PageSpan) -> Result<(), Stop> {
        self.mm.fault(&self.space, span.start, Access::Write)?;
        Ok(())
    }

    fn prepare(&self, op: Op, at: usize, own: Option<&Space<A>>) -> Result<(), Stop> {
        if let (true, Some(own)) = (op.is_fork(), own) {
            let start = self.area(at, 0).start;
            let all = PageSpan::new(start, start.add(FORKED.bytes() >> A::PAGE_SHIFT));
            self.map(own, all)?;
            self.mm.populate(own, all)?;
            return self.run(op, at, Some(own));
        }
        let (maps, touches) = op.needs();
        for nth in 0..AREAS {
            let span = self.area(at, nth);
            if maps {
                self.map(&self.space, span)?;
            }
            if touches {
                self.touch(span)?;
            }
        }
        Ok(())
    }

    fn run(&self, op: Op, at: usize, own: Option<&Space<A>>) -> Result<(), Stop> {
        for nth in 0..op.times() {
            let span = self.area(at, nth);
            match op {
                Op::Mmap => self.map(&self.space, span)?,
                Op::MmapFault => {
                    self.map(&self.space, span)?;
                    self.touch(span)?;
                }
                Op::UnmapVirtual | Op::Unmap => self.mm.unmap(&self.space, span)?,
                Op::Fault => self.touch(span)?,
                Op::Fork | Op::ForkMixed => {
                    let Some(own) = own else { continue };
                    let child = self.mm.fork(own, Asid(u16::MAX - at as u16))?;
                    self.mm.destroy(child);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e3_each_operation_is_done_by_one_thread_by_two_and_apart() {
        for op in Op::ALL {
            let cell = (op, Size(4096));
            assert!(sample(Isa::X86_64, cell, 1).unwrap().cpu > 0.0, "{op:?}");
            assert!(sample(Isa::X86_64, cell, 2).unwrap().wall > 0.0, "{op:?}");
            assert!(apart(Isa::X86_64, cell, 2).unwrap().wall > 0.0, "{op:?}");
        }
    }
}
