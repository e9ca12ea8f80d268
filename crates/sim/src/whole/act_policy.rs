//! Carrying out one step: policies, and the background scan.

use quire::fault::{Defrag, Enabled};
use quire::{ScanLimits, Scanned};
use quire_arch::Arch;
use quire_script::{Step, Verb, opt_out, size_policy};
use quire_units::Order;

use super::act::Outcome;
use super::violation::{Kind, Wrong};
use super::world::World;

/// How often a scan goes on when it has read what it wanted.
const READS: usize = 20;

impl<A: Arch> World<'_, '_, '_, A> {
    pub(super) fn set_policy(&mut self, step: &Step, process: usize) -> Outcome {
        let order = Order::new((step.args[0] % 18) as u8);
        let choice = step.args[0] as usize;
        let policy = &self.mm.policy();
        match step.verb {
            Verb::Size => {
                let choice = size_policy(step.args[1]);
                return Ok(u64::from(policy.set_size(order, choice).is_ok()));
            }
            Verb::CopyMost => policy.set_copy_most(order),
            Verb::EvictMost => policy.set_evict_most(order),
            Verb::Enabled => policy.set_enabled(Enabled::ALL[choice % Enabled::ALL.len()]),
            Verb::Defrag => policy.set_defrag(Defrag::ALL[choice % Defrag::ALL.len()]),
            Verb::ZeroesMost => {
                let block = A::block_order().pages() as u32;
                let all = [None, Some(0), Some(block / 8), Some(block / 2), Some(block - 1)];
                policy.set_zeroes_most(all[choice % all.len()]);
            }
            Verb::Swappiness => {
                let wanted = [0, 1, 60, 100, 200, 201][choice % 6];
                let done = policy.set_swappiness(wanted);
                let is_set = done.is_ok() == (wanted <= 200) && policy.swappiness() <= 200;
                return match is_set {
                    true => Ok(policy.swappiness().into()),
                    false => {
                        Err(Wrong::new(Kind::Answer, format!("swappiness {wanted}: {done:?}")))
                    }
                };
            }
            _ => self.space(process)?.set_opt_out(opt_out(step.args[0])),
        }
        Ok(1)
    }

    /// Goes on with the scan, reads what it asks for, and checks the bound of the pages it added.
    pub(super) fn scan(&mut self, step: &Step) -> Outcome {
        let [pages, none, swapped, shared, hard, _] = step.args.map(u64::from);
        let block = A::block_order().pages();
        let limits = ScanLimits {
            none: [0, block / 8, block / 2, block - 1][none as usize % 4],
            swapped: [0, block / 8, block][swapped as usize % 3],
            shared: [0, block][shared as usize % 2],
            hard: hard % 2 == 1,
        };
        let mut made = 0;
        for _ in 0..READS {
            let before = self.there();
            let mut cursor = self.cursor;
            let done = {
                let _operation = self.machine.operation("scan");
                self.mm.reclaim().scan(&mut cursor, pages, &limits, &self.all())
            };
            self.cursor = cursor;
            self.settle_races()?;
            self.judge_scan(pages, &limits, &done, before)?;
            made += done.made;
            let Some(reads) = done.reads else { return Ok(made) };
            if let Err(error) = self.carry(reads)? {
                return if self.may_fail(error) { Ok(made) } else { Err(Wrong::unexpected(error)) };
            }
        }
        Ok(made)
    }

    /// How many pages all processes have in memory, and how many on the swap device.
    fn there(&self) -> (u64, u64) {
        let each = self.spaces.iter().flatten();
        each.fold((0, 0), |(there, swapped), space| {
            (there + self.mm.resident(space), swapped + self.mm.paging().swapped(space))
        })
    }

    fn judge_scan(
        &self,
        pages: u64,
        limits: &ScanLimits,
        done: &Scanned,
        before: (u64, u64),
    ) -> Result<(), Wrong> {
        let now = self.there();
        let came = before.1.saturating_sub(now.1);
        // Races fault nothing in: all that is new was filled, or came from the device.
        let grew = now.0.saturating_sub(before.0);
        let is_done = done.pages >= pages || done.is_round || done.starved || done.reads.is_some();
        let left = self.cursor != Default::default();
        if grew > done.made * limits.none + came
            || done.collapsed < 2 * done.made
            || !is_done && left
        {
            let what = format!(
                "a scan of {pages} pages with {limits:?} came to {done:?}; {grew} pages are new, \
                 of which {came} were on the device"
            );
            return Err(Wrong::new(Kind::Answer, what));
        }
        Ok(())
    }
}
