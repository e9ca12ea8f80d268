//! Emptying frames: the folios there move to frames elsewhere (row E7).
//!
//! The walk reads the slots of the frames without a lock, so all that it finds is a guess. A folio
//! is held where it is mapped, at its home, under the lock of the table that maps it; or it is
//! found in the index of its file.

use arrayvec::ArrayVec;
use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{FrameSpan, Order, Pfn};

use super::Paging;
use super::batch::Batch;
use super::evict::place;
use super::leave::{Obstacle, PagedOut, Purpose};
use super::pass::{Homes, Known, Pass};
use crate::base::AllSpaces;
use crate::cache::Row;
use crate::folio::{Folio, FolioFlags};
use crate::limits::{GROUP_ORDER, LEAVE_MOST};
use crate::phys::{Kind, Mobility};
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

/// The content of some frames of a group: its parts by order.
#[derive(Default)]
struct Content {
    free: [u16; GROUP_ORDER.index()],
    /// Folios that move whole.
    whole: [u16; GROUP_ORDER.index()],
    /// Folios that may become several.
    divisible: [u16; GROUP_ORDER.index()],
    /// The pages of all folios.
    pages: u64,
    /// Something cannot move.
    stays: bool,
}

impl Content {
    /// The pages that move so that `block`, which has this content, is free, if all can move and
    /// `free` has room, and no more than `most`.
    fn load(&self, block: FrameSpan, free: &Parts, most: u64) -> Option<Load> {
        let pages = self.pages;
        if self.stays || pages == 0 || pages > most {
            return None;
        }
        let (mut left, mut divided) = (0, 0);
        for order in (0..free.len()).rev() {
            let (whole, divisible) = (self.whole[order].into(), self.divisible[order].into());
            // Each part that is left over is two of the next smaller order.
            left = (2 * left + free[order]).checked_sub(whole)?;
            let fit = left.min(divisible);
            left -= fit;
            divided += (divisible - fit) << order;
        }
        (divided <= left).then_some(Load { block, pages, divided })
    }
}

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
        let all = FrameSpan::new(group, GROUP_ORDER.pages());
        let is_all = order == GROUP_ORDER;
        let content = self.content(all, if is_all { most } else { u64::MAX });
        let mut free = *free;
        for (free, own) in free.iter_mut().zip(content.free) {
            *free = free.saturating_sub(own.into());
        }
        // A block that is given up for another is no gain.
        free[order.index()..].fill(0);
        if is_all {
            return content.load(all, &free, most);
        }
        let blocks = all.blocks(order).map(|(at, order)| FrameSpan::new(at, order.pages()));
        let load = |block| self.content(block, most).load(block, &free, most);
        blocks.filter_map(load).min_by_key(Load::cost)
    }

    /// The content of frames, up to the place where more than `most` pages are in use.
    fn content(&self, frames: FrameSpan, most: u64) -> Content {
        let (folios, mut found) = (self.base().folios(), Content::default());
        for used in self.uses(frames) {
            match used {
                Use::Free(order) => {
                    if let Some(parts) = found.free.get_mut(order.index()) {
                        *parts += 1;
                    }
                }
                Use::Passing => {}
                Use::Folio(folio) if folios.counts(folio).pins == 0 => {
                    let divisible = folio.order > Order::ZERO && self.is_divisible(folio);
                    let such = if divisible { &mut found.divisible } else { &mut found.whole };
                    match such.get_mut(folio.order.index()) {
                        Some(count) => *count += 1,
                        None => found.stays = true,
                    }
                    found.pages += folio.order.pages();
                }
                Use::Folio(_) | Use::Stays => found.stays = true,
            }
            if found.pages > most {
                break;
            }
        }
        found
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
                            if !self.has_room(folio.order, 1)
                                && self.divide_at_home(folio, spaces, &batch.known)
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
        if order == Order::ZERO {
            return true;
        }
        let free = self.base().phys.free_by_mobility(Mobility::Movable);
        let parts = free[..GROUP_ORDER.index()].iter().skip(order.index()).zip(0..);
        parts.map(|(free, up)| free << up).sum::<u64>() >= folios
    }

    /// Divides an anonymous folio that one space maps into folios for which there is room; whether
    /// it did.
    fn divide_at_home(&self, folio: Folio, spaces: &dyn AllSpaces<A>, known: &Known) -> bool {
        let base = self.base();
        let Some(most) = base.phys.largest_packed().filter(|most| *most < folio.order) else {
            return false;
        };
        let (mut divided, here) = (false, place(base, folio));
        for pass in Pass::EACH {
            let home = Homes::from_iter([base.folios().home(folio).space]);
            pass.visit(spaces, home, known, &mut |space, _| {
                let tables = base.view(space).tables();
                if !divided && let Some(page) = tables.find(here, folio, || true) {
                    let done = self.spaces().divide(space, page, Division::Uniform(most));
                    divided = matches!(done, Ok(Divided::Parts { .. }));
                }
            });
            if divided {
                break;
            }
        }
        divided
    }

    /// Moves the folios of `seen`, and empties it. Returns how many could not begin.
    fn send(&self, seen: &mut Seen, spaces: &dyn AllSpaces<A>, batch: &mut Batch<'_, A, H>) -> u64 {
        let mut stay = 0;
        while !seen.is_empty() {
            let mut held = Seen::new();
            for pass in Pass::EACH {
                self.hold(pass, spaces, seen, &mut held, &mut batch.known);
            }
            stay += seen.len() as u64;
            seen.clear();
            for folio in held {
                let mut row = Row::of(0, folio.0);
                match self.begin(&mut row, Purpose::Pack) {
                    Ok(begun) => {
                        batch.push(&row, &begun);
                        if batch.room() == 0 {
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

    /// Moves the folios of `seen` that a space of this pass maps where their home says to `held`,
    /// with a reference.
    fn hold(
        &self,
        pass: Pass,
        spaces: &dyn AllSpaces<A>,
        seen: &mut Seen,
        held: &mut Seen,
        known: &mut Known,
    ) {
        let (base, before) = (self.base(), known.clone());
        let folios = base.folios();
        let homes: Homes = seen.iter().map(|(_, home)| *home).collect();
        pass.visit(spaces, homes, &before, &mut |space, own| {
            let tables = base.view(space).tables();
            seen.retain(|&mut (folio, home)| {
                if !pass.looks(home, own) {
                    return true;
                }
                let hold = || folios.hold(folio);
                let found = tables.find(place(base, folio), folio, hold).is_some();
                if found {
                    held.push((folio, own));
                }
                if found && pass != Pass::Home {
                    // The rest of the move, and the next one, look here first.
                    folios.set_home(folio, tables.home(folios.home(folio).page));
                    known.add(own);
                }
                !found
            });
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

#[cfg(all(test, not(loom)))]
mod tests;
