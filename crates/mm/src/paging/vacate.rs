//! Emptying frames: the folios there move to frames elsewhere (row E7).
//!
//! The walk reads the slots of the frames without a lock, so all that it finds is a guess. A folio
//! is held where it is mapped, at its home, under the lock of the table that maps it; or it is
//! found in the index of its file.

use arrayvec::ArrayVec;
use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{FrameSpan, Order, PageSpan, Pfn, Vpn};

use super::Paging;
use super::batch::Batch;
use super::leave::{Obstacle, PagedOut, Purpose};
use crate::base::AllSpaces;
use crate::folio::{Folio, FolioFlags};
use crate::limits::{GROUP_ORDER, LEAVE_MOST};
use crate::phys::{Kind, Mobility};
use crate::space::Space;
use crate::stats::Event;
use crate::table::{Divided, Division, Gather};

/// The result of emptying frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Vacated {
    /// Pages that were looked at.
    pub(crate) scanned: u64,
    /// Pages that have other frames now.
    pub(crate) moved: u64,
    /// Folios that stay.
    pub(crate) stay: u64,
}

/// Folios that move together, and the space of each one's home.
type Seen = ArrayVec<(Folio, u32), LEAVE_MOST>;

/// How many free parts of groups there are, by order.
pub(crate) type Parts = [u64; GROUP_ORDER.index()];

/// A block that is to be emptied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Load {
    pub(crate) block: FrameSpan,
    /// How many pages must move.
    pub(crate) pages: u64,
    /// How many of them are in folios that must be divided for that.
    divided: u64,
}

impl Load {
    /// The pages that it costs. A folio that is divided is a loss as well.
    pub(crate) fn cost(&self) -> u64 {
        self.pages + self.divided
    }
}

/// The use of the frames from one on.
enum Use {
    /// A free block.
    Free(Order),
    /// In a CPU's cache, or on its way from one use to another.
    Passing,
    /// A folio.
    Folio(Folio),
    /// Frames that cannot move.
    Stays,
}

impl Use {
    fn pages(&self) -> u64 {
        match self {
            Use::Free(order) | Use::Folio(Folio { order, .. }) => order.pages(),
            Use::Passing | Use::Stays => 1,
        }
    }
}

impl<A: Arch, H: Hardware> Paging<'_, A, H> {
    /// The block of `order` in `group`, which has slots, that is the cheapest to empty. `None` when
    /// each is free, or has frames that stay for sure, or more than `most` pages in use, or holds
    /// folios for which the free parts of other groups have no room: `free` counts these parts by
    /// order, those of `group` included.
    pub(crate) fn cheapest(
        &self,
        group: Pfn,
        order: Order,
        free: &Parts,
        most: u64,
    ) -> Option<Load> {
        let (mut free, mut used) = (*free, GROUP_ORDER.pages());
        // A block that is given up for another is no gain.
        free[order.index()..].fill(0);
        let all = FrameSpan::new(group, GROUP_ORDER.pages());
        for own in self.uses(all) {
            if let Use::Free(order) = own
                && let Some(parts) = free.get_mut(order.index())
            {
                *parts = parts.saturating_sub(1);
                used -= order.pages();
            }
        }
        if order == GROUP_ORDER && used > most {
            return None;
        }
        let blocks = all.blocks(order).map(|(at, order)| FrameSpan::new(at, order.pages()));
        blocks.filter_map(|block| self.load(block, &free)).min_by_key(Load::cost)
    }

    /// The pages that move so that `block` is free, if all can move and `free` has room.
    fn load(&self, block: FrameSpan, free: &Parts) -> Option<Load> {
        let folios = self.base().folios();
        let (mut whole, mut divisible) = (Parts::default(), Parts::default());
        for used in self.uses(block) {
            match used {
                Use::Free(_) | Use::Passing => {}
                Use::Folio(folio) if folios.counts(folio).pins == 0 => {
                    let such = if self.is_divisible(folio) { &mut divisible } else { &mut whole };
                    *such.get_mut(folio.order.index())? += 1;
                }
                Use::Folio(_) | Use::Stays => return None,
            }
        }
        let (mut left, mut pages, mut divided) = (0, 0, 0);
        for order in (0..whole.len()).rev() {
            // Each part that is left over is two of the next smaller order.
            left = (2 * left + free[order]).checked_sub(whole[order])?;
            let fit = divisible[order].min(left);
            left -= fit;
            divided += (divisible[order] - fit) << order;
            pages += (whole[order] + divisible[order]) << order;
        }
        (pages > 0 && divided <= left).then_some(Load { block, pages, divided })
    }

    /// Whether a folio may become several to move: it is a file's, and not a device's, or anonymous
    /// and mapped once.
    fn is_divisible(&self, folio: Folio) -> bool {
        let folios = self.base().folios();
        match folios.known(folio).0.contains(FolioFlags::CACHED) {
            true => !self.base().is_swapped(folio),
            false => u64::from(folios.counts(folio).mapped) <= folio.order.pages(),
        }
    }

    /// Whether a folio is a file's, or a device's that no page maps.
    fn is_cached(&self, folio: Folio) -> bool {
        let (known, counts) =
            (self.base().folios().known(folio).0, self.base().folios().counts(folio));
        known.contains(FolioFlags::CACHED) && (counts.mapped == 0 || !self.base().is_swapped(folio))
    }

    /// The uses of `frames`, one after the other.
    fn uses(&self, frames: FrameSpan) -> impl Iterator<Item = Use> + '_ {
        let mut at = frames.start;
        core::iter::from_fn(move || {
            let used = (at < frames.end()).then(|| self.use_of(at))?;
            at = at.add(used.pages());
            Some(used)
        })
    }

    /// Moves the folios of `frames`, which have slots, into other groups, whatever spaces map them
    /// and files have them; `resched` is called between two batches, without locks held.
    pub(crate) fn vacate(
        &self,
        frames: FrameSpan,
        spaces: &dyn AllSpaces<A>,
        resched: &mut dyn FnMut(),
    ) -> Vacated {
        let (base, mut done, mut gather) = (self.base(), Vacated::default(), Gather::new());
        let mut batch = Batch::new(self, spaces, Purpose::Pack, &mut gather);
        // Small ones fit anywhere, and would take the room of the others.
        for large in [true, false] {
            self.vacate_some(frames, large, spaces, &mut batch, &mut done, resched);
        }
        let moved = batch.done;
        base.count(Event::MigratedPages, moved.pages);
        base.count(Event::MigrateFailed, moved.stay + done.stay);
        Vacated { moved: moved.pages, stay: done.stay + moved.stay, ..done }
    }

    /// Moves the folios of `frames` that have several pages, or the others.
    fn vacate_some(
        &self,
        frames: FrameSpan,
        large: bool,
        spaces: &dyn AllSpaces<A>,
        batch: &mut Batch<'_, A, H>,
        done: &mut Vacated,
        resched: &mut dyn FnMut(),
    ) {
        let (base, mut seen) = (self.base(), Seen::new());
        // A folio may begin before the frames.
        let mut at = base.folios().of(frames.start).map_or(frames.start, |folio| folio.head);
        while at < frames.end() {
            let used = self.use_of(at);
            let next = at.add(used.pages());
            match used {
                Use::Folio(folio) if (folio.order > Order::ZERO) == large => {
                    // The parts of one that was divided begin at the same frame.
                    if self.is_cached(folio) {
                        if self.send_cached(folio, spaces, &mut batch.done) {
                            continue;
                        }
                    } else {
                        if !self.has_room(folio.order, seen.len() as u64 + 1) {
                            done.stay += self.send(&mut seen, spaces, batch);
                            if !self.has_room(folio.order, 1) && self.divide_at_home(folio, spaces)
                            {
                                continue;
                            }
                        }
                        seen.push((folio, base.folios().home(folio).space));
                    }
                    done.scanned += folio.order.pages();
                }
                Use::Stays if !large => done.stay += 1,
                Use::Free(_) | Use::Passing | Use::Folio(_) | Use::Stays => {}
            }
            if seen.is_full() {
                done.stay += self.send(&mut seen, spaces, batch);
                resched();
            }
            at = next;
        }
        done.stay += self.send(&mut seen, spaces, batch);
    }

    /// Whether free parts of groups have room for as many folios of `order`.
    fn has_room(&self, order: Order, folios: u64) -> bool {
        let free = self.base().phys.free_by_mobility(Mobility::Movable);
        let parts = free[..GROUP_ORDER.index()].iter().skip(order.index()).zip(0..);
        order == Order::ZERO || parts.map(|(free, up)| free << up).sum::<u64>() >= folios
    }

    /// Divides an anonymous folio that one space maps into folios for which there is room; whether
    /// it did.
    fn divide_at_home(&self, folio: Folio, spaces: &dyn AllSpaces<A>) -> bool {
        let base = self.base();
        let Some(most) = base.phys.largest_packed().filter(|most| *most < folio.order) else {
            return false;
        };
        let (mut divided, here) = (false, self.place(folio));
        spaces.visit(&mut |space| {
            let tables = base.view(space).tables();
            let is_it = |there: Folio| there == folio;
            if !divided
                && !here.is_empty()
                && let Some((page, ..)) = tables.first_folio(here, is_it)
            {
                let done = self.spaces().divide(space, page, Division::Uniform(most));
                divided = matches!(done, Ok(Divided::Parts { .. }));
            }
        });
        divided
    }

    /// The pages at which a folio's home says that it is mapped.
    fn place(&self, folio: Folio) -> PageSpan {
        let home = self.base().folios().home(folio);
        let end = home.page.get().saturating_add(folio.order.pages());
        PageSpan::new(home.page, Vpn::new(end)).intersect(Space::<A>::all())
    }

    /// Moves the folios of `seen`, and empties it. Returns how many could not begin.
    fn send(&self, seen: &mut Seen, spaces: &dyn AllSpaces<A>, batch: &mut Batch<'_, A, H>) -> u64 {
        let mut stay = 0;
        while !seen.is_empty() {
            let mut held = Seen::new();
            for near in [true, false] {
                if !seen.is_empty() {
                    spaces.visit(&mut |space| self.hold_at_home(space, near, seen, &mut held));
                }
            }
            stay += seen.len() as u64;
            seen.clear();
            for folio in held {
                match self.begin(folio.0, Purpose::Pack) {
                    Ok(leaving) => {
                        if batch.push(leaving) {
                            batch.end(None, true);
                        }
                    }
                    // Those before it give slots back.
                    Err(Obstacle::NoSlots) if !batch.is_empty() => seen.push(folio),
                    Err(_) => stay += 1,
                }
            }
            batch.end(None, true);
        }
        stay
    }

    /// Moves the folios of `seen` that a space maps where their home says to `held`, with a
    /// reference: with `near` those whose home the space is, or else those of others.
    fn hold_at_home(&self, space: &Space<A>, near: bool, seen: &mut Seen, held: &mut Seen) {
        let folios = self.base().folios();
        let tables = self.base().view(space).tables();
        let own = tables.home(Vpn::new(0)).space;
        if !seen.iter().any(|(_, space)| (*space == own) == near) {
            return;
        }
        seen.retain(|&mut (folio, space)| {
            if (space == own) != near {
                return true;
            }
            let here = self.place(folio);
            let hold = |there: Folio| there == folio && folios.hold(there);
            let found = !here.is_empty() && tables.first_folio(here, hold).is_some();
            if found {
                // The rest of the move, and the next one, look here first.
                let home = tables.home(folios.home(folio).page);
                if !near {
                    folios.set_home(folio, home);
                }
                held.push((folio, home.space));
            }
            !found
        });
    }

    /// Moves a folio of a file. Where no free part has room for all of it, divides it instead;
    /// whether it did.
    fn send_cached(&self, folio: Folio, spaces: &dyn AllSpaces<A>, done: &mut PagedOut) -> bool {
        let (base, order) = (self.base(), folio.order);
        let (_, owner) = base.folios().known(folio);
        let moved = match base.packed_frames(order) {
            Ok(run) => self.files().move_cached(folio, owner, run, spaces),
            Err(_) => {
                let may_divide = self.is_divisible(folio);
                let most = base.phys.largest_packed().filter(|most| may_divide && *most < order);
                let divide = |most| self.files().divide_whole(folio, owner, most, spaces);
                if most.is_some_and(divide) {
                    return true;
                }
                false
            }
        };
        done.folios += u64::from(moved);
        done.pages += if moved { order.pages() } else { 0 };
        done.stay += u64::from(!moved);
        false
    }

    /// The use of the frames from `at` on, which have slots. It may change at any time.
    fn use_of(&self, at: Pfn) -> Use {
        let state = self.base().phys.meta().at(at).state();
        match state.kind() {
            Kind::Free => Use::Free(Order::new(state.order())),
            Kind::Folio => Use::Folio(Folio { head: at, order: Order::new(state.order()) }),
            Kind::None | Kind::Stray => Use::Passing,
            _ => Use::Stays,
        }
    }
}
