//! Compaction: folios move so that larger blocks become free (row E7).
//!
//! ```text
//!   choose the block from which the fewest pages move   `phys` remembers cheap groups
//!   isolate its group ── move its folios elsewhere ──► the block is free
//!                        │ pinned, held, no room
//!                        ▼
//!                        the search goes on
//! ```
//!
//! It moves nothing into free groups, so each block that it makes is one more. It ends when enough
//! blocks are free, its budget is used up, or it looked at each group in vain.

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};
use quire_units::{FrameSpan, Order, Pfn};

use super::Reclaim;
use crate::base::AllSpaces;
use crate::limits::GROUP_ORDER;
use crate::paging::Load;
use crate::phys::{Mobility, Occupied};
use crate::stats::Event;

/// The goal of a compaction, and its budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compaction {
    /// The size of the wanted blocks: at most [`GROUP_ORDER`].
    pub order: Order,
    /// How many blocks of that size should be free, parts of larger ones included.
    pub blocks: u64,
    /// The most pages that move. A block that needs more is left alone. Looking at a group counts
    /// as much as moving a page.
    pub pages: u64,
}

/// The result of a compaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Compacted {
    /// Blocks that it made free.
    pub made: u64,
    /// Blocks that could not be emptied.
    pub failed: u64,
    /// Pages that moved.
    pub moved: u64,
    /// As many blocks as wanted are free.
    pub enough: bool,
}

impl Compacted {
    /// The sum of two.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            made: self.made + other.made,
            failed: self.failed + other.failed,
            moved: self.moved + other.moved,
            enough: self.enough && other.enough,
        }
    }
}

/// The groups that a compaction looked at.
#[derive(Default)]
struct Looks {
    all: u64,
    /// Those since the last one that it tried to empty.
    vain: u64,
    /// Those that it could not empty, since the last that it could.
    refused: u64,
}

impl<A: Arch, H: Hardware> Reclaim<'_, A, H> {
    /// Moves folios, whatever `spaces` map them and files have them, until `goal` is reached.
    /// `spaces` must be all spaces. Folios that are pinned, held, locked in memory, read or
    /// written stay, and so do frames that the embedder has taken. `resched` is called between two
    /// steps, without locks held.
    ///
    /// Anonymous folios need slots to move: see [`moves_on`](crate::Paging::moves_on).
    pub fn compact(
        &self,
        goal: Compaction,
        spaces: &(impl AllSpaces<A> + ?Sized),
        resched: &mut dyn FnMut(),
    ) -> Compacted {
        let phys = &self.base().phys;
        let order = goal.order.min(GROUP_ORDER);
        let mut done = Compacted::default();
        let (mut drained, mut looks) = (false, Looks::default());
        loop {
            done.enough = phys.has_blocks(order, goal.blocks);
            if done.enough || done.moved.saturating_add(looks.all) >= goal.pages {
                break;
            }
            if !core::mem::replace(&mut drained, true) {
                phys.drain();
                continue;
            }
            if let Some(load) = self.cheapest(order, &mut looks) {
                if done.moved.saturating_add(load.pages) > goal.pages {
                    break;
                }
                looks.vain = 0;
                match self.empty(load, &spaces, resched, &mut done.moved) {
                    true => (done.made, looks.refused) = (done.made + 1, 0),
                    false => (done.failed, looks.refused) = (done.failed + 1, looks.refused + 1),
                }
            }
            if looks.vain.max(looks.refused) >= phys.groups() {
                // Another time all may be different.
                phys.forgive();
                break;
            }
            resched();
        }
        done
    }

    /// The block of `order` from which the fewest pages must move, of those in the groups that come
    /// next.
    fn cheapest(&self, order: Order, looks: &mut Looks) -> Option<Load> {
        let phys = &self.base().phys;
        let free = phys.free_by_mobility(Mobility::Movable);
        let free = core::array::from_fn(|order| free[order]);
        let mut best: Option<Load> = None;
        let passed = phys.search(order == GROUP_ORDER, &mut |group| {
            // The zones should remember some that are not much dearer, too.
            let most = best.map_or(u64::MAX, |best| best.cost() + best.cost() / 2);
            let load = self.paging().cheapest(group, order, &free, most)?;
            if best.is_none_or(|best| load.cost() < best.cost()) {
                best = Some(load);
            }
            Some(load.cost())
        });
        looks.all += passed;
        looks.vain += passed;
        best
    }

    /// Lets faults that lack a large folio ask for [compaction](crate::Need::Compact), as far as
    /// the policy's `defrag` says.
    pub fn answer_faults(&self, answers: bool) {
        self.base().demand.set_answers(answers);
    }

    /// Makes room for a folio that a fault [asked for](crate::Need::Compact), and moves at most
    /// `pages` pages for it. After a failure, the next faults that lack this size do not ask.
    pub fn compact_for(
        &self,
        order: Order,
        pages: u64,
        spaces: &(impl AllSpaces<A> + ?Sized),
        resched: &mut dyn FnMut(),
    ) -> Compacted {
        let base = self.base();
        base.count(Event::CompactStall, 1);
        let done = self.compact(Compaction { order, blocks: 1, pages }, spaces, resched);
        let made = done.made > 0 && done.enough;
        base.demand.answered(order, made);
        base.count(if made { Event::CompactSuccess } else { Event::CompactFailed }, 1);
        done
    }

    /// Compacts in the background: for the sizes that faults lacked since the last call, where the
    /// policy defers that, and until `keep` per cent of the free frames lie in blocks of
    /// [`GROUP_ORDER`]. Moves at most `pages` pages.
    pub fn compact_ahead(
        &self,
        keep: u32,
        pages: u64,
        spaces: &(impl AllSpaces<A> + ?Sized),
        resched: &mut dyn FnMut(),
    ) -> Compacted {
        let (wanted, phys) = (self.base().demand.take_wanted(), &self.base().phys);
        let kept = phys.free_frames() * u64::from(keep.min(100)) / 100 / GROUP_ORDER.pages();
        let mut done = Compacted { enough: true, ..Compacted::default() };
        for order in (1..=GROUP_ORDER.get()).rev() {
            let asked = u64::from(wanted >> order & 1);
            let blocks = if order == GROUP_ORDER.get() { kept.max(asked) } else { asked };
            let left = pages.saturating_sub(done.moved);
            if blocks == 0 || left == 0 {
                continue;
            }
            self.base().count(Event::CompactWoken, asked);
            let goal = Compaction { order: Order::new(order), blocks, pages: left };
            done = done.and(self.compact(goal, spaces, resched));
        }
        done
    }

    /// Makes all of a block free; whether it could.
    fn empty(
        &self,
        next: Load,
        spaces: &dyn AllSpaces<A>,
        resched: &mut dyn FnMut(),
        moved: &mut u64,
    ) -> bool {
        let (base, group) = (self.base(), next.block.start.align_down(GROUP_ORDER.pages()));
        let phys = &base.phys;
        if !phys.isolate(group) {
            phys.refuse(group);
            return false;
        }
        base.count(Event::CompactIsolated, next.block.count.saturating_sub(next.pages));
        let done = self.paging().vacate(next.block, spaces, resched);
        base.count(Event::CompactScanned, done.scanned);
        *moved += done.moved;
        let is_free = || phys.free_in(next.block) == next.block.count;
        let mut made = is_free();
        if !made {
            // Another CPU may have dropped the last hold on a folio that moved.
            phys.drain();
            made = is_free();
        }
        phys.end_isolation(group);
        if !made {
            phys.refuse(group);
        }
        made
    }

    /// Takes exactly the frames of `span`, and moves away the folios that have them
    /// (`alloc_contig_range`).
    ///
    /// # Errors
    /// [`Occupied`] by a frame that stays, as those of pools do, or for which there was no room
    /// elsewhere. Nothing is taken then, but folios may have moved; none for a span that is not all
    /// of RAM.
    pub fn take_span(
        &self,
        span: FrameSpan,
        spaces: &(impl AllSpaces<A> + ?Sized),
        resched: &mut dyn FnMut(),
    ) -> Result<FrameRun, Occupied> {
        let phys = &self.base().phys;
        let known = phys.meta().span();
        let Some(end) = span.start.checked_add(span.count).filter(|_| known.covers(span)) else {
            return phys.take_exact(span);
        };
        let groups = || {
            let first = span.start.align_down(GROUP_ORDER.pages()).get();
            (first..end.get()).step_by(GROUP_ORDER.pages() as usize).map(Pfn::new)
        };
        // Groups of frames that stay cannot be isolated; what is free in them is taken below.
        let isolated = |group: Pfn| known.contains(group) && phys.isolate(group);
        for group in groups() {
            isolated(group);
        }
        // Reserved folios stay where their pool has them.
        let pools = groups().find(|group| phys.is_reserved(*group));
        for group in groups().filter(|_| pools.is_none()) {
            let start = group.max(span.start);
            let count = group.add(GROUP_ORDER.pages()).min(end).offset_from(start);
            self.paging().vacate(FrameSpan::new(start, count), &spaces, resched);
        }
        let taken = match pools {
            Some(group) => Err(Occupied { frame: group.max(span.start) }),
            None => phys.take_exact(span),
        };
        groups().for_each(|group| phys.end_isolation(group));
        taken
    }
}
