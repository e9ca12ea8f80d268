//! The façade: it takes frames and gives them back.

use quire_hw::FrameRun;
use quire_units::{CpuId, FrameSpan, Order, Pfn};

use super::Plan;
use super::cpu_cache::{CpuCache, Entry, Shelf, Stack, batch, limit};
#[cfg(any(test, feature = "inject"))]
use super::fail::FailPlan;
use super::meta::{Kind, Meta, Ownerless, Slot, State};
use super::mobility::{Borrowed, Mobility};
use super::setup::{NotRam, Occupied, SetupError, Zones, validate};
use super::zone::{Block, Lists, Zone};
use crate::limits::{CACHED_ORDER_MAX, GROUP_ORDER, ORDER_MAX, ORDERS, POOLS_MAX};

/// All managed RAM, free or taken.
///
/// Several CPUs may call every method at once. `cpu` is the number of the caller's CPU. A wrong
/// number costs time, not correctness; for a number without a cache the zones serve the call.
pub struct Phys<'m> {
    pub(super) meta: Meta<'m>,
    pub(super) caches: &'m [CpuCache],
    pub(super) plan: Plan,
    pub(super) zones: &'m [Zone],
}

crate::sync::names!([] Phys<'_>, "phys" { plan } + caches + zones);

impl<'m> Phys<'m> {
    /// An allocator with no memory yet; [`add`](Self::add) brings it.
    ///
    /// `slots` are the metadata of the frames from `first` on, `caches` one cache for each CPU.
    /// All are borrowed exclusively, because two allocators over the same metadata would hand out
    /// each other's frames. Later `zones` are taken from first.
    ///
    /// # Errors
    /// Each [`SetupError`] for the reason that its name says.
    pub fn new(
        first: Pfn,
        slots: &'m mut [Slot],
        caches: &'m mut [CpuCache],
        zones: &'m mut [Zone],
    ) -> Result<Self, SetupError> {
        validate(FrameSpan::new(first, slots.len() as u64), zones)?;
        // Records of an earlier allocator would be taken for free blocks.
        slots.iter().for_each(|slot| slot.set_state(State::OUTSIDE));
        caches.iter_mut().for_each(CpuCache::reset);
        zones.iter_mut().for_each(|zone| zone.reset());
        Ok(Self { meta: Meta::new(first, slots), caches, plan: Plan::new(), zones })
    }

    /// The slots of all frames.
    #[inline]
    pub fn meta(&self) -> Meta<'m> {
        self.meta
    }

    /// Brings `run` under management. It is free from now on.
    ///
    /// # Errors
    /// [`NotRam`] when a frame of it belongs to no zone.
    pub fn add(&self, run: FrameRun) -> Result<(), NotRam> {
        let mut at = run.start();
        while at < run.span().end() {
            match self.zones.iter().find(|zone| zone.span.contains(at)) {
                Some(zone) => at = zone.span.end(),
                None => return Err(NotRam { frame: at, run }),
            }
        }
        for zone in self.zones.iter().filter(|zone| zone.span.contains(run.start())) {
            let first = self.meta.at(zone.group_start(run.start()));
            if first.state() == State::OUTSIDE {
                first.set_state(State::BEFORE_ADDED);
            }
        }
        for frame in (0..run.count()).map(|at| run.start().add(at)) {
            self.meta.at(frame).set_state(State::NONE);
        }
        self.give([(run.span(), run.is_zeroed())]);
        Ok(())
    }

    /// A block of `order` for movable memory, by all means.
    #[cfg(any(test, feature = "inject"))]
    pub fn alloc(&self, cpu: CpuId, order: Order) -> Option<FrameRun> {
        self.alloc_movable(cpu, order, true)
    }

    /// The same, but leaves the caches of other CPUs alone.
    #[cfg(any(test, feature = "inject"))]
    pub fn try_alloc(&self, cpu: CpuId, order: Order) -> Option<FrameRun> {
        self.alloc_movable(cpu, order, false)
    }

    /// Takes a block by all means, for memory of any mobility.
    #[inline]
    pub fn alloc_for(&self, cpu: CpuId, order: Order, mobility: Mobility) -> Option<FrameRun> {
        let want = Want { mobility, order, zones: Zones::ALL };
        self.alloc_cached(cpu, want).or_else(|| self.alloc_slow(cpu, want, true))
    }

    /// Takes a block of `order` for movable memory, naturally aligned: from the cache of `cpu`, or
    /// from any zone, or with `hard` after emptying the caches of all CPUs. `None` when none of
    /// them has such a block, or the order exceeds [`ORDER_MAX`].
    #[inline(always)]
    pub(crate) fn alloc_movable(&self, cpu: CpuId, order: Order, hard: bool) -> Option<FrameRun> {
        let want = Want { mobility: Mobility::Movable, order, zones: Zones::ALL };
        self.alloc_cached(cpu, want).or_else(|| self.alloc_slow(cpu, want, hard))
    }

    /// See [`Frames::alloc_in`](super::Frames::alloc_in).
    pub fn alloc_in(&self, cpu: CpuId, order: Order, zones: Zones) -> Option<FrameRun> {
        if zones == Zones::ALL {
            self.alloc_for(cpu, order, Mobility::Unmovable)
        } else {
            self.alloc_slow(cpu, Want { mobility: Mobility::Unmovable, order, zones }, true)
        }
    }

    /// See [`Frames::alloc_run`](super::Frames::alloc_run).
    pub fn alloc_run(&self, cpu: CpuId, order: Order, most: u64) -> Option<FrameRun> {
        if order > ORDER_MAX || most == 0 || self.plan.strikes(order) {
            return None;
        }
        let frames = most.min(ORDER_MAX.pages() >> order.get()) << order.get();
        let mut zones = self.zones.iter().rev();
        let mobility = Mobility::Unmovable;
        let long = |zone: &Zone| {
            let (mut lists, fits) = (zone.lists.lock(), Order::fitting(frames)?);
            lists.take_long(&self.meta, mobility, order, frames).or_else(|| {
                let block = lists.borrow(&self.meta, mobility, order, fits)?;
                Some((block.span(), block.zeroed))
            })
        };
        match zones.find_map(long) {
            Some((span, zeroed)) => Some(self.meta.mint(Ownerless { span, zeroed })),
            None => self.take(cpu, Want { mobility, order, zones: Zones::ALL }, true),
        }
    }

    /// See [`Frames::take_exact`](super::Frames::take_exact).
    ///
    /// # Errors
    /// [`Occupied`].
    pub fn take_exact(&self, span: FrameSpan) -> Result<FrameRun, Occupied> {
        let known = self.meta.span();
        if span.start.checked_add(span.count).is_none() || !known.covers(span) {
            let inside = known.contains(span.start);
            return Err(Occupied { frame: if inside { known.end() } else { span.start } });
        }
        if self.plan.strikes(Order::ZERO) {
            return Err(Occupied { frame: span.start });
        }
        self.carve(span).or_else(|_| {
            self.drain();
            self.carve(span)
        })
    }

    /// The first frame of `span` that was ever [added](Self::add). Holes of a zone were not.
    pub fn first_managed(&self, span: FrameSpan) -> Option<Pfn> {
        let is_managed = |frame: &Pfn| self.meta.at(*frame).state().kind() != Kind::Outside;
        let first = |zone: &Zone| {
            let FrameSpan { start: mut at, count } = zone.part(span);
            let end = at.add(count);
            while at < end {
                let next = at.align_down(GROUP_ORDER.pages()).add(GROUP_ORDER.pages()).min(end);
                // The first frame of a group of which none was added says so.
                if self.meta.at(zone.group_start(at)).state() != State::OUTSIDE {
                    let found = (at.get()..next.get()).map(Pfn::new).find(is_managed);
                    if found.is_some() {
                        return found;
                    }
                }
                at = next;
            }
            None
        };
        self.zones.iter().filter_map(first).min()
    }

    /// Gives frames back: all that were taken, any part of them, or several neighbours joined.
    /// Frames that are in no zone are lost.
    #[inline]
    pub fn free(&self, cpu: CpuId, run: FrameRun) {
        self.free_from(cpu, run, Mobility::Movable);
    }

    /// The same for frames that were in use for memory of any mobility: the next allocation for
    /// the same gets them.
    #[inline]
    pub fn free_from(&self, cpu: CpuId, run: FrameRun, mobility: Mobility) {
        self.free_parts(cpu, run, mobility, CACHED_ORDER_MAX);
    }

    /// The same in blocks of at most `most`: page tables are taken one by one, though they often
    /// come back side by side.
    #[inline]
    pub(crate) fn free_parts(&self, cpu: CpuId, run: FrameRun, mobility: Mobility, most: Order) {
        let span = run.span();
        if let Some(order) = single(span, most)
            && !self.is_kept(mobility, span.start, order)
            && let Some(shelf) = self.shelf(cpu, mobility, order)
            && let Some(entry) = self.entry(span, run.is_zeroed())
            && shelf.0.lock().push(entry, limit(order.index()))
        {
            return;
        }
        self.free_slow(cpu, run, mobility, most);
    }

    /// See [`Frames::drain`](super::Frames::drain).
    pub fn drain(&self) {
        for (order, shelf) in self.caches.iter().flat_map(CpuCache::shelves) {
            self.drain_stack(&mut shelf.0.lock(), order, usize::MAX);
        }
    }

    /// See [`Frames::free_frames`](super::Frames::free_frames).
    pub fn free_frames(&self) -> u64 {
        frames(&self.free_by_order())
    }

    /// Whether at least `least` frames are free. Reads the caches, one for each CPU, only when the
    /// zones alone have fewer.
    pub fn has_free(&self, least: u64) -> bool {
        let mut sum = 0;
        let reaches = |zone: &Zone| {
            sum += frames(&zone.lists.lock().blocks());
            sum >= least
        };
        self.zones.iter().any(reaches) || self.free_frames() >= least
    }

    /// See [`Frames::free_by_order`](super::Frames::free_by_order).
    pub fn free_by_order(&self) -> [u64; ORDERS] {
        let mut sum = [0; ORDERS];
        for zone in self.zones {
            let lists = zone.lists.lock();
            sum.iter_mut().zip(lists.blocks()).for_each(|(sum, blocks)| *sum += blocks);
        }
        for (order, shelf) in self.caches.iter().flat_map(CpuCache::shelves) {
            sum[order.index()] += shelf.0.lock().entries().len() as u64;
        }
        sum
    }

    /// See [`Frames::fragmentation`](super::Frames::fragmentation).
    pub fn fragmentation(&self, order: Order) -> Option<u32> {
        let counts = self.free_by_order();
        if counts.iter().skip(order.index()).any(|blocks| *blocks > 0) {
            return None;
        }
        let wanted = counts.iter().sum::<u64>() << order.get();
        // Each block is smaller than one of `order`.
        Some((frames(&counts) * 1000).checked_div(wanted).map_or(0, |share| 1000 - share as u32))
    }

    /// See [`Frames::free_by_mobility`](super::Frames::free_by_mobility).
    pub fn free_by_mobility(&self, mobility: Mobility) -> [u64; ORDERS] {
        let mut sum = [0; ORDERS];
        for zone in self.zones {
            let lists = zone.lists.lock();
            let blocks = lists.blocks_of(mobility);
            sum.iter_mut().zip(blocks).for_each(|(sum, blocks)| *sum += u64::from(*blocks));
        }
        sum
    }

    /// See [`Frames::borrowed`](super::Frames::borrowed).
    pub fn borrowed(&self) -> Borrowed {
        let all = self.zones.iter().map(|zone| zone.lists.lock().borrowed);
        all.fold(Borrowed::default(), |sum, one| Borrowed {
            blocks: sum.blocks + one.blocks,
            groups: sum.groups + one.groups,
        })
    }

    /// Whether a block is of a pool's group, so that no CPU's cache may have it. No pool has folios
    /// smaller than the largest cached blocks.
    #[inline]
    pub(crate) fn is_of_pool(&self, block: Pfn, order: Order) -> bool {
        let group = block.align_down(GROUP_ORDER.pages());
        POOLS_MAX != 0
            && order >= CACHED_ORDER_MAX
            && self.meta.slot(group).is_some()
            && self.meta.mobility(group).is_reserved()
    }

    /// Whether a pool keeps a block that was in use. Only folios are a pool's.
    #[inline]
    fn is_kept(&self, mobility: Mobility, block: Pfn, order: Order) -> bool {
        mobility == Mobility::Movable && self.is_of_pool(block, order)
    }

    #[inline]
    fn shelf(&self, cpu: CpuId, mobility: Mobility, order: Order) -> Option<&'m Shelf> {
        self.caches.get(cpu.index())?.shelf(mobility, order)
    }

    /// The fast path: a block in the CPU's cache, when there is no plan to count for.
    #[inline]
    fn alloc_cached(&self, cpu: CpuId, want: Want) -> Option<FrameRun> {
        let shelf = self.shelf(cpu, want.mobility, want.order)?;
        if self.plan.is_set() {
            return None;
        }
        let entry = shelf.0.lock().pop()?;
        Some(self.mint(entry, want.order))
    }

    #[inline]
    fn mint(&self, entry: Entry, order: Order) -> FrameRun {
        let span = FrameSpan::new(self.meta.frame(entry.index()), order.pages());
        self.meta.mint(Ownerless { span, zeroed: entry.is_zeroed() })
    }

    /// How a shelf names `span`. `None` when the span lies outside the metadata, or in two zones:
    /// frames that were joined across a border of zones may not be handed out again as one block.
    #[inline]
    fn entry(&self, span: FrameSpan, zeroed: bool) -> Option<Entry> {
        let whole = || self.zones.iter().any(|zone| zone.span.covers(span));
        let known = self.meta.span().covers(span) && (span.count == 1 || whole());
        known.then(|| Entry::new(self.meta.index(span.start), zeroed))
    }

    #[cold]
    #[inline(never)]
    fn alloc_slow(&self, cpu: CpuId, want: Want, drain: bool) -> Option<FrameRun> {
        if want.order > ORDER_MAX || self.plan.strikes(want.order) {
            return None;
        }
        self.take(cpu, want, drain)
    }

    /// Takes a block without asking the plan; with `drain`, also out of other CPUs' caches.
    fn take(&self, cpu: CpuId, want: Want, drain: bool) -> Option<FrameRun> {
        let shelf = || self.shelf(cpu, want.mobility, want.order);
        let once = || match shelf().filter(|_| want.zones == Zones::ALL) {
            Some(shelf) => self.take_filling(shelf, want),
            None => self.take_block(want),
        };
        match once() {
            None if drain => {
                self.drain();
                once()
            }
            found => found,
        }
    }

    /// Takes a block from `shelf`. An empty shelf is filled first: with one large block, or with
    /// the smaller ones that are free.
    fn take_filling(&self, shelf: &Shelf, want: Want) -> Option<FrameRun> {
        let mut stack = shelf.0.lock();
        if let Some(entry) = stack.pop() {
            return Some(self.mint(entry, want.order));
        }
        self.zones.iter().rev().find_map(|zone| {
            self.fill(&mut stack, &mut zone.lists.lock(), want);
            stack.pop().map(|entry| self.mint(entry, want.order))
        })
    }

    /// Fills an empty `stack` by half: with free blocks of smaller orders, or else with one large
    /// block. Blocks of smaller orders go first, so that large blocks stay whole.
    fn fill(&self, stack: &mut Stack, lists: &mut Lists, want: Want) {
        let Want { mobility, order, .. } = want;
        let most = Order::new(order.get() + batch(order));
        let mut stock = |block: Block| {
            let first = Entry::new(self.meta.index(block.at), block.zeroed);
            stack.stock(first, order, 1 << (block.order.get() - order.get()));
        };
        let mut room = most.pages();
        while let Some(fits) = Order::fitting(room)
            && let Some(block) = lists.take_largest(&self.meta, mobility, order, fits)
        {
            stock(block);
            room -= block.order.pages();
        }
        if room == most.pages() {
            let whole = lists.take(&self.meta, mobility, most);
            whole.or_else(|| lists.borrow(&self.meta, mobility, order, most)).map(stock);
        }
    }

    /// Takes a block from the zones themselves.
    pub(super) fn take_block(&self, want: Want) -> Option<FrameRun> {
        let Want { mobility, order, zones } = want;
        let mut wanted = self.zones.iter().enumerate().rev().filter(|(at, _)| zones.contains(*at));
        wanted.find_map(|(_, zone)| {
            let mut lists = zone.lists.lock();
            let own = lists.take(&self.meta, mobility, order);
            let block = own.or_else(|| lists.borrow(&self.meta, mobility, order, order))?;
            Some(self.meta.mint(Ownerless { span: block.span(), zeroed: block.zeroed }))
        })
    }

    /// Takes `span` from its zones, one after the other. When one of them fails, gives back the
    /// part that is taken.
    fn carve(&self, span: FrameSpan) -> Result<FrameRun, Occupied> {
        let mut at = span.start;
        let mut zeroed = true;
        while at < span.end() {
            let rest = FrameSpan::new(at, span.end().offset_from(at));
            let zone = self.zones.iter().find(|zone| zone.span.contains(at));
            let carved = zone.ok_or(at).and_then(|zone| {
                let part = zone.part(rest);
                zone.lists.lock().carve(&self.meta, part).map(|zero| (part.end(), zero))
            });
            match carved {
                Ok((end, zero)) => (at, zeroed) = (end, zeroed & zero),
                Err(frame) => {
                    let taken = FrameSpan::new(span.start, at.offset_from(span.start));
                    self.give([(taken, zeroed)]);
                    return Err(Occupied { frame });
                }
            }
        }
        Ok(self.meta.mint(Ownerless { span, zeroed }))
    }

    #[cold]
    #[inline(never)]
    fn free_slow(&self, cpu: CpuId, run: FrameRun, mobility: Mobility, most: Order) {
        let (span, zeroed) = (run.span(), run.is_zeroed());
        if span.count > CACHED_ORDER_MAX.pages() {
            return self.give([(span, zeroed)]);
        }
        for (at, order) in span.blocks(most) {
            let block = FrameSpan::new(at, order.pages());
            let is_kept = self.is_kept(mobility, at, order);
            match (self.shelf(cpu, mobility, order), self.entry(block, zeroed)) {
                (Some(shelf), Some(entry)) if !is_kept => self.shelve(shelf, order, entry),
                _ => self.give([(block, zeroed)]),
            }
        }
    }

    /// Puts a block on a shelf. A full shelf gives back its older half first.
    fn shelve(&self, shelf: &Shelf, order: Order, entry: Entry) {
        let limit = limit(order.index());
        let mut stack = shelf.0.lock();
        if !stack.push(entry, limit) {
            self.drain_stack(&mut stack, order, limit / 2);
            let fits = stack.push(entry, limit);
            debug_assert!(fits, "half a shelf has just been drained");
        }
    }

    fn drain_stack(&self, stack: &mut Stack, order: Order, count: usize) {
        let count = count.min(stack.entries().len());
        self.give(stack.oldest(&self.meta, order, count));
        stack.forget(count);
    }

    /// Gives `run` to its zone, past the caches of the CPUs.
    #[cfg(any(test, feature = "inject", feature = "swap"))]
    pub(crate) fn give_back(&self, run: FrameRun) {
        self.give([(run.span(), run.is_zeroed())]);
    }

    /// Gives runs to their zones, each zone locked at most once.
    pub(super) fn give(&self, runs: impl IntoIterator<Item = (FrameSpan, bool)> + Clone) {
        for zone in self.zones {
            let mut held = None;
            for (span, zeroed) in runs.clone() {
                for (at, order) in zone.part(span).blocks(ORDER_MAX) {
                    let lists = held.get_or_insert_with(|| zone.lists.lock());
                    lists.give(&self.meta, zone.span, Block { at, order, zeroed });
                }
            }
        }
    }
}

/// The block that an allocation wants.
#[derive(Clone, Copy)]
pub(super) struct Want {
    pub(super) mobility: Mobility,
    pub(super) order: Order,
    pub(super) zones: Zones,
}

/// How many frames are in `blocks`, which are counted by order.
pub(super) fn frames(blocks: &[u64]) -> u64 {
    blocks.iter().enumerate().map(|(order, blocks)| blocks << order).sum()
}

/// The order of `span`, if it is one naturally aligned block of an order up to `most`.
#[inline]
fn single(span: FrameSpan, most: Order) -> Option<Order> {
    let block = span.count.is_power_of_two() && span.start.is_aligned(span.count);
    (block && span.count <= most.pages()).then(|| Order::new(span.count.trailing_zeros() as u8))
}

#[cfg(any(test, feature = "inject"))]
impl Phys<'_> {
    /// Makes allocations fail. Each call of a method that takes frames counts as one.
    pub fn set_fail_plan(&self, plan: FailPlan) {
        self.plan.set(plan);
    }

    /// The plan at this moment, with the remaining count.
    pub fn fail_plan(&self) -> FailPlan {
        self.plan.get()
    }
}
