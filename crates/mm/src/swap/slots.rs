//! The slots of a device: one word for each, a frame of words for each cluster.
//!
//! ```text
//!   63       62..32   31..0
//!   | cached |   0   | count |        count: page-table entries that refer to the slot
//! ```
//!
//! A word that is zero is a free slot. `cached`: the slot belongs to a folio in memory, which may
//! be about to leave it, or about to be read. Words are changed with the cluster's frame locked, by
//! runs: what was equal before is equal after, and is one `fill`.

use core::marker::PhantomData;

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};
use quire_units::{Order, Pfn};

use super::device::{CLUSTER_LANES, Lists, NONE, Place};
use super::{Swap, entry};
use crate::cache::FilePages;
use crate::phys::{FrameLock, Kind, Meta, WordsLock};
use crate::sync::{AtomicU32, Ordering};

pub(super) const CACHED: u64 = 1 << 63;
pub(super) const COUNT: u64 = (1 << 32) - 1;

/// The slots of one device: a view that is cheap to make and to copy.
pub(crate) struct Slots<'a, A, H> {
    pub(super) hw: &'a H,
    meta: Meta<'a>,
    pub(crate) swap: &'a Swap,
    arch: PhantomData<A>,
}

impl<A, H> Clone for Slots<'_, A, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A, H> Copy for Slots<'_, A, H> {}

impl<'a, A: Arch, H: Hardware> Slots<'a, A, H> {
    pub(super) const BITS: u32 = A::PAGE_SHIFT - 3;
    pub(super) const WORDS: u64 = 1 << Self::BITS;
    /// The largest run: a cluster.
    pub(crate) const RUN_MAX: Order = Order::new(Self::BITS as u8);

    pub(crate) fn new(hw: &'a H, meta: Meta<'a>, swap: &'a Swap) -> Self {
        Self { hw, meta, swap, arch: PhantomData }
    }

    /// The most slots that a device may have: what its directory has room for.
    pub(crate) fn most() -> u64 {
        entry::SLOTS_MAX.min(1 << (3 * Self::BITS))
    }

    /// Makes the directory and all clusters of `slots` slots, of frames that `frame` gives: zeroed
    /// ones. `false` when it gives none: [`fell`](Self::fell) what there is.
    pub(crate) fn found(&self, slots: u64, mut frame: impl FnMut() -> Option<FrameRun>) -> bool {
        let clusters = slots.div_ceil(Self::WORDS);
        let Some(root) = frame() else { return false };
        let root = self.meta.adopt(root, Kind::Swap, 0);
        self.swap.root.store(root.get(), Ordering::Relaxed);
        for number in 0..clusters {
            let (upper, lower) = (number >> Self::BITS, number & (Self::WORDS - 1));
            if lower == 0 {
                let Some(run) = frame() else { return false };
                let middle = self.meta.adopt(run, Kind::Swap, 0);
                self.set(root, upper as usize, middle.get());
            }
            let Some(run) = frame() else { return false };
            self.meta.at(run.start()).owner.store(number, Ordering::Relaxed);
            let cluster = self.meta.adopt(run, Kind::Swap, 0);
            let middle = Pfn::new(self.hw.load(root, upper as usize));
            self.set(middle, lower as usize, cluster.get());
        }
        // Beyond the device's end nothing is ever free.
        let beyond = FilePages::new(slots, clusters << Self::BITS);
        self.each(beyond, |lock, first, count| {
            self.hw.fill(lock.words(), first, count, COUNT, 0);
            self.add_used(lock, count as i64);
        });
        let mut lists = self.swap.lists.lock();
        for number in (0..clusters).rev() {
            lists.put(self.meta, self.cluster(number << Self::BITS), Place::Free, 0);
        }
        true
    }

    /// Takes the directory and all clusters apart; each frame goes to `free`.
    pub(crate) fn fell(&self, mut free: impl FnMut(FrameRun)) {
        let root = Pfn::new(self.swap.root.load(Ordering::Relaxed));
        if root.get() == 0 {
            return;
        }
        let named = |frame: Pfn, at: u64| match self.hw.load(frame, at as usize) {
            0 => None,
            pfn => Some(Pfn::new(pfn)),
        };
        let mut end = |frame| {
            if let Some(node) = self.meta.lock(frame).and_then(FrameLock::words) {
                free(self.meta.disown(node));
            }
        };
        for middle in (0..Self::WORDS).map_while(|at| named(root, at)) {
            for cluster in (0..Self::WORDS).map_while(|at| named(middle, at)) {
                end(cluster);
            }
            end(middle);
        }
        end(root);
    }

    fn set(&self, frame: Pfn, at: usize, word: u64) {
        if let Some(lock) = self.meta.lock(frame).and_then(|lock| lock.words()) {
            self.hw.fill(lock.words(), at, 1, word, 0);
        }
    }

    /// The frame of the cluster of `slot`.
    fn cluster(&self, slot: u64) -> Pfn {
        let cluster = slot >> Self::BITS;
        let root = Pfn::new(self.swap.root.load(Ordering::Relaxed));
        let middle = Pfn::new(self.hw.load(root, (cluster >> Self::BITS) as usize));
        Pfn::new(self.hw.load(middle, (cluster & (Self::WORDS - 1)) as usize))
    }

    /// Takes an aligned run of 2^`order` slots, cached and without entries, for the CPU number
    /// `cpu`. `None` when there is no such run.
    pub(crate) fn take(&self, order: Order, cpu: usize) -> Option<u64> {
        let lane = self.swap.lanes[cpu % CLUSTER_LANES].get(order.index())?;
        if order > Self::RUN_MAX || !self.swap.is_open() {
            return None;
        }
        loop {
            let current = lane.load(Ordering::Relaxed);
            if current != NONE
                && let Some(slot) = self.take_from(self.meta.frame(current), order)
            {
                return Some(slot);
            }
            if !self.refill(lane, order) {
                return None;
            }
        }
    }

    /// Sees to it that `lane` names a current cluster; `false` when there is none that may have a
    /// run of `order`.
    ///
    /// All of it under the lock of the lists. Else two CPUs of a lane would each take a cluster,
    /// and the one that is written over would be current, and in no lane, for ever; and who looks
    /// for another lane's cluster would not see the one that is on its way there.
    fn refill(&self, lane: &AtomicU32, order: Order) -> bool {
        let mut lists = self.swap.lists.lock();
        let is_current = |at: u32, lists: &Lists| {
            at != NONE && lists.place(self.meta, self.meta.frame(at)).0 == Place::Current
        };
        if is_current(lane.load(Ordering::Relaxed), &lists) {
            return true;
        }
        let taken = lists.take(self.meta, order.get()).map(|frame| self.meta.index(frame));
        let next = taken.or_else(|| {
            // When there is no other any more, lanes share.
            let mut lanes = self.swap.lanes.iter().flatten().map(|at| at.load(Ordering::Relaxed));
            lanes.find(|&at| is_current(at, &lists))
        });
        lane.store(next.unwrap_or(NONE), Ordering::Relaxed);
        next.is_some()
    }

    /// Takes a run out of the cluster at `frame`, if it is current and has one; the cluster is in
    /// its list afterwards if it has none.
    fn take_from(&self, frame: Pfn, order: Order) -> Option<u64> {
        let lock = self.meta.lock(frame)?.words()?;
        if self.swap.lists.lock().place(self.meta, frame).0 != Place::Current {
            return None;
        }
        if let Some(at) = self.find(&lock, order) {
            let count = order.pages() as usize;
            lock.slot().links[0].store((at + count) as u32, Ordering::Relaxed);
            self.hw.fill(lock.words(), at, count, CACHED, 0);
            self.add_used(&lock, count as i64);
            self.swap.used.fetch_add(count as u64, Ordering::Relaxed);
            return Some((self.number(frame) << Self::BITS) + at as u64);
        }
        let full = self.used(&lock) == Self::WORDS;
        let place = if full { Place::Unlisted } else { Place::Frag };
        self.swap.lists.lock().put(self.meta, frame, place, order.get());
        None
    }

    /// A place of an aligned free run in a current cluster: the next one behind where one was found
    /// last, or else the first.
    fn find(&self, lock: &WordsLock<'_>, order: Order) -> Option<usize> {
        let (frame, count) = (lock.frame(), order.pages() as usize);
        let last = lock.slot().links[0].load(Ordering::Relaxed) as usize;
        let last = last.next_multiple_of(count).min(Self::WORDS as usize);
        let is_free = |&at: &usize| {
            self.hw.load(frame, at) == 0 && self.hw.count_run(frame, at, count, 0, 0) == count
        };
        let mut behind = (last..Self::WORDS as usize).step_by(count);
        behind.find(is_free).or_else(|| (0..last).step_by(count).find(is_free))
    }

    /// The number of the cluster at `frame`.
    fn number(&self, frame: Pfn) -> u64 {
        self.meta.at(frame).owner.load(Ordering::Relaxed)
    }

    pub(super) fn used(&self, lock: &WordsLock<'_>) -> u64 {
        lock.slot().counts.load(Ordering::Relaxed)
    }

    fn add_used(&self, lock: &WordsLock<'_>, more: i64) {
        let counts = &lock.slot().counts;
        let now = counts.load(Ordering::Relaxed).wrapping_add_signed(more);
        debug_assert!(now <= Self::WORDS);
        counts.store(now, Ordering::Relaxed);
    }

    /// Calls `act` with the locked cluster of each part of `slots`, the first word, and how many.
    pub(super) fn each(&self, slots: FilePages, mut act: impl FnMut(&WordsLock<'_>, usize, usize)) {
        let mut at = slots.start;
        while at < slots.end {
            let end = (((at >> Self::BITS) + 1) << Self::BITS).min(slots.end);
            let lock = self.meta.lock(self.cluster(at)).and_then(|lock| lock.words());
            debug_assert!(lock.is_some(), "the clusters of a device in use are its own");
            if let Some(lock) = lock {
                act(&lock, (at & (Self::WORDS - 1)) as usize, (end - at) as usize);
            }
            at = end;
        }
    }

    /// Changes the words of `slots` by runs of equal ones.
    fn change(&self, slots: FilePages, change: impl Fn(u64) -> u64) {
        self.each(slots, |lock, first, count| {
            let (mut at, end, mut freed) = (first, first + count, 0);
            while at < end {
                let was = self.hw.load(lock.frame(), at);
                let run = self.hw.count_run(lock.frame(), at, end - at, was, 0);
                let now = change(was);
                self.hw.fill(lock.words(), at, run, now, 0);
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

    /// Notes that so many slots of a locked cluster have become free.
    fn freed(&self, lock: &WordsLock<'_>, count: usize) {
        self.add_used(lock, -(count as i64));
        self.swap.used.fetch_sub(count as u64, Ordering::Relaxed);
        let mut lists = self.swap.lists.lock();
        let (place, order) = lists.place(self.meta, lock.frame());
        let now = match place {
            Place::Current => return,
            _ if self.used(lock) == 0 => Place::Free,
            Place::Partial => return,
            Place::Unlisted | Place::Frag | Place::Free => Place::Partial,
        };
        lists.put(self.meta, lock.frame(), now, order);
    }

    /// Counts one more entry for each of `slots`, which are in use.
    pub(crate) fn refer(&self, slots: FilePages) {
        self.change(slots, |word| {
            debug_assert!(word != 0 && word & COUNT < COUNT);
            word + 1
        });
    }

    /// Counts one entry less for each of `slots`. Those that are not cached are free when they had
    /// no other.
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

    /// Claims `slots`, of one cluster, for a folio that is to be read: each has entries and is not
    /// cached yet, or none is claimed.
    pub(crate) fn claim(&self, slots: FilePages) -> bool {
        let mut claimed = false;
        self.each(slots, |lock, first, count| {
            let loads = |at| self.hw.load(lock.frame(), at);
            claimed = (first..first + count).all(|at| loads(at) & CACHED == 0 && loads(at) != 0);
            for at in (first..first + count).filter(|_| claimed) {
                self.hw.fill(lock.words(), at, 1, loads(at) | CACHED, 0);
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
        let (mut at, slots) = (slots.start, slots.end.min(self.swap.slots()));
        while at < slots {
            let end = (((at >> Self::BITS) + 1) << Self::BITS).min(slots);
            let (cluster, word) = (self.cluster(at), |slot| (slot & (Self::WORDS - 1)) as usize);
            if let Some(first) = (at..end).find(|&slot| self.hw.load(cluster, word(slot)) == 0) {
                let most = (end - first) as usize;
                let count = self.hw.count_run(cluster, word(first), most, 0, 0);
                // It may have been taken since.
                return Some(FilePages::new(first, first + count.max(1) as u64));
            }
            at = end;
        }
        None
    }

    /// Whether no entry refers to any of `slots`.
    pub(crate) fn is_unreferred(&self, slots: FilePages) -> bool {
        let mut none = true;
        self.each(slots, |lock, first, count| {
            let run = self.hw.count_run(lock.frame(), first, count, CACHED, 0);
            none &= run == count;
        });
        none
    }

    /// How many entries refer to `slot`, and whether it is cached.
    pub(crate) fn counted(&self, slot: u64) -> (u32, bool) {
        let word = self.hw.load(self.cluster(slot), (slot & (Self::WORDS - 1)) as usize);
        ((word & COUNT) as u32, word & CACHED != 0)
    }
}
