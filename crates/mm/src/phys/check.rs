//! A walker that verifies every claim this room makes about its data.

use core::fmt;

use quire_units::{CpuId, FrameSpan, Order, Pfn};

use super::alloc::Phys;
use super::buddy::free_block;
use super::list::{END, next, prev};
use super::meta::{Kind, Meta, Slot, State};
use super::mobility::Mobility;
use super::zone::{Block, Lists, Zone};
use crate::limits::{ORDER_MAX, ORDERS};
use crate::sync::Ordering;

/// A count of all frames by place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Frames in the lists of the zones.
    pub free: u64,
    /// Frames in the caches of the CPUs.
    pub cached: u64,
    /// All other frames of the zones: handed out, or never added.
    pub taken: u64,
}

/// A broken claim, with the evidence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Violation {
    /// The bitmap of a zone and its list differ.
    Bitmap {
        /// Which zone.
        zone: usize,
        /// Which list.
        order: Order,
    },
    /// A block in a list does not name the one before it.
    Link {
        /// The block.
        frame: Pfn,
    },
    /// A block in a list is not recorded as free with the list's order.
    Untruthful {
        /// The block.
        frame: Pfn,
        /// The list.
        order: Order,
        /// The state that is recorded.
        state: State,
    },
    /// A free block is not aligned to its size, or reaches out of its zone.
    Misplaced {
        /// The block.
        frame: Pfn,
        /// Its order.
        order: Order,
    },
    /// A zone's count of blocks differs from its list, or from the blocks that are recorded as
    /// free.
    Count {
        /// Which zone.
        zone: usize,
        /// Which list.
        order: Order,
        /// How many blocks the zone counts.
        counted: u64,
        /// How many were found.
        found: u64,
    },
    /// A frame inside a free block is recorded as the first of something.
    Inside {
        /// The first frame of the free block.
        block: Pfn,
        /// The recorded frame.
        frame: Pfn,
        /// Its state.
        state: State,
    },
    /// A free block is in the list of another mobility than its group's.
    Mixed {
        /// The block.
        frame: Pfn,
        /// The list's mobility.
        mobility: Mobility,
    },
    /// Two free buddies have not been merged.
    Unmerged {
        /// One of them.
        frame: Pfn,
        /// Their order.
        order: Order,
    },
    /// A frame in a CPU's cache has a record, or is free in a zone, or is cached twice.
    Cached {
        /// The CPU of the cache.
        cpu: CpuId,
        /// Which frame.
        frame: Pfn,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Bitmap { zone, order } => {
                write!(f, "zone {zone}: the bitmap is wrong about {order}")
            }
            Self::Link { frame } => write!(f, "{frame} does not link back"),
            Self::Untruthful { frame, order, state } => {
                write!(f, "{frame} is in the list of {order}, but recorded as {state:?}")
            }
            Self::Misplaced { frame, order } => write!(f, "no block of {order} fits at {frame}"),
            Self::Count { zone, order, counted, found } => {
                write!(f, "zone {zone} counts {counted} blocks of {order}, but has {found}")
            }
            Self::Inside { block, frame, state } => {
                write!(f, "{frame} inside the free block {block} is recorded as {state:?}")
            }
            Self::Mixed { frame, mobility } => {
                write!(f, "{frame} is in the list of {mobility:?} frames, but its group is not")
            }
            Self::Unmerged { frame, order } => {
                write!(f, "{frame} and its buddy of {order} are both free")
            }
            Self::Cached { cpu, frame } => {
                write!(f, "{frame} in the cache of CPU {} is in use elsewhere, too", cpu.index())
            }
        }
    }
}

impl core::error::Error for Violation {}

impl Phys<'_> {
    /// See [`Frames::check`](super::Frames::check).
    ///
    /// # Errors
    /// The first [`Violation`].
    pub fn check(&self) -> Result<Totals, Violation> {
        let mut totals = Totals::default();
        for (number, zone) in self.zones.iter().enumerate() {
            totals.free += check_zone(&self.meta(), number, zone)?;
            totals.taken += zone.span.count;
        }
        totals.cached = check_caches(self)?;
        totals.taken -= totals.free + totals.cached;
        Ok(totals)
    }
}

fn check_zone(meta: &Meta<'_>, number: usize, zone: &Zone) -> Result<u64, Violation> {
    let lists = zone.lists.lock();
    let recorded = check_records(meta, zone.span, &lists)?;
    let mut free = 0;
    for (at, found) in recorded.into_iter().enumerate() {
        let order = Order::new(at as u8);
        let of = |mobility: Mobility| u64::from(lists.blocks_of(mobility)[at]);
        let counted = Mobility::ALL.into_iter().map(of).sum::<u64>();
        for mobility in Mobility::ALL {
            if lists.first(mobility, order).is_some() != (lists.filled(mobility) >> at & 1 != 0) {
                return Err(Violation::Bitmap { zone: number, order });
            }
            let counted = u64::from(lists.blocks_of(mobility)[at]);
            let found = check_list(meta, zone.span, &lists, (mobility, order), counted)?;
            if found != counted {
                return Err(Violation::Count { zone: number, order, counted, found });
            }
        }
        if found != counted {
            return Err(Violation::Count { zone: number, order, counted, found });
        }
        free += counted << at;
    }
    Ok(free)
}

/// Follows one list and counts its blocks. Stops one past `counted`, so that a list that forms a
/// ring ends, too.
fn check_list(
    meta: &Meta<'_>,
    zone: FrameSpan,
    lists: &Lists,
    (mobility, order): (Mobility, Order),
    counted: u64,
) -> Result<u64, Violation> {
    let mut found = 0;
    let mut before = END;
    let mut at = lists.first(mobility, order).unwrap_or(END);
    while at != END && found <= counted {
        let (frame, slot) = (meta.frame(at), meta.by_index(at));
        match Block::recorded(frame, slot.state()) {
            Some(block) if block.order == order => check_place(zone, block)?,
            _ => return Err(Violation::Untruthful { frame, order, state: slot.state() }),
        }
        if lists.listed(meta, Block { at: frame, order, zeroed: false }) != mobility {
            return Err(Violation::Mixed { frame, mobility });
        }
        if prev(slot) != before {
            return Err(Violation::Link { frame });
        }
        found += 1;
        (before, at) = (at, next(slot));
    }
    Ok(found)
}

fn check_place(zone: FrameSpan, block: Block) -> Result<(), Violation> {
    let Block { at: frame, order, .. } = block;
    let fits = order <= ORDER_MAX && frame.is_aligned(order.pages()) && zone.covers(block.span());
    if fits { Ok(()) } else { Err(Violation::Misplaced { frame, order }) }
}

/// Goes through the slots of a zone and counts the blocks recorded as free, by order.
fn check_records(
    meta: &Meta<'_>,
    zone: FrameSpan,
    lists: &Lists,
) -> Result<[u64; ORDERS], Violation> {
    let mut found = [0; ORDERS];
    let mut at = zone.start;
    while at < zone.end() {
        let Some(block) = meta.slot(at).and_then(|slot| Block::recorded(at, slot.state())) else {
            at = at.add(1);
            continue;
        };
        check_place(zone, block)?;
        found[block.order.index()] += 1;
        for frame in (1..block.order.pages()).map(|page| at.add(page)) {
            let state = meta.slot(frame).map_or(State::NONE, Slot::state);
            if state.kind() != Kind::None {
                return Err(Violation::Inside { block: at, frame, state });
            }
        }
        if block.order < ORDER_MAX && lists.free_buddy(meta, zone, block).is_some() {
            return Err(Violation::Unmerged { frame: at, order: block.order });
        }
        at = block.span().end();
    }
    Ok(found)
}

/// Counts the cached frames. Each gets a number of its own in its slot; a second pass finds that
/// number again unless the frame is cached twice.
fn check_caches(phys: &Phys<'_>) -> Result<u64, Violation> {
    let meta = phys.meta();
    let mut frames = 0;
    each_cached(phys, |cpu, frame| {
        let slot = meta.at(frame);
        if slot.state().kind() != Kind::None || free_block(&meta, frame).is_some() {
            return Err(Violation::Cached { cpu, frame });
        }
        frames += 1;
        slot.counts.store(frames, Ordering::Relaxed);
        Ok(())
    })?;
    let mut again = 0;
    each_cached(phys, |cpu, frame| {
        again += 1;
        let mark = meta.at(frame).counts.swap(0, Ordering::Relaxed);
        if mark == again { Ok(()) } else { Err(Violation::Cached { cpu, frame }) }
    })?;
    Ok(frames)
}

/// Calls `look` for each cached frame.
pub(crate) fn each_cached(
    phys: &Phys<'_>,
    mut look: impl FnMut(CpuId, Pfn) -> Result<(), Violation>,
) -> Result<(), Violation> {
    for (number, cache) in phys.caches.iter().enumerate() {
        for (order, shelf) in cache.shelves() {
            for entry in shelf.0.lock().entries() {
                let first = phys.meta().frame(entry.index());
                for page in 0..order.pages() {
                    look(CpuId::new(number), first.add(page))?;
                }
            }
        }
    }
    Ok(())
}
