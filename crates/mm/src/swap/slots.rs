//! The slots of a device: one word for each, a frame of words for each cluster.
//!
//! ```text
//!   63       62..32   31..0
//!   | cached |   0   | count |        count: page-table entries that refer to the slot
//! ```
//!
//! A word that is zero is a free slot. `cached`: the slot belongs to a folio in memory, which may
//! be about to leave it, or about to be read. Words are changed with the cluster's frame locked, by
//! runs: equal words stay equal, so each run is one `fill`.

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};
use quire_units::{Order, Pfn};

use super::Swap;
use super::device::{Admits, CLUSTER_LANES, InList, Lane, Lists};
use crate::cache::FilePages;
use crate::phys::{Kind, Meta, WordsLock};
use crate::radix::Tree;
use crate::sync::Ordering;

pub(super) const CACHED: u64 = 1 << 63;
pub(super) const COUNT: u64 = (1 << 32) - 1;

/// The slots of one device.
pub(crate) struct Slots<'a, A, H> {
    pub(super) tree: Tree<'a, A, H>,
    pub(crate) swap: &'a Swap,
}

impl<'a, A: Arch, H: Hardware> Slots<'a, A, H> {
    pub(super) const BITS: u32 = Tree::<A, H>::BITS;
    pub(super) const WORDS: u64 = 1 << Self::BITS;
    /// The largest run: a cluster.
    pub(crate) const RUN_MAX: Order = Order::new(Self::BITS as u8);

    pub(crate) fn new(hw: &'a H, meta: Meta<'a>, swap: &'a Swap) -> Self {
        Self { tree: Tree::new(hw, meta, &swap.root, Kind::Swap, 0), swap }
    }

    /// Makes the tree of all clusters for `slots` slots, of zeroed frames that `frame` gives.
    /// `false` when it gives none: [`fell`](Self::fell) the part that is there.
    pub(crate) fn found(&self, slots: u64, frame: impl FnMut() -> Option<FrameRun>) -> bool {
        if self.tree.plant(slots, frame).is_none() {
            return false;
        }
        // Beyond the device's end no slot is ever free.
        let beyond = FilePages::new(slots, slots.next_multiple_of(Self::WORDS));
        self.each(beyond, |lock, first, count| {
            self.tree.write(lock, first, count, COUNT);
            self.tree.add_used(lock, count as i64);
        });
        let mut lists = self.swap.lists.lock();
        let clusters = (0..slots.div_ceil(Self::WORDS)).rev();
        for frame in clusters.filter_map(|number| self.tree.lowest(number << Self::BITS)) {
            lists.put(self.tree.meta, frame, InList::Free, 0);
        }
        true
    }

    /// Takes all clusters apart; each frame goes to `free`.
    pub(crate) fn fell(&self, mut free: impl FnMut(FrameRun)) {
        self.tree.fell(self.tree.root(), &mut free);
    }

    /// Takes an aligned run of 2^`order` slots, cached and without entries, for the CPU number
    /// `cpu`. `None` when there is no such run.
    #[cfg(test)]
    pub(crate) fn take(&self, order: Order, cpu: usize) -> Option<u64> {
        self.take_row(order, 1, cpu).map(|slots| slots.start)
    }

    /// Takes aligned runs of 2^`order` slots, one behind the other, at least one and at most
    /// `most`, cached and without entries, for the CPU number `cpu`. `None` when there is no such
    /// run.
    pub(crate) fn take_row(&self, order: Order, most: usize, cpu: usize) -> Option<FilePages> {
        let lane = self.swap.lanes[cpu % CLUSTER_LANES].get(order.index())?;
        if order > Self::RUN_MAX || self.swap.admits() == Admits::Nothing {
            return None;
        }
        loop {
            if let Some(current) = lane.current()
                && let Some(slots) = self.take_from(self.tree.meta.frame(current), order, most)
            {
                return Some(slots);
            }
            if !self.refill(lane, order) {
                return None;
            }
        }
    }

    /// Gives `lane` a current cluster; `false` when there is none that may have a run of `order`.
    ///
    /// All of it happens under the lock of the lists. Otherwise two CPUs of a lane could each take
    /// a cluster, and the one that is written over would stay current, and in no lane, for ever;
    /// and a CPU that looks for another lane's cluster would not see the one on its way there.
    fn refill(&self, lane: &Lane, order: Order) -> bool {
        let mut lists = self.swap.lists.lock();
        let meta = self.tree.meta;
        let is_current =
            |&at: &u32, lists: &Lists| lists.place(meta, meta.frame(at)).0 == InList::Current;
        if lane.current().is_some_and(|at| is_current(&at, &lists)) {
            return true;
        }
        let taken = lists.take(meta, order.get()).map(|frame| meta.index(frame));
        let next = taken.or_else(|| {
            // When there is no other any more, lanes share.
            let mut lanes = self.swap.lanes.iter().flatten().filter_map(Lane::current);
            lanes.find(|at| is_current(at, &lists))
        });
        lane.set(next);
        next.is_some()
    }

    /// Takes up to `most` runs out of the cluster at `frame`, if it is current and has one; the
    /// cluster is in its list afterwards if it has none.
    fn take_from(&self, frame: Pfn, order: Order, most: usize) -> Option<FilePages> {
        let lock = self.tree.meta.lock(frame)?.words()?;
        if self.swap.lists.lock().place(self.tree.meta, frame).0 != InList::Current {
            return None;
        }
        if let Some(at) = self.find(&lock, order) {
            let most = (most << order.get()).min(Self::WORDS as usize - at);
            let free = self.tree.hw.count_run(frame, at, most, 0, 0);
            let count = free & !(order.pages() as usize - 1);
            lock.slot().links[0].store((at + count) as u32, Ordering::Relaxed);
            self.tree.write(&lock, at, count, CACHED);
            self.tree.add_used(&lock, count as i64);
            self.swap.used.fetch_add(count as u64, Ordering::Relaxed);
            let start = self.tree.first(&lock) + at as u64;
            return Some(FilePages::new(start, start + count as u64));
        }
        let full = self.tree.used(&lock) == Self::WORDS;
        let place = if full { InList::Unlisted } else { InList::Frag };
        self.swap.lists.lock().put(self.tree.meta, frame, place, order.get());
        None
    }

    /// A place of an aligned free run in a current cluster: the next one behind where one was found
    /// last, or else the first.
    fn find(&self, lock: &WordsLock<'_>, order: Order) -> Option<usize> {
        let (frame, count) = (lock.frame(), order.pages() as usize);
        let last = lock.slot().links[0].load(Ordering::Relaxed) as usize;
        let last = last.next_multiple_of(count).min(Self::WORDS as usize);
        let is_free = |&at: &usize| {
            self.tree.hw.load(frame, at) == 0
                && self.tree.hw.count_run(frame, at, count, 0, 0) == count
        };
        let mut behind = (last..Self::WORDS as usize).step_by(count);
        behind.find(is_free).or_else(|| (0..last).step_by(count).find(is_free))
    }

    /// Calls `act` with the locked cluster of each part of `slots`, the first word, and how many.
    pub(super) fn each(&self, slots: FilePages, mut act: impl FnMut(&WordsLock<'_>, usize, usize)) {
        for part in Self::parts(slots) {
            let frame = self.tree.lowest(part.start);
            let lock = frame.and_then(|frame| self.tree.meta.lock(frame)?.words());
            debug_assert!(lock.is_some(), "the clusters of a device in use are its own");
            if let Some(lock) = lock {
                act(&lock, Tree::<A, H>::place(part.start, 0), part.count() as usize);
            }
        }
    }

    /// `slots`, cut where a cluster ends.
    fn parts(slots: FilePages) -> impl Iterator<Item = FilePages> {
        let clusters = slots.start >> Self::BITS..slots.end.div_ceil(Self::WORDS);
        clusters
            .map(move |at| FilePages::block(at << Self::BITS, Self::RUN_MAX).intersect(slots))
            .filter(|part| !part.is_empty())
    }

    /// Changes the words of `slots` by runs of equal ones.
    fn change(&self, slots: FilePages, change: impl Fn(u64) -> u64) {
        self.each(slots, |lock, first, count| {
            let (mut at, end, mut freed) = (first, first + count, 0);
            while at < end {
                let was = self.tree.hw.load(lock.frame(), at);
                let run = self.tree.hw.count_run(lock.frame(), at, end - at, was, 0);
                let now = change(was);
                self.tree.write(lock, at, run, now);
                if now == 0 && was != 0 {
                    freed += run;
                }
                at += run;
            }
            if freed > 0 {
                self.freed(lock, freed);
            }
        });
    }

    /// How many words of the cluster from slot `first` on lie beyond the device's end.
    fn beyond(&self, first: u64) -> u64 {
        (first + Self::WORDS).saturating_sub(self.swap.slots())
    }

    /// Notes that `count` slots of a locked cluster have become free.
    fn freed(&self, lock: &WordsLock<'_>, count: usize) {
        self.tree.add_used(lock, -(count as i64));
        self.swap.used.fetch_sub(count as u64, Ordering::Relaxed);
        let mut lists = self.swap.lists.lock();
        let (place, order) = lists.place(self.tree.meta, lock.frame());
        let now = match place {
            InList::Current => return,
            _ if self.tree.used(lock) == self.beyond(self.tree.first(lock)) => InList::Free,
            InList::Partial => return,
            InList::Unlisted | InList::Frag | InList::Free => InList::Partial,
        };
        lists.put(self.tree.meta, lock.frame(), now, order);
    }

    /// Counts one more entry for each of `slots`, which are in use.
    pub(crate) fn refer(&self, slots: FilePages) {
        self.change(slots, |word| {
            debug_assert!(word != 0 && word & COUNT < COUNT);
            word + 1
        });
    }

    /// Counts one entry less for each of `slots`. A slot that is not cached is free when it was the
    /// last.
    pub(crate) fn release(&self, slots: FilePages) {
        self.change(slots, |word| {
            debug_assert!(word & COUNT > 0, "an entry that was counted");
            word - 1
        });
    }

    /// The folio of `slots` is not in memory any more, or has no claim to them.
    pub(crate) fn uncache(&self, slots: FilePages) {
        self.change(slots, |word| word & !CACHED);
    }

    /// Claims the slots of folios of `order` that are to be read, from the first of `slots` on: up
    /// to a folio of which a slot has no entries or is cached, and within one cluster. Returns of
    /// how many folios.
    pub(crate) fn claim(&self, slots: FilePages, order: Order) -> usize {
        let mut claimed = 0;
        let slots = slots.intersect(FilePages::block(slots.start, Self::RUN_MAX));
        self.each(slots, |lock, first, count| {
            let end = first + count;
            // The words from `at` on that are equal, and how many.
            let run = |at: usize, end: usize| {
                let word = self.tree.hw.load(lock.frame(), at);
                (word, self.tree.hw.count_run(lock.frame(), at, end - at, word, 0))
            };
            let mut at = first;
            while at < end
                && let (word, count) = run(at, end)
                && word & CACHED == 0
                && word != 0
            {
                at += count;
            }
            claimed = (at - first) >> order.get();
            let (mut at, end) = (first, first + (claimed << order.get()));
            while at < end {
                let (word, count) = run(at, end);
                self.tree.write(lock, at, count, word | CACHED);
                at += count;
            }
        });
        claimed
    }

    /// Whether entries refer to all of `slots`, and none is in memory. A hint: nothing is locked.
    pub(crate) fn is_intact(&self, slots: FilePages) -> bool {
        let on_device = |slot| matches!(self.counted(slot), (1.., false));
        (slots.start..slots.end).all(on_device)
    }

    /// The first run of free slots in `slots`, within one cluster. Nothing is locked.
    pub(crate) fn first_free(&self, slots: FilePages) -> Option<FilePages> {
        let word = |slot| Tree::<A, H>::place(slot, 0);
        Self::parts(slots.intersect(FilePages::new(0, self.swap.slots()))).find_map(|part| {
            let cluster = self.tree.lowest(part.start)?;
            let first =
                (part.start..part.end).find(|&slot| self.tree.hw.load(cluster, word(slot)) == 0)?;
            let most = (part.end - first) as usize;
            let count = self.tree.hw.count_run(cluster, word(first), most, 0, 0);
            // Another CPU may have taken it since.
            Some(FilePages::new(first, first + count.max(1) as u64))
        })
    }

    /// Whether no entry refers to any of `slots`, which are cached. Nothing is locked: while the
    /// folio of the slots is locked, no entry comes to refer to them that was not there before.
    pub(crate) fn is_unreferred(&self, slots: FilePages) -> bool {
        let is_free = |part: FilePages| {
            let Some(cluster) = self.tree.lowest(part.start) else { return true };
            let (first, count) = (Tree::<A, H>::place(part.start, 0), part.count() as usize);
            match count {
                1 => self.tree.hw.load(cluster, first) == CACHED,
                _ => self.tree.hw.count_run(cluster, first, count, CACHED, 0) == count,
            }
        };
        // A folio's slots are of one cluster.
        match slots.start >> Self::BITS == (slots.end - 1) >> Self::BITS {
            true => is_free(slots),
            false => Self::parts(slots).all(is_free),
        }
    }

    /// How many entries refer to `slot`, and whether it is cached.
    pub(crate) fn counted(&self, slot: u64) -> (u32, bool) {
        let word = self.tree.walk(slot, 0).map_or(0, |place| place.word);
        ((word & COUNT) as u32, word & CACHED != 0)
    }
}
