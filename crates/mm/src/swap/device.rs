//! One swap device: its clusters, and the source of the next slots.
//!
//! A *cluster* has as many slots as a page table has entries: the largest folio that an entry maps
//! fits into one. It has the order for which it was taken last, so that aligned runs of one size
//! lie together, and freeing one makes room for another. An order takes slots of larger orders'
//! clusters only when it has no room of its own and no cluster is empty.
//!
//! ```text
//!   free ──► current of a lane ──► no run of its order: frag[order], or unlisted if full
//!    ▲             │                       │ a slot is freed
//!    └── empty ────┴───────────────────────┴──► partial[order] ──► current of a lane
//! ```

use quire_units::Pfn;

use crate::cache::FileId;
use crate::phys::{Kind, List, Meta, State};
use crate::sync::{AtomicU32, AtomicU64, Lock, Ordering};

/// Several CPUs take slots side by side, each from the clusters of its lane.
#[cfg(not(loom))]
pub const CLUSTER_LANES: usize = 8;
/// Several CPUs take slots side by side, each from the clusters of its lane.
#[cfg(loom)]
pub const CLUSTER_LANES: usize = 2;

/// The largest order of a run of slots, and one more: a cluster with 64 KiB pages has 2^13.
#[cfg(not(loom))]
pub(super) const RUN_ORDERS: usize = 14;
/// Few enough for a model.
#[cfg(loom)]
pub(super) const RUN_ORDERS: usize = 2;

/// In which list a cluster is: the flags of its frame's slot. Only changed with the lists locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(super) enum InList {
    /// In none: it has no run of its order left.
    Unlisted = 0,
    /// Empty.
    Free = 1,
    /// It has, or may have, a run of its order.
    Partial = 2,
    /// It has free slots, but no run of its order or of a larger one.
    Frag = 3,
    /// A lane takes runs from it.
    Current = 4,
}

/// The folios that a device takes slots for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Admits {
    /// Those that leave memory, and those that move where no device for moves has slots.
    All = 0,
    /// None any more.
    Nothing = 1,
    /// Those that move to other frames: they are never written there.
    Moves = 2,
}

/// The lists of clusters.
#[derive(Default)]
pub(super) struct Lists {
    free: List,
    frag: [List; RUN_ORDERS],
    partial: [List; RUN_ORDERS],
}

impl Lists {
    const EMPTY: Lists = Lists {
        free: List::EMPTY,
        frag: [List::EMPTY; RUN_ORDERS],
        partial: [List::EMPTY; RUN_ORDERS],
    };

    fn of(&mut self, place: InList, order: u8) -> Option<&mut List> {
        match place {
            InList::Free => Some(&mut self.free),
            InList::Frag => self.frag.get_mut(order as usize),
            InList::Partial => self.partial.get_mut(order as usize),
            InList::Unlisted | InList::Current => None,
        }
    }

    /// The place and the order of the cluster at `frame`.
    pub(super) fn place(&self, meta: Meta<'_>, frame: Pfn) -> (InList, u8) {
        use InList::{Current, Frag, Free, Partial, Unlisted};
        let state = meta.at(frame).state();
        let place = [Unlisted, Free, Partial, Frag, Current].get(state.flags() as usize).copied();
        (place.unwrap_or(Unlisted), state.order())
    }

    /// Moves the cluster at `frame` to `place`, and gives it `order`.
    pub(super) fn put(&mut self, meta: Meta<'_>, frame: Pfn, place: InList, order: u8) {
        let (slot, index) = (meta.at(frame), meta.index(frame));
        let (old, old_order) = self.place(meta, frame);
        if let Some(list) = self.of(old, old_order) {
            list.remove(&meta, index);
        }
        slot.set_state(State::new(Kind::Swap, order).with_flags(place as u32));
        match self.of(place, order) {
            Some(list) => list.push(&meta, index),
            // Of a current cluster: where to look for the next run.
            None => slot.links[0].store(0, Ordering::Relaxed),
        }
    }

    /// The next cluster to take runs of `order` from, which is `Current` from now on.
    pub(super) fn take(&mut self, meta: Meta<'_>, order: u8) -> Option<Pfn> {
        let own = order as usize;
        // First clusters without a run for larger orders, and then clusters that have one.
        let left = self.frag[own + 1..].iter().chain(self.partial[own + 1..].iter().rev());
        let found = [&self.partial[own], &self.free].into_iter().chain(left);
        let frame = meta.frame(found.copied().find_map(List::first)?);
        self.put(meta, frame, InList::Current, order);
        Some(frame)
    }
}

impl Admits {
    const fn of(word: u32) -> Self {
        match word {
            0 => Self::All,
            2 => Self::Moves,
            _ => Self::Nothing,
        }
    }
}

/// Where the CPUs of a lane take runs of one order from: the index of a cluster's frame, and one
/// more; 0 of none.
#[derive(Default)]
pub(super) struct Lane(AtomicU32);

impl Lane {
    pub(super) fn current(&self) -> Option<u32> {
        self.0.load(Ordering::Relaxed).checked_sub(1)
    }

    pub(super) fn set(&self, cluster: Option<u32>) {
        self.0.store(cluster.map_or(0, |index| index + 1), Ordering::Relaxed);
    }
}

/// A swap device. The embedder lends an array of them; [`Paging::swap_on`](crate::Paging::swap_on)
/// takes one into use.
#[derive(Default)]
pub struct Swap {
    /// The file whose pages are the slots, and one more; 0 while the device is not in use.
    file: AtomicU32,
    /// The root of the tree of clusters.
    pub(super) root: AtomicU64,
    /// How many slots there are.
    slots: AtomicU64,
    /// How many are not free.
    pub(super) used: AtomicU64,
    /// The folios that slots are taken for, as [`Admits`].
    admits: AtomicU32,
    pub(super) lanes: [[Lane; RUN_ORDERS]; CLUSTER_LANES],
    pub(super) lists: Lock<Lists>,
}

crate::sync::names!([] Swap, "swap" { file, root, slots, used, admits, lanes, lists });

impl Swap {
    /// A device that is not in use.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            file: AtomicU32::new(0),
            root: AtomicU64::new(0),
            slots: AtomicU64::new(0),
            used: AtomicU64::new(0),
            admits: AtomicU32::new(0),
            lanes: [const { [const { Lane(AtomicU32::new(0)) }; RUN_ORDERS] }; CLUSTER_LANES],
            lists: Lock::new(Lists::EMPTY),
        }
    }

    /// Makes it one that is not in use, part by part: the whole is large for a stack.
    pub(crate) fn reset(&mut self) {
        self.file = AtomicU32::new(0);
        self.root = AtomicU64::new(0);
        self.slots = AtomicU64::new(0);
        self.used = AtomicU64::new(0);
        self.admits = AtomicU32::new(0);
        self.lanes.iter_mut().flatten().for_each(|lane| *lane = Lane(AtomicU32::new(0)));
        self.lists = Lock::new(Lists::EMPTY);
    }

    /// The file whose pages are the slots, if the device is in use.
    #[inline]
    pub fn file(&self) -> Option<FileId> {
        self.file.load(Ordering::Acquire).checked_sub(1).map(FileId)
    }

    /// How many slots it has.
    pub fn slots(&self) -> u64 {
        self.slots.load(Ordering::Relaxed)
    }

    /// How many of them are not free.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The folios that it takes slots for; none while it is not in use.
    pub(crate) fn admits(&self) -> Admits {
        match self.file() {
            Some(_) => Admits::of(self.admits.load(Ordering::Relaxed)),
            None => Admits::Nothing,
        }
    }

    /// Changes the folios that it takes slots for. Returns those before.
    pub(crate) fn set_admits(&self, admits: Admits) -> Admits {
        Admits::of(self.admits.swap(admits as u32, Ordering::SeqCst))
    }

    /// Takes it into use once its clusters are there, free and listed.
    pub(crate) fn open(&self, file: FileId, slots: u64, admits: Admits) {
        self.slots.store(slots, Ordering::Relaxed);
        self.used.store(0, Ordering::Relaxed);
        self.admits.store(admits as u32, Ordering::Relaxed);
        self.file.store(file.0 + 1, Ordering::Release);
    }

    /// Frees it.
    pub(crate) fn close(&self) {
        self.file.store(0, Ordering::Release);
        *self.lists.lock() = Lists::EMPTY;
        self.lanes.iter().flatten().for_each(|lane| lane.set(None));
        self.root.store(0, Ordering::Relaxed);
        self.slots.store(0, Ordering::Relaxed);
    }
}
