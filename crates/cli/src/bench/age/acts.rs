//! The acts of programs besides growth, and their accesses.

use anyhow::{Result, bail};
use quire::cache::{FilePages, Pattern, Reads};
use quire::limits::{GROUP_ORDER, ORDERS};
use quire::phys::Mobility;
use quire::space::Space;
use quire::{AllSpaces, Compacted, Error, Need, Resolved, Scope, Stop};
use quire_arch::X86_64;
use quire_units::{Access, Asid, Order, Vpn};

use super::bound::{emptiable, fewest};
use super::ledger::{Episode, Fault};
use super::life::{Life, Pin};
use super::plan::{Policy, STEPS};
use super::process::{Process, spread};
use crate::stats::thread_ns;

/// How often an access may wait.
const TRIES: u32 = 64;
/// Pages that are reclaimed when memory is out.
const RECLAIMED: u64 = 256;
/// The most pages that move for one fault, and in one part of the background's work.
const MOVED: u64 = 512;
/// One compaction of as many is compared with the bound.
const COMPARED: u64 = 4;
/// Per step: parts that are given back, and pages that are touched again.
const DISCARDS: u32 = 2;
const TOUCHES: u32 = 8;
/// Steps between two that page out, and two that fork, on average.
const PAGE_OUT_ONE_IN: u32 = 4;
const FORK_ONE_IN: u32 = 8;
/// Of a thousand frames as many are pinned at a time, for up to a day.
const PINNED_PER_MILLE: u64 = 1;

/// All programs.
struct Everyone<'a>(&'a [Process]);

impl AllSpaces<X86_64> for Everyone<'_> {
    fn visit(&self, see: &mut dyn FnMut(&Space<X86_64>)) {
        self.0.iter().for_each(|process| see(&process.space));
    }
}

impl Life<'_, '_, '_> {
    /// All acts of a step besides growth.
    pub(super) fn disturb(&mut self) -> Result<()> {
        for _ in 0..DISCARDS {
            let most = spread(1, 64, &mut self.rng);
            if let Some((at, span)) = self.some_touched(most) {
                self.mm.discard(&self.processes[at].space, span)?;
            }
        }
        for _ in 0..TOUCHES {
            if let Some((at, span)) = self.some_touched(1) {
                self.touch(at, span.start)?;
            }
        }
        if self.rng.u32(0..PAGE_OUT_ONE_IN) == 0
            && let Some((at, span)) = self.some_touched(256)
        {
            let space = &self.processes[at].space;
            self.mm.paging().page_out(space, span, Scope::Own, &Everyone(&self.processes))?;
            self.write_out()?;
        }
        if self.rng.u32(0..FORK_ONE_IN) == 0 {
            self.fork()?;
        }
        self.pin()
    }

    /// A program by chance, and at most `most` pages that it has touched.
    fn some_touched(&mut self, most: u64) -> Option<(usize, quire_units::PageSpan)> {
        if self.processes.is_empty() {
            return None;
        }
        let at = self.rng.usize(0..self.processes.len());
        Some((at, self.processes[at].some_touched(most, &mut self.rng)?))
    }

    /// A program forks; its child writes some pages, and ends soon.
    fn fork(&mut self) -> Result<()> {
        let Some((at, _)) = self.some_touched(1) else { return Ok(()) };
        let Some(tag) = self.tags.pop() else { return Ok(()) };
        let parent = &self.processes[at];
        let space = match self.mm.fork(&parent.space, Asid(tag)) {
            Ok(space) => space,
            Err(Error::NoMemory(_)) => {
                self.tags.push(tag);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let (kind, parts) = (parent.kind, parent.parts.clone());
        let ends = self.now + spread(1, STEPS / 2, &mut self.rng);
        self.processes.push(Process { space, kind, parts, ends, grows: false });
        let child = self.processes.len() - 1;
        for _ in 0..spread(1, 64, &mut self.rng) {
            if let Some(span) = self.processes[child].some_touched(1, &mut self.rng) {
                self.touch(child, span.start)?;
            }
        }
        Ok(())
    }

    /// A device gets some pages of a program.
    fn pin(&mut self) -> Result<()> {
        let most = self.plan.frames() * PINNED_PER_MILLE / 1000;
        while (self.pins.len() as u64) < most {
            let Some((at, span)) = self.some_touched(16) else { return Ok(()) };
            let ends = self.now + spread(1, STEPS, &mut self.rng);
            for page in span.start.get()..span.end.get() {
                self.touch(at, Vpn::new(page))?;
                let space = &self.processes[at].space;
                if let Ok(pinned) = self.mm.pin(space, Vpn::new(page), Access::Write) {
                    self.pins.push(Pin { pinned, owner: space.asid(), ends });
                }
            }
        }
        Ok(())
    }

    /// Program `at` writes `page`; the end of the pages that are mapped then.
    pub(super) fn touch(&mut self, at: usize, page: Vpn) -> Result<Vpn> {
        let before = self.lacked();
        let (mut ns, mut compacted) = (0.0, false);
        for _ in 0..TRIES {
            let start = thread_ns();
            let done = self.mm.fault(&self.processes[at].space, page, Access::Write);
            ns += thread_ns() - start;
            match done {
                Ok(Resolved::Mapped(made)) => {
                    let after = self.lacked();
                    let lacks = |order: &usize| after[*order] > before[*order];
                    let larger = (made.order.index() + 1..ORDERS).rev().find(lacks);
                    let wanted = larger.map_or(made.order, |order| Order::new(order as u8));
                    self.ledger.fault(Fault { wanted, had: made.order, ns, compacted });
                    return Ok(made.pages.end);
                }
                Ok(Resolved::Unshared { .. } | Resolved::Noted) => return Ok(page.add(1)),
                Ok(_) => {}
                Err(Stop::Need(Need::Read(reads))) => self.carry_out(reads)?,
                Err(Stop::Need(Need::Compact(order))) => {
                    ns += self.compact_for(order);
                    compacted = true;
                }
                Err(Stop::Refuse(Error::NoMemory(_))) => self.reclaim()?,
                Err(stop) => bail!("a fault at {page} came to {stop:?}"),
            }
        }
        bail!("a fault at {page} never ends")
    }

    /// How often faults lacked memory for a folio, by its size.
    fn lacked(&self) -> [u64; ORDERS] {
        let memory = quire::fault::Cause::Memory as usize;
        self.mm.totals().fallback.map(|causes| causes[memory])
    }

    /// Compacts memory for a fault; the CPU time that this takes.
    fn compact_for(&mut self, order: Order) -> f64 {
        let before = self.emptiable(order);
        let everyone = Everyone(&self.processes);
        let start = thread_ns();
        let done = self.mm.reclaim().compact_for(order, MOVED, &everyone, &mut || {});
        let ns = thread_ns() - start;
        self.note(order, done, before);
        ns
    }

    /// The background does a part of its work.
    pub(super) fn background(&mut self) {
        if self.plan.policy != Policy::Background {
            return;
        }
        let free = self.mm.phys().free_by_mobility(Mobility::Movable);
        let blocks: u64 = (GROUP_ORDER.index()..ORDERS)
            .map(|order| free[order] << (order - GROUP_ORDER.index()))
            .sum();
        let kept = self.mm.phys().free_frames() * u64::from(Policy::KEEP) / 100;
        let lacks = blocks < kept / GROUP_ORDER.pages();
        let before = if lacks { self.emptiable(GROUP_ORDER) } else { None };
        let everyone = Everyone(&self.processes);
        let done = self.mm.reclaim().compact_ahead(Policy::KEEP, MOVED, &everyone, &mut || {});
        if lacks {
            self.note(GROUP_ORDER, done, before);
        }
    }

    /// The state before a compaction that is compared with the bound.
    fn emptiable(&mut self, order: Order) -> Option<Vec<u64>> {
        self.compactions += 1;
        (order == GROUP_ORDER && self.compactions.is_multiple_of(COMPARED)).then(|| {
            self.mm.phys().drain();
            emptiable(self.mm, order)
        })
    }

    fn note(&mut self, order: Order, done: Compacted, before: Option<Vec<u64>>) {
        let Compacted { made, moved, .. } = done;
        let bound = before.and_then(|before| fewest(&before, made));
        self.ledger.episode(Episode { order, made, moved, bound });
    }

    /// Makes some memory free.
    fn reclaim(&mut self) -> Result<()> {
        self.mm.reclaim().reclaim(RECLAIMED, &Everyone(&self.processes));
        self.write_out()
    }

    /// The swap device takes what has left; it keeps nothing.
    fn write_out(&mut self) -> Result<()> {
        let (device, slots) = self.swap;
        let (mut left, everyone) = (FilePages::new(0, slots), Everyone(&self.processes));
        loop {
            match self.mm.files().next_write(device, &mut left, &everyone) {
                Ok(Some(write)) => self.mm.files().write_done(write, Ok(())),
                Ok(None) => return Ok(()),
                Err(stop) => bail!("the swap device does not write: {stop:?}"),
            }
        }
    }

    /// Reads come back at once.
    fn carry_out(&mut self, mut reads: Reads) -> Result<()> {
        for _ in 0..TRIES {
            match self.mm.files().next_read(&mut reads) {
                Ok(Some(read)) => self.mm.files().read_done(read, Ok(())),
                Ok(None) => return Ok(()),
                Err(Error::NoMemory(_)) => self.reclaim()?,
                Err(error) => return Err(error.into()),
            }
        }
        bail!("a read never ends")
    }

    /// Reads `wanted` of file `at`, as `read(2)` does.
    pub(super) fn read(&mut self, at: usize, wanted: FilePages) -> Result<()> {
        let mut page = wanted.start;
        let mut tries = 0;
        while page < wanted.end {
            let file = &mut self.files[at];
            let rest = FilePages::new(page, wanted.end);
            match self.mm.files().read(file.id, rest, &mut file.reader, Pattern::Normal) {
                Ok((held, ahead)) => {
                    page += held.frames().count.min(rest.count());
                    self.mm.files().release(held);
                    ahead.map_or(Ok(()), |reads| self.carry_out(reads))?;
                    tries = 0;
                }
                Err(Stop::Need(Need::Read(reads))) => self.carry_out(reads)?,
                Err(Stop::Refuse(Error::NoMemory(_))) => self.reclaim()?,
                Err(stop) => bail!("a read came to {stop:?}"),
            }
            tries += 1;
            if tries > TRIES {
                bail!("a read never ends");
            }
        }
        Ok(())
    }
}
