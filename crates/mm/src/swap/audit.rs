//! The walkers' audit of the slots. Notes for it fit into the words, since no CPU uses the device
//! meanwhile.

use quire_arch::Arch;
use quire_hw::Hardware;

use super::Slots;
use super::device::InList;
use super::slots::{CACHED, COUNT};
use crate::cache::FilePages;

/// A wrong slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotFault {
    /// Its count differs from the number of entries.
    Count {
        /// How many it counts.
        counted: u64,
        /// How many there are.
        found: u64,
    },
    /// Its cached bit contradicts its file.
    Cached {
        /// Its cached bit.
        says: bool,
    },
    /// An exclusive entry is not alone.
    Exclusive,
    /// The count of used slots is wrong, of the device or of the cluster that begins with this
    /// slot.
    Used {
        /// How many slots it counts.
        counted: u64,
        /// How many there are.
        found: u64,
    },
    /// The cluster that begins with this slot is in a list of clusters with more or fewer slots in
    /// use.
    Listed {
        /// How many of its slots are in use.
        used: u64,
    },
}

/// One entry that was found; bits 32..52 of a word.
const FOUND: u64 = 1 << 32;
const FOUND_ALL: u64 = ((1 << 20) - 1) << 32;
/// One of them is exclusive.
const OWNED: u64 = 1 << 60;
/// The file has it in memory.
const IN_MEMORY: u64 = 1 << 61;

impl<A: Arch, H: Hardware> Slots<'_, A, H> {
    /// Notes an entry that was found for each of `slots`.
    pub(crate) fn tally(&self, slots: FilePages, exclusive: bool) {
        self.note(slots, |word| (word + FOUND) | if exclusive { OWNED } else { 0 });
    }

    /// Notes that the file has `slots` in memory.
    pub(crate) fn tally_cached(&self, slots: FilePages) {
        self.note(slots, |word| word | IN_MEMORY);
    }

    fn note(&self, slots: FilePages, change: impl Fn(u64) -> u64) {
        self.each(slots, |lock, first, count| {
            for at in first..first + count {
                let word = self.tree.hw.load(lock.frame(), at);
                self.tree.write(lock, at, 1, change(word));
            }
        });
    }

    /// Compares the notes with the slots, and takes the notes back. Returns the first wrong slot.
    pub(crate) fn audit(&self) -> Result<(), (u64, SlotFault)> {
        let slots = self.swap.slots();
        let (mut wrong, mut used) = (None, 0);
        self.each(FilePages::new(0, slots), |lock, first, count| {
            let base = self.tree.first(lock);
            let mut here = 0;
            for at in first..first + count {
                let word = self.tree.hw.load(lock.frame(), at);
                wrong = wrong.or(fault(word).map(|fault| (base + at as u64, fault)));
                let plain = word & (CACHED | COUNT);
                here += u64::from(plain != 0);
                self.tree.write(lock, at, 1, plain);
            }
            used += here;
            let counted = self.tree.used(lock) - (Self::WORDS - count as u64);
            if counted != here {
                let fault = SlotFault::Used { counted, found: here };
                wrong = wrong.or(Some((base, fault)));
            }
            let (place, _) = self.swap.lists.lock().place(self.tree.meta, lock.frame());
            if !may_hold(place, here, count as u64) {
                wrong = wrong.or(Some((base, SlotFault::Listed { used: here })));
            }
        });
        let counted = self.swap.used();
        if counted != used {
            wrong = wrong.or(Some((0, SlotFault::Used { counted, found: used })));
        }
        wrong.map_or(Ok(()), Err)
    }
}

/// Whether a cluster with `used` of `all` its slots in use may be at `place`.
const fn may_hold(place: InList, used: u64, all: u64) -> bool {
    match place {
        InList::Free => used == 0,
        InList::Partial => 0 < used && used < all,
        // The device's end may cut the last one, so that it has no large run even when it is empty.
        InList::Frag => used < all,
        InList::Unlisted => used == all,
        InList::Current => true,
    }
}

fn fault(word: u64) -> Option<SlotFault> {
    let (counted, found) = (word & COUNT, (word & FOUND_ALL) / FOUND);
    let says = word & CACHED != 0;
    if counted != found {
        Some(SlotFault::Count { counted, found })
    } else if says != (word & IN_MEMORY != 0) {
        Some(SlotFault::Cached { says })
    } else if word & OWNED != 0 && found > 1 {
        Some(SlotFault::Exclusive)
    } else {
        None
    }
}
