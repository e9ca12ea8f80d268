//! The free frames, one by one: a naive model of `quire::phys`, and the two side by side.
//!
//! The model knows of each frame whether it is free and whether it may have been written, and
//! nothing of blocks, zones' lists or caches. It does not predict which frames an allocation
//! gives; it says which answers are right: frames that were free, aligned, in a zone that was
//! allowed, zero if so claimed, and no refusal while a fitting block is free.

use std::collections::BTreeSet;
use std::fmt::Debug;

use proptest::prelude::*;
use quire::inject::Phys;
use quire::phys::{Totals, Zones};
use quire_hw::FrameRun;
use quire_units::{CpuId, FrameSpan, Order, Pfn};

/// The model.
pub struct NaivePhys {
    zones: Vec<FrameSpan>,
    free: BTreeSet<Pfn>,
    written: BTreeSet<Pfn>,
}

impl NaivePhys {
    /// Memory of these zones, all of it free.
    pub fn new(zones: &[FrameSpan]) -> Self {
        let free = zones.iter().copied().flat_map(frames).collect();
        Self { zones: zones.to_vec(), free, written: BTreeSet::new() }
    }

    /// The first frame of `span` that is not free.
    pub fn occupied(&self, span: FrameSpan) -> Option<Pfn> {
        frames(span).find(|frame| !self.free.contains(frame))
    }

    /// Whether a naturally aligned block of `order` is free in one of `zones`.
    pub fn has_block(&self, order: Order, zones: Zones) -> bool {
        self.allowed(zones).any(|zone| {
            frames(*zone).filter(|frame| frame.is_aligned(order.pages())).any(|frame| {
                let block = FrameSpan::new(frame, order.pages());
                zone.covers(block) && self.occupied(block).is_none()
            })
        })
    }

    /// How many blocks of each order the free frames make when all is merged that can be, largest
    /// first.
    pub fn fewest_blocks(&self, order_max: Order) -> Vec<u64> {
        let mut left = self.free.clone();
        let mut blocks = vec![0; order_max.index() + 1];
        for order in (0..=order_max.get()).rev().map(Order::new) {
            for zone in &self.zones {
                for frame in frames(*zone).filter(|frame| frame.is_aligned(order.pages())) {
                    let block = FrameSpan::new(frame, order.pages());
                    if zone.covers(block) && frames(block).all(|frame| left.contains(&frame)) {
                        frames(block).for_each(|frame| _ = left.remove(&frame));
                        blocks[order.index()] += 1;
                    }
                }
            }
        }
        blocks
    }

    /// Judges frames that an allocation gave.
    fn take(&mut self, run: &FrameRun, order: Order, zones: Zones) -> Result<(), String> {
        let span = run.span();
        ensure(span.count > 0 && span.count.is_multiple_of(order.pages()), "a length", run)?;
        ensure(span.start.is_aligned(order.pages()), "aligned", run)?;
        ensure(self.occupied(span).is_none(), "frames that were free", run)?;
        ensure(self.allowed(zones).any(|zone| zone.covers(span)), "in a zone allowed", run)?;
        self.take_any(run)
    }

    fn take_any(&mut self, run: &FrameRun) -> Result<(), String> {
        let zero = frames(run.span()).all(|frame| !self.written.contains(&frame));
        ensure(zero || !run.is_zeroed(), "zero where it says so", run)?;
        frames(run.span()).for_each(|frame| _ = self.free.remove(&frame));
        Ok(())
    }

    fn give(&mut self, span: FrameSpan) {
        self.free.extend(frames(span));
    }

    fn allowed(&self, zones: Zones) -> impl Iterator<Item = &FrameSpan> {
        self.zones.iter().enumerate().filter(move |(at, _)| zones.contains(*at)).map(|(_, z)| z)
    }
}

fn frames(span: FrameSpan) -> impl Iterator<Item = Pfn> {
    (0..span.count).map(move |at| span.start.add(at))
}

fn ensure(holds: bool, what: &str, evidence: impl Debug) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("expected {what}: {evidence:?}")) }
}

/// One call. Numbers are taken modulo what there is, so that any numbers make sense.
#[derive(Clone, Debug)]
pub enum Op {
    /// `alloc`, or `try_alloc` unless `hard`.
    Alloc {
        /// On which CPU.
        cpu: usize,
        /// How much.
        order: u8,
        /// Whether other CPUs' caches may be drained.
        hard: bool,
    },
    /// `alloc_in` the zones up to a number.
    AllocIn {
        /// On which CPU.
        cpu: usize,
        /// How much.
        order: u8,
        /// The last zone allowed.
        zone: usize,
    },
    /// `alloc_run`.
    AllocRun {
        /// On which CPU.
        cpu: usize,
        /// The order of the blocks.
        order: u8,
        /// How many blocks at most.
        most: u64,
    },
    /// `take_exact`.
    TakeExact {
        /// The first frame.
        start: u64,
        /// How many.
        count: u64,
    },
    /// `free` of a part of what is held; the rest stays held, in pieces.
    Free {
        /// On which CPU.
        cpu: usize,
        /// Which of the runs held.
        which: usize,
        /// The first frame of the part.
        from: u64,
        /// How many frames.
        count: u64,
        /// Whether they have been written.
        written: bool,
    },
    /// Joins one of the runs held to the one that begins at its end, if that is held.
    Join {
        /// Which.
        which: usize,
    },
    /// `drain`.
    Drain,
}

/// A sequence of at most `length` calls on `cpus` CPUs.
pub fn ops(cpus: usize, length: usize) -> impl Strategy<Value = Vec<Op>> {
    let cpu = 0..cpus;
    let order = prop_oneof![6 => 0..5u8, 2 => 0..11u8];
    let part = (0..1u64 << 12, prop_oneof![Just(1u64), 1..40u64, Just(u64::MAX)]);
    let op = prop_oneof![
        6 => (cpu.clone(), order.clone(), any::<bool>())
            .prop_map(|(cpu, order, hard)| Op::Alloc { cpu, order, hard }),
        2 => (cpu.clone(), order.clone(), 0..4usize)
            .prop_map(|(cpu, order, zone)| Op::AllocIn { cpu, order, zone }),
        2 => (cpu.clone(), order, 1..400u64)
            .prop_map(|(cpu, order, most)| Op::AllocRun { cpu, order, most }),
        2 => (any::<u64>(), 1..300u64).prop_map(|(start, count)| Op::TakeExact { start, count }),
        10 => (cpu, any::<usize>(), part, any::<bool>()).prop_map(
            |(cpu, which, (from, count), written)| Op::Free { cpu, which, from, count, written }
        ),
        2 => any::<usize>().prop_map(|which| Op::Join { which }),
        1 => Just(Op::Drain),
    ];
    prop::collection::vec(op, 1..length)
}

/// The allocator and the model, which see the same calls.
pub struct Beside<'p, 'm> {
    phys: &'p Phys<'m>,
    model: NaivePhys,
    held: Vec<FrameRun>,
}

impl<'p, 'm> Beside<'p, 'm> {
    /// `phys` has all of `zones` added to it, and nothing taken.
    pub fn new(phys: &'p Phys<'m>, zones: &[FrameSpan]) -> Self {
        Self { phys, model: NaivePhys::new(zones), held: Vec::new() }
    }

    /// Does one call on both sides, and walks the allocator's state.
    ///
    /// # Errors
    /// The difference between the two, or the walker's finding.
    pub fn step(&mut self, op: &Op) -> Result<(), String> {
        self.apply(op)?;
        self.agree()
    }

    /// Gives all back, and sees to it that everything has merged again.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn finish(mut self) -> Result<(), String> {
        while let Some(run) = self.held.pop() {
            self.model.give(run.span());
            self.phys.free(CpuId::new(0), run);
        }
        self.apply(&Op::Drain)?;
        self.agree()
    }

    fn apply(&mut self, op: &Op) -> Result<(), String> {
        match *op {
            Op::Alloc { cpu, order, hard: true } => {
                let run = self.phys.alloc(CpuId::new(cpu), Order::new(order));
                self.taken(run, order, 1, Zones::ALL)
            }
            Op::Alloc { cpu, order, hard: false } => {
                match self.phys.try_alloc(CpuId::new(cpu), Order::new(order)) {
                    None => Ok(()),
                    run => self.taken(run, order, 1, Zones::ALL),
                }
            }
            Op::AllocIn { cpu, order, zone } => {
                let zones = Zones::up_to(zone);
                let run = self.phys.alloc_in(CpuId::new(cpu), Order::new(order), zones);
                self.taken(run, order, 1, zones)
            }
            Op::AllocRun { cpu, order, most } => {
                let run = self.phys.alloc_run(CpuId::new(cpu), Order::new(order), most);
                self.taken(run, order, most, Zones::ALL)
            }
            Op::TakeExact { start, count } => self.take_exact(start, count),
            Op::Free { cpu, which, from, count, written } => {
                self.free(CpuId::new(cpu), which, (from, count), written);
                Ok(())
            }
            Op::Join { which } => {
                self.join(which);
                Ok(())
            }
            Op::Drain => {
                self.phys.drain();
                let blocks = self.phys.free_by_order().to_vec();
                let fewest = self.model.fewest_blocks(Order::new(blocks.len() as u8 - 1));
                ensure(blocks == fewest, "all merged", (blocks, fewest))
            }
        }
    }

    fn taken(
        &mut self,
        run: Option<FrameRun>,
        order: u8,
        most: u64,
        zones: Zones,
    ) -> Result<(), String> {
        let order = Order::new(order);
        let Some(run) = run else {
            return ensure(!self.model.has_block(order, zones), "a block", (order, zones));
        };
        ensure(run.count() <= most << order.get(), "no more than wanted", &run)?;
        self.model.take(&run, order, zones)?;
        self.held.push(run);
        Ok(())
    }

    fn take_exact(&mut self, start: u64, count: u64) -> Result<(), String> {
        let known = self.phys.meta().span();
        let span = FrameSpan::new(known.start.add(start % known.count), count);
        match (self.phys.take_exact(span), self.model.occupied(span)) {
            (Ok(run), None) if run.span() == span => {
                self.model.take_any(&run)?;
                self.held.push(run);
                Ok(())
            }
            // Which of several it names depends on where the metadata ends.
            (Err(error), Some(_)) => {
                let frame = FrameSpan::new(error.frame, 1);
                let named = span.covers(frame) && self.model.occupied(frame).is_some();
                ensure(named, "a frame that is not free", (error, span))
            }
            (found, model) => Err(format!("{span:?}: {found:?}, but occupied {model:?}")),
        }
    }

    fn free(&mut self, cpu: CpuId, which: usize, (from, count): (u64, u64), written: bool) {
        if self.held.is_empty() {
            return;
        }
        let run = self.held.swap_remove(which % self.held.len());
        let from = from % run.count();
        let (before, rest) = run.split_at(from);
        let count = count.min(rest.count());
        let (part, after) = rest.split_at(count);
        self.held.extend([before, after].into_iter().filter(|run| run.count() > 0));
        self.model.give(part.span());
        if written {
            self.model.written.extend(frames(part.span()));
        }
        self.phys.free(cpu, if written { part.dirtied() } else { part });
    }

    fn join(&mut self, which: usize) {
        if self.held.is_empty() {
            return;
        }
        let run = self.held.swap_remove(which % self.held.len());
        let next = self.held.iter().position(|next| next.start() == run.span().end());
        match next.map(|at| self.held.swap_remove(at)) {
            None => self.held.push(run),
            Some(next) => match run.join(next) {
                Ok(joined) => self.held.push(joined),
                Err((run, next)) => self.held.extend([run, next]),
            },
        }
    }

    /// Walks the allocator's state and compares the totals.
    fn agree(&self) -> Result<(), String> {
        let found = self.phys.check().map_err(|violation| violation.to_string())?;
        let free = self.model.free.len() as u64;
        let all: u64 = self.model.zones.iter().map(|zone| zone.count).sum();
        let Totals { free: listed, cached, taken } = found;
        let agreed = listed + cached == free && taken == all - free;
        ensure(agreed && self.phys.free_frames() == free, "equal totals", (found, free))
    }
}
