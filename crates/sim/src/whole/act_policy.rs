//! Carrying out one step: policies, and the background scan.

use quire::cache::FileSize;
use quire::fault::{Defrag, Enabled};
use quire::{ScanLimits, Scanned};
use quire_arch::Arch;
use quire_script::{Step, Verb, opt_out, size_policy};
use quire_units::{Order, OrderSet};

use super::act::Outcome;
use super::violation::{Kind, Wrong};
use super::world::World;

/// How often a scan goes on when it has read what it wanted.
const READS: usize = 20;

impl<A: Arch> World<'_, '_, '_, A> {
    pub(super) fn set_policy(&mut self, step: &Step, process: usize) -> Outcome {
        let order = Order::new((step.args[0] % 18) as u8);
        let choice = step.args[0] as usize;
        let policy = self.mm.policy();
        match step.verb {
            Verb::Size => {
                let choice = size_policy(step.args[1]);
                return Ok(u64::from(policy.set_size(order, choice).is_ok()));
            }
            Verb::CopyMost => {
                policy.set_copy_most(order);
                self.bound_copies();
            }
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

    /// The sizes of copies out of folios of an order, and of folios of files.
    pub(super) fn set_sizes(&mut self, step: &Step) -> Outcome {
        let order = Order::new((step.args[0] % 18) as u8);
        let told = |what: String| Err(Wrong::new(Kind::Answer, what));
        if step.verb == Verb::FileSize {
            let policy = self.mm.files().policy();
            let (before, choice) = (policy.size(order), FileSize::ALL[step.args[1] as usize % 4]);
            let done = policy.set_size(order, choice);
            return match (done, policy.size(order)) {
                (Ok(()), now) if now == choice => Ok(1),
                (Err(_), now) if now == before => Ok(0),
                (done, now) => {
                    told(format!("files of {order}: {choice:?} was {done:?}, is {now:?}"))
                }
            };
        }
        // A page is always among them.
        let sizes = OrderSet::from_bits(step.args[1]) | OrderSet::of(Order::ZERO);
        let rule = (step.args[1] > 0).then_some(sizes);
        let (done, is) = {
            let policy = self.mm.policy();
            (policy.set_copy_sizes(order, rule), policy.copy_sizes(order))
        };
        self.bound_copies();
        match (done, is == rule) {
            (Ok(()), true) => Ok(1),
            _ => told(format!("copies of {order}: {rule:?} was {done:?}, is {is:?}")),
        }
    }

    /// Keeps how large a copy may be now.
    pub(super) fn bound_copies(&mut self) {
        let policy = self.mm.policy();
        let rules = (0..19).filter_map(|order| policy.copy_sizes(Order::new(order))?.largest());
        let most = rules.chain([policy.copy_most()]).max().unwrap_or_default();
        self.copied = most.pages() as usize;
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
