//! Carrying out one step: folios that move to other frames, and what that is for.

use quire::space::Space;
use quire::{Compaction, Stop};
use quire_arch::Arch;
use quire_script::{Step, Verb};
use quire_units::{FrameSpan, Order};

use super::act::Outcome;
use super::progress::With;
use super::violation::Wrong;
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
                let order = self.order(step.args[0]).min(Order::new(9));
                let goal = Compaction { order, blocks: 1, pages: step.args[1].into() };
                let done = {
                    let _operation = self.machine.operation("compact");
                    self.mm.reclaim().compact(goal, &self.all()[..], &mut || {})
                };
                self.settle_races()?;
                Ok(done.moved << 1 | u64::from(done.enough))
            }
            Verb::Take => self.take_frames(step.args[0], step.args[1]),
            _ => {
                self.mm.reclaim().answer_faults(step.args[0].is_multiple_of(2));
                Ok(1)
            }
        }
    }

    fn migrate(&mut self, process: usize, at: usize, count: usize) -> Outcome {
        let span = self.span(at, count);
        let got = {
            let _operation = self.machine.operation("migrate");
            self.mm.paging().migrate(self.space(process)?, span, &self.all()[..])
        };
        self.settle_races()?;
        let done = self.judge("migrate", Ok(()), got.map_err(Stop::from))?;
        Ok(done.map_or(0, |done| done.pages))
    }

    /// Other users of memory get exactly these frames, or none.
    fn take_frames(&mut self, first: u32, count: u32) -> Outcome {
        let all = self.mm.phys().span();
        let start = all.start.add(u64::from(first) % all.count);
        let count = u64::from(count.max(1)).min(all.end().offset_from(start));
        if self.hoard.len() >= HOARD_MOST {
            return Ok(0);
        }
        let wanted = FrameSpan::new(start, count);
        let got = {
            let _operation = self.machine.operation("take");
            self.mm.reclaim().take_span(wanted, &self.all()[..], &mut || {})
        };
        self.settle_races()?;
        match got {
            Ok(run) if run.span() == wanted => {
                self.hoard.push(run);
                Ok(1)
            }
            Ok(run) => Err(Wrong::new(
                super::violation::Kind::Answer,
                format!("{:?} was taken for {wanted:?}", run.span()),
            )),
            Err(_) => Ok(0),
        }
    }

    /// A fault asks for a block of this order.
    pub(super) fn compact_for(&mut self, order: Order) -> Result<(), Wrong> {
        {
            let _operation = self.machine.operation("compact");
            self.mm.reclaim().compact_for(order, FOR_A_FAULT, &self.all()[..], &mut || {});
        }
        self.settle_races()
    }

    /// The same beside a process that is not one of the script's.
    pub(super) fn compact_beside(&mut self, order: Order, space: &Space<A>) -> Result<(), Wrong> {
        {
            let _operation = self.machine.operation("compact");
            let all = With(self.all(), space);
            self.mm.reclaim().compact_for(order, FOR_A_FAULT, &all, &mut || {});
        }
        self.settle_races()
    }
}
