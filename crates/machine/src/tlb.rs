//! Translation lookaside buffers of stated geometry, and the walk cache beside them.
//!
//! Two levels: a small fully associative one and a larger set-associative one that includes the
//! first. Translations of all sizes share both, as in current cores. Each is tagged with its
//! address space. The walk cache keeps pointers to tables of each level, so that a miss need not
//! start at the root; a flush with `tables` must reach it.

use quire_hw::Flush;
use quire_units::{Asid, Order, PageSpan, Pfn, Prot, Vpn};

/// The capacity of a CPU's TLB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TlbGeometry {
    /// Entries of the first level, fully associative; at least 1.
    pub first: usize,
    /// Sets of the second level; a power of two, or 0 for no second level.
    pub sets: usize,
    /// Ways of each set.
    pub ways: usize,
    /// Entries of the walk cache, fully associative; 0 for none.
    pub walks: usize,
}

impl Default for TlbGeometry {
    /// A typical server core: 64 entries, 1536 in 12 ways behind them, 64 table pointers.
    fn default() -> Self {
        Self { first: 64, sets: 128, ways: 12, walks: 64 }
    }
}

/// One cached translation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Translation {
    pub(crate) asid: Asid,
    pub(crate) global: bool,
    /// First page, aligned to `order`.
    pub(crate) page: Vpn,
    pub(crate) order: Order,
    /// First frame.
    pub(crate) frame: Pfn,
    /// The rights that all levels together grant.
    pub(crate) prot: Prot,
    /// Stores need no walk.
    pub(crate) dirty: bool,
}

impl Translation {
    pub(crate) fn pages(&self) -> PageSpan {
        PageSpan::block(self.page, self.order)
    }

    fn covers(&self, asid: Asid, page: Vpn) -> bool {
        (self.global || self.asid == asid) && page.align_down(self.order.pages()) == self.page
    }
}

/// Where a translation was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hit {
    First,
    Second,
}

#[derive(Clone, Copy)]
struct Line {
    held: Translation,
    used: u64,
}

/// The translations that one CPU caches.
pub(crate) struct Tlb {
    first: Vec<Line>,
    second: Vec<Vec<Line>>,
    geometry: TlbGeometry,
    /// Bit n: there may be a translation of order n.
    orders: u64,
    ticks: u64,
}

impl Tlb {
    pub(crate) fn new(geometry: TlbGeometry) -> Self {
        let second = vec![Vec::with_capacity(geometry.ways); geometry.sets];
        let first = Vec::with_capacity(geometry.first);
        Self { first, second, geometry, orders: 0, ticks: 0 }
    }

    /// The translation of `page`. One found in the second level moves into the first as well.
    pub(crate) fn lookup(&mut self, asid: Asid, page: Vpn) -> Option<(Translation, Hit)> {
        self.ticks += 1;
        if let Some(line) = self.first.iter_mut().find(|line| line.held.covers(asid, page)) {
            line.used = self.ticks;
            return Some((line.held, Hit::First));
        }
        let held = self.lookup_second(asid, page)?;
        put(&mut self.first, self.geometry.first, Line { held, used: self.ticks });
        Some((held, Hit::Second))
    }

    fn lookup_second(&mut self, asid: Asid, page: Vpn) -> Option<Translation> {
        let mut orders = if self.second.is_empty() { 0 } else { self.orders };
        while orders != 0 {
            let order = Order::new(orders.trailing_zeros() as u8);
            orders &= orders - 1;
            let set = self.set(page, order);
            let found = self.second[set]
                .iter_mut()
                .find(|line| line.held.order == order && line.held.covers(asid, page));
            if let Some(line) = found {
                line.used = self.ticks;
                return Some(line.held);
            }
        }
        None
    }

    /// Keeps `held`, in place of the one for the same pages, or else the least recently used.
    pub(crate) fn insert(&mut self, held: Translation) {
        self.ticks += 1;
        self.orders |= 1 << held.order.get();
        let line = Line { held, used: self.ticks };
        put(&mut self.first, self.geometry.first, line);
        if !self.second.is_empty() {
            let set = self.set(held.page, held.order);
            put(&mut self.second[set], self.geometry.ways, line);
        }
    }

    /// Drops the translations for which `condemned` is true; an empty TLB is not searched.
    pub(crate) fn drop_if(&mut self, mut condemned: impl FnMut(&Translation) -> bool) {
        if self.orders == 0 {
            return;
        }
        self.orders = 0;
        for lines in core::iter::once(&mut self.first).chain(&mut self.second) {
            lines.retain(|line| !condemned(&line.held));
            for line in lines.iter() {
                self.orders |= 1 << line.held.order.get();
            }
        }
    }

    /// All translations; those in both levels come twice.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Translation> {
        self.first.iter().chain(self.second.iter().flatten()).map(|line| &line.held)
    }

    fn set(&self, page: Vpn, order: Order) -> usize {
        (page.get() >> order.get()) as usize & (self.second.len() - 1)
    }
}

/// Puts `line` in place of the one for the same pages, or the oldest when `lines` is full.
fn put(lines: &mut Vec<Line>, capacity: usize, line: Line) {
    let same = |old: &Line| {
        let (old, new) = (&old.held, &line.held);
        old.asid == new.asid && old.page == new.page && old.order == new.order
    };
    if let Some(old) = lines.iter_mut().find(|old| same(old)) {
        *old = line;
    } else if lines.len() < capacity {
        lines.push(line);
    } else if let Some(oldest) = lines.iter_mut().min_by_key(|line| line.used) {
        *oldest = line;
    }
}

/// A pointer to a table, as a walk found it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TablePointer {
    pub(crate) asid: Asid,
    /// The level of the entry that holds the pointer.
    pub(crate) level: u8,
    /// First page that the entry translates.
    pub(crate) page: Vpn,
    pub(crate) order: Order,
    /// The table it points at.
    pub(crate) table: Pfn,
    /// The rights that the entry and those above it allow at most.
    pub(crate) limits: Prot,
}

/// The table pointers that one CPU caches, oldest first.
pub(crate) struct WalkCache {
    pointers: Vec<TablePointer>,
    capacity: usize,
    next: usize,
}

impl WalkCache {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { pointers: Vec::with_capacity(capacity), capacity, next: 0 }
    }

    /// The pointer nearest to the last level on the way to `page`.
    pub(crate) fn lookup(&self, asid: Asid, page: Vpn) -> Option<TablePointer> {
        let fits = |p: &&TablePointer| p.asid == asid && page.align_down(p.order.pages()) == p.page;
        self.pointers.iter().filter(fits).min_by_key(|p| p.level).copied()
    }

    pub(crate) fn insert(&mut self, pointer: TablePointer) {
        let place = |p: &TablePointer| (p.asid, p.level, p.page);
        if let Some(old) = self.pointers.iter_mut().find(|p| place(p) == place(&pointer)) {
            *old = pointer;
        } else if self.pointers.len() < self.capacity {
            self.pointers.push(pointer);
        } else if self.capacity > 0 {
            self.next = (self.next + 1) % self.capacity;
            self.pointers[self.next] = pointer;
        }
    }

    pub(crate) fn drop_if(&mut self, mut condemned: impl FnMut(&TablePointer) -> bool) {
        self.pointers.retain(|pointer| !condemned(pointer));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &TablePointer> {
        self.pointers.iter()
    }
}

/// Entries that walks of one CPU found not valid, newest last: level and pages of each, with its
/// space's tag.
#[derive(Default)]
pub(crate) struct Absences(Vec<(Asid, u8, PageSpan)>);

/// More are forgotten.
const ABSENCES_MOST: usize = 64;

impl Absences {
    pub(crate) fn cover(&self, asid: Asid, page: Vpn) -> bool {
        self.0.iter().any(|(tag, _, pages)| *tag == asid && pages.contains(page))
    }

    pub(crate) fn keep(&mut self, asid: Asid, level: u8, pages: PageSpan) {
        if self.0.len() == ABSENCES_MOST {
            self.0.remove(0);
        }
        self.0.push((asid, level, pages));
    }

    /// A flush reaches the CPU. Only the last level has leaves alone.
    pub(crate) fn drop_reached(&mut self, flush: &Flush<'_>) {
        self.0.retain(|(asid, level, pages)| {
            let reached = match level {
                0 => reaches(flush, *pages),
                _ => reaches_tables(flush, *pages),
            };
            *asid != flush.asid || !reached
        });
    }
}

/// Whether `flush` reaches a translation of `pages`.
///
/// One invalidation names one address: the first of each piece. It drops every translation that
/// covers the address. So a translation smaller than the
/// stride survives unless it happens to begin there, as on real CPUs: this exposes a stride that is
/// too large.
pub(crate) fn reaches(flush: &Flush<'_>, pages: PageSpan) -> bool {
    let Some(pieces) = flush.pages else { return true };
    let (span, stride) = (pieces.span(), pieces.stride().pages());
    debug_assert!(span.start.is_aligned(stride), "an invalidation of an address within a piece");
    span.overlaps(pages) && (pages.count() >= stride || pages.start.is_aligned(stride))
}

/// Whether `flush` reaches a pointer to a table that translates `pages`. The stride plays no part:
/// [`Flush::tables`] asks for walk caches as such.
pub(crate) fn reaches_tables(flush: &Flush<'_>, pages: PageSpan) -> bool {
    flush.tables && flush.pages.is_none_or(|pieces| pieces.span().overlaps(pages))
}

#[cfg(test)]
mod tests;
