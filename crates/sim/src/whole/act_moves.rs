//! Carrying out one step: folios that move to other frames, and what that is for.

use quire::limits::GROUP_ORDER;
use quire::phys::{Frames, Mobility};
use quire::space::Space;
use quire::{Compacted, Compaction, Stop};
use quire_arch::Arch;
use quire_hw::Hardware;
use quire_script::{Fault, Step, Verb};
use quire_units::{FrameSpan, Order};

use super::act::Outcome;
use super::violation::{Kind, Wrong};
use super::world::World;

/// The most runs of frames that other users of memory have.
const HOARD_MOST: usize = 24;

/// The pages that a fault may move.
const FOR_A_FAULT: u64 = 256;

impl<A: Arch> World<'_, '_, '_, A> {
    pub(super) fn act_on_frames(
        &mut self,
        step: &Step,
        process: usize,
        (at, count): (usize, usize),
    ) -> Outcome {
        match step.verb {
            Verb::Migrate => self.migrate(process, at, count),
            Verb::Compact => {
                let order = self.order(step.args[0]).min(GROUP_ORDER);
                let blocks = blocks_of(self.mm.phys(), order) + 1;
                let goal = Compaction { order, blocks, pages: step.args[1].into() };
                self.compacts(|world, others| {
                    world.mm.reclaim().compact(goal, &world.all(), others)
                })
            }
            Verb::Ahead => {
                let (keep, pages) = (step.args[0] % 101, step.args[1].into());
                self.compacts(|world, others| {
                    world.mm.reclaim().compact_ahead(keep, pages, &world.all(), others)
                })
            }
            Verb::Take => self.take_frames(step.args[0], step.args[1]),
            _ => {
                self.mm.reclaim().answer_faults(step.args[0].is_multiple_of(2));
                Ok(1)
            }
        }
    }

    /// Compacts beside other users of memory.
    fn compacts(&mut self, compact: impl FnOnce(&Self, &mut dyn FnMut()) -> Compacted) -> Outcome {
        let done = self.beside_others("compact", compact)?;
        self.moved.add(done);
        self.settle_races()?;
        self.check_marks()?;
        Ok(done.moved << 1 | u64::from(done.enough))
    }

    /// Lets `work` move folios. Whenever it lets go of all locks, others allocate: they must get
    /// no frame of a group that is being emptied.
    fn beside_others<R>(
        &self,
        name: &'static str,
        work: impl FnOnce(&Self, &mut dyn FnMut()) -> R,
    ) -> Result<R, Wrong> {
        let (phys, mut turns, mut wrong) = (self.mm.phys(), 0, None);
        let done = {
            let _operation = self.machine.operation(name);
            work(self, &mut || {
                // The allocation that fails on purpose is one of the library's own.
                if self.faulty != Fault::Alloc {
                    turns += 1;
                    wrong = wrong.take().or_else(|| intruder(phys, turns));
                }
            })
        };
        match wrong {
            None => Ok(done),
            Some(run) => {
                let what = format!("{run} of a group that is being emptied was handed out");
                Err(Wrong::new(Kind::Answer, what))
            }
        }
    }

    fn migrate(&mut self, process: usize, at: usize, count: usize) -> Outcome {
        let span = self.span(at, count);
        let got = {
            let _operation = self.machine.operation("migrate");
            self.mm.paging().migrate(self.space(process)?, span, &self.all())
        };
        self.settle_races()?;
        self.check_marks()?;
        let done = self.judge("migrate", Ok(()), got.map_err(Stop::from))?;
        Ok(done.map_or(0, |done| done.pages))
    }

    /// Other users of memory get exactly these frames, or none.
    fn take_frames(&mut self, first: u32, count: u32) -> Outcome {
        let all = self.mm.phys().span();
        let start = all.start.add(u64::from(first) % all.count);
        let count = u64::from(count.max(1)).min(all.end().offset_from(start));
        if self.hoard.len() >= HOARD_MOST {
            self.mm.phys().free(self.hoard.remove(0));
        }
        let wanted = FrameSpan::new(start, count);
        let got = self.beside_others("take", |world, others| {
            world.mm.reclaim().take_span(wanted, &world.all(), others)
        })?;
        self.moved.compactions += 1;
        self.moved.made += u64::from(got.is_ok());
        self.moved.failed += u64::from(got.is_err());
        self.settle_races()?;
        match got {
            Ok(run) if run.span() == wanted => {
                self.hoard.push(run);
                Ok(1)
            }
            Ok(run) => {
                Err(Wrong::new(Kind::Answer, format!("{:?} was taken for {wanted:?}", run.span())))
            }
            Err(_) => Ok(0),
        }
    }

    /// A fault asks for a block of this order.
    pub(super) fn compact_for(&mut self, order: Order) -> Result<(), Wrong> {
        let done = {
            let _operation = self.machine.operation("compact");
            self.mm.reclaim().compact_for(order, FOR_A_FAULT, &self.all(), &mut || {})
        };
        self.moved.add(done);
        self.settle_races()
    }

    /// The same beside a process that is not one of the script's.
    pub(super) fn compact_beside(&mut self, order: Order, space: &Space<A>) -> Result<(), Wrong> {
        let done = {
            let _operation = self.machine.operation("compact");
            let all = self.all().and(space);
            self.mm.reclaim().compact_for(order, FOR_A_FAULT, &all, &mut || {})
        };
        self.moved.add(done);
        self.settle_races()
    }
}

/// How many blocks of `order` are free in groups of movable frames, parts of larger ones included.
fn blocks_of<H: Hardware>(phys: Frames<'_, H>, order: Order) -> u64 {
    let counts = phys.free_by_mobility(Mobility::Movable);
    counts.iter().skip(order.index()).zip(0..).map(|(count, up)| count << up).sum()
}

/// How many frames are free in groups that are being emptied.
pub(super) fn isolated<H: Hardware>(phys: Frames<'_, H>) -> u64 {
    let counts = phys.free_by_mobility(Mobility::Isolated);
    counts.iter().zip(0..).map(|(count, order)| count << order).sum()
}

/// Another user of memory takes a block and gives it back. Returns what it got if that came from a
/// group that is being emptied.
fn intruder<H: Hardware>(phys: Frames<'_, H>, turn: usize) -> Option<String> {
    let before = isolated(phys);
    let run = phys.alloc([0, 4, 1, 3].map(Order::new)[turn % 4])?;
    let told = (isolated(phys) < before).then(|| format!("{:?}", run.span()));
    phys.free(run);
    told
}
