//! Folios that hold pages of files.
//!
//! A caller that looks for a page of a file finds such a folio without a hold on it. So the folio
//! has an *identity* (`owner`: which file's, from which page): the caller locks its slot, reads the
//! identity, and takes a hold before it unlocks the slot. The index has a reference, and the folio
//! loses its identity under that lock before. So it is never held by a mapping alone, and no table
//! counts it with plain stores.

use core::ops::Range;

use quire_hw::{FrameRun, Hardware, Reuse};
use quire_units::{Order, Pfn};

use super::{Folio, FolioFlags, Folios, Home};
use crate::phys::{FrameLock, Kind, State};
use crate::sync::Ordering;

/// The references that the index has to each of its folios.
const INDEX: u64 = 1;
/// The reference of a caller that keeps a folio from going away.
const CALLER: u64 = 1;
/// The reference of the caller that fills a folio, or writes it to its store.
const CARRIER: u64 = 1;

/// A folio with an identity, its slot locked: neither changes while this lives.
pub(crate) struct Cached<'m> {
    folios: Folios<'m>,
    lock: FrameLock<'m>,
    /// The folio.
    pub(crate) folio: Folio,
}

impl<'m> Folios<'m> {
    /// Makes `run` one folio of `order` that is to be the pages of `owner`: one reference for the
    /// index it is about to enter, and one for its filler, if it is not filled yet. The run stays
    /// in the caller's hand, to be written until `read_done`, or freed if [no index takes the
    /// folio](Self::unadopt). Otherwise the caller drops it.
    pub(crate) fn adopt_cached(
        &self,
        run: &FrameRun,
        order: Order,
        owner: u64,
        known: FolioFlags,
    ) -> Folio {
        let folio = Folio { head: run.start(), order };
        debug_assert!(run.count() == order.pages() && folio.head.is_aligned(order.pages()));
        let slot = self.meta.at(folio.head);
        let filler = if known.contains(FolioFlags::UPTODATE) { 0 } else { CARRIER };
        slot.counts.store(INDEX + filler, Ordering::Relaxed);
        slot.owner.store(owner, Ordering::Relaxed);
        self.set_home(folio, Home::UNKNOWN);
        let known = known | FolioFlags::CACHED;
        slot.set_state(State::new(Kind::Folio, order.get()).with_flags(known.bits()));
        folio
    }

    /// Gives `folio`, an anonymous one, an identity: it is about to enter the index of `owner`'s
    /// file, which holds a reference from now on. `false` when it has an identity already. The
    /// caller holds a reference, too.
    pub(crate) fn identify(&self, folio: Folio, owner: u64) -> bool {
        self.revise(folio, |known| {
            if !known.intersects(FolioFlags::CACHED | FolioFlags::POISONED) {
                let slot = self.meta.at(folio.head);
                slot.counts.fetch_add(INDEX, Ordering::Relaxed);
                slot.owner.store(owner, Ordering::Relaxed);
                let new = FolioFlags::CACHED | FolioFlags::UPTODATE | FolioFlags::LEAVING;
                *known = new | (*known & FolioFlags::PUBLISHED);
            }
        })
    }

    /// Makes the pages that `folio` holds, those of `from`, the pages of `to`, another file, which
    /// takes over the reference of the first one's index. `judge` gets the facts recorded about it,
    /// and whether that reference is the only hold on it, and returns the facts from now on, or
    /// `None`: then nothing has changed. All of it is one step, with the slot locked.
    pub(crate) fn reidentify(
        &self,
        folio: Folio,
        (from, to): (u64, u64),
        judge: impl FnOnce(FolioFlags, bool) -> Option<FolioFlags>,
    ) -> bool {
        let Some(_lock) = self.meta.lock(folio.head) else { return false };
        let slot = self.meta.at(folio.head);
        let (state, known) = (slot.state(), FolioFlags::of(slot.state()));
        let is_it = state.kind() == Kind::Folio
            && state.order() == folio.order.get()
            && known.contains(FolioFlags::CACHED)
            && slot.owner.load(Ordering::Relaxed) == from;
        if !is_it {
            return false;
        }
        let Some(now) = judge(known, self.is_indexed_only(folio)) else { return false };
        slot.owner.store(to, Ordering::Relaxed);
        slot.set_state(state.with_flags(now.bits()));
        true
    }

    /// Lets `change` alter the facts recorded about `folio`, with its slot locked. Returns whether
    /// it did.
    fn revise(&self, folio: Folio, change: impl FnOnce(&mut FolioFlags)) -> bool {
        let Some(_lock) = self.meta.lock(folio.head) else { return false };
        let slot = self.meta.at(folio.head);
        let before = FolioFlags::of(slot.state());
        let mut known = before;
        change(&mut known);
        if known != before {
            slot.set_state(slot.state().with_flags(known.bits()));
        }
        known != before
    }

    /// The folio at `head`, locked, and its owner, if it has an identity.
    pub(crate) fn identified(&self, folio: Folio) -> Option<(Cached<'m>, u64)> {
        let owner = self.meta.at(folio.head).owner.load(Ordering::Relaxed);
        self.cached(folio.head, owner).filter(|cached| cached.folio == folio).map(|it| (it, owner))
    }

    /// Makes all bytes of `folio` visible to instruction fetches, unless they are. The caller has
    /// the lock of a table that maps it.
    ///
    /// Its slot is locked from the look at its bytes to the flag. A CPU that changes them locks it
    /// afterwards: it finds the flag and publishes them [again](Self::publish_again), or this
    /// publishes what that CPU wrote.
    #[inline]
    pub(crate) fn publish<H: Hardware>(&self, hw: &H, folio: Folio) {
        if !self.known(folio).0.contains(FolioFlags::PUBLISHED) {
            self.revise(folio, |known| {
                hw.publish_code(folio.span());
                known.insert(FolioFlags::PUBLISHED);
            });
        }
    }

    /// The bytes of `folio` were changed by the library, the embedder or a device: instruction
    /// fetches that saw the old ones see the new ones. The caller holds a reference or a pin.
    pub(crate) fn publish_again<H: Hardware>(&self, hw: &H, folio: Folio) {
        let Some(_lock) = self.meta.lock(folio.head) else { return };
        if self.known(folio).0.contains(FolioFlags::PUBLISHED) {
            hw.publish_code(folio.span());
        }
    }

    /// For how many rounds of aging `folio` was not touched, up to three.
    #[inline]
    pub fn idle(&self, folio: Folio) -> u32 {
        self.known(folio).0.idle()
    }

    /// Whether the content of `folio` may be dropped as long as no CPU writes it.
    #[inline]
    pub(crate) fn is_lazy(&self, folio: Folio) -> bool {
        self.known(folio).0.contains(FolioFlags::LAZY)
    }

    /// Records whether the content of `folio`, an anonymous one, may be dropped as long as no CPU
    /// writes it. The caller has the lock of a table that maps it, or a reference.
    pub(crate) fn set_lazy(&self, folio: Folio, lazy: bool) {
        self.revise(folio, |known| {
            let is_folio = self.meta.at(folio.head).state().kind() == Kind::Folio;
            if is_folio && !known.contains(FolioFlags::CACHED) {
                known.set(FolioFlags::LAZY, lazy);
            }
        });
    }

    /// Records that memory of `folio`, an anonymous one, has failed. The caller holds a reference.
    pub(crate) fn poison(&self, folio: Folio) {
        self.revise(folio, |known| known.insert(FolioFlags::POISONED));
    }

    /// Records that memory of `folio`, which no file has, did not fail. Returns whether a failure
    /// was recorded.
    pub(crate) fn mend(&self, folio: Folio) -> bool {
        self.revise(folio, |known| {
            if !known.contains(FolioFlags::CACHED) {
                known.remove(FolioFlags::POISONED);
            }
        })
    }

    /// Records a round of aging in which `folio` was touched, or not. The caller has the lock of a
    /// table that maps it; without the lock, the frames could hold another object by now.
    pub(crate) fn grow_old(&self, folio: Folio, touched: bool) {
        self.revise(folio, |known| {
            debug_assert_eq!(self.meta.at(folio.head).state().kind(), Kind::Folio);
            *known = known.aged(touched);
        });
    }

    /// Takes back what [`adopt_cached`](Self::adopt_cached) made, and no index has taken: its run
    /// is the only right to the frames again.
    pub(crate) fn unadopt(&self, folio: Folio) {
        let _lock = self.meta.lock(folio.head);
        self.meta.at(folio.head).set_state(State::NONE);
    }

    /// The folio at `head`, locked, if it holds the pages of `owner` and is not secluded.
    #[inline]
    pub(crate) fn cached(&self, head: Pfn, owner: u64) -> Option<Cached<'m>> {
        let lock = self.meta.lock(head)?;
        let slot = self.meta.at(head);
        let state = slot.state();
        let known = FolioFlags::of(state);
        let is_it = state.kind() == Kind::Folio
            && known.contains(FolioFlags::CACHED)
            && !known.contains(FolioFlags::SECLUDED)
            && slot.owner.load(Ordering::Relaxed) == owner;
        let folio = Folio { head, order: Order::new(state.order()) };
        is_it.then_some(Cached { folios: *self, lock, folio })
    }

    /// Secludes `folio`, which is leaving, if no page of it is mapped, and there is no reference
    /// but the caller's and its index's. Returns whether it did.
    pub(crate) fn seclude_leaving(&self, folio: Folio) -> bool {
        let holds = INDEX + CALLER;
        self.revise(folio, |known| {
            let is_leaving = known.contains(FolioFlags::LEAVING | FolioFlags::UPTODATE);
            let busy = FolioFlags::WRITING | FolioFlags::POISONED | FolioFlags::SECLUDED;
            let alone = self.meta.at(folio.head).counts.load(Ordering::Acquire) == holds;
            if is_leaving && !known.intersects(busy) && alone {
                known.insert(FolioFlags::SECLUDED);
            }
        })
    }

    /// Lets lookups find `folio` again, which was secluded.
    pub(crate) fn readmit(&self, folio: Folio) {
        let Some(_lock) = self.meta.lock(folio.head) else { return };
        let slot = self.meta.at(folio.head);
        let known = FolioFlags::of(slot.state()) - FolioFlags::SECLUDED;
        slot.set_state(State::new(Kind::Folio, folio.order.get()).with_flags(known.bits()));
    }

    /// The right to the frames of `folio`, which is secluded and about to be divided, if nothing
    /// but its index has a hold on it. Its slot stays as it is, so that nothing else takes it for
    /// free: [`readopt`](Self::readopt) makes it a folio again, [`unadopt`](Self::unadopt) ends it.
    pub(crate) fn dissolve(&self, folio: Folio) -> Option<FrameRun> {
        if !self.is_secluded(folio) {
            return None;
        }
        self.meta.take_only_holds(folio.head, INDEX).map(|gone| self.meta.mint(gone))
    }

    /// Makes `run`, the first frames of a folio that was [dissolved](Self::dissolve), its first
    /// part, which its index refers to, and lets it be found again.
    pub(crate) fn readopt(&self, run: FrameRun, part: Folio) {
        debug_assert_eq!(run.span(), part.span());
        let slot = self.meta.at(part.head);
        slot.counts.store(INDEX, Ordering::Relaxed);
        self.readmit(part);
    }

    /// Whether the index has the only hold on `folio`.
    pub(crate) fn is_indexed_only(&self, folio: Folio) -> bool {
        self.meta.at(folio.head).counts.load(Ordering::Acquire) == INDEX
    }

    /// Whether `folio` belongs to a file and is secluded.
    pub(crate) fn is_secluded(&self, folio: Folio) -> bool {
        self.known(folio).0.contains(FolioFlags::CACHED | FolioFlags::SECLUDED)
    }

    /// The flags of a folio, and whose it is or was last. Out of date at once unless the caller
    /// keeps others out.
    pub fn known(&self, folio: Folio) -> (FolioFlags, u64) {
        let slot = self.meta.at(folio.head);
        (FolioFlags::of(slot.state()), slot.owner.load(Ordering::Relaxed))
    }
}

impl Cached<'_> {
    /// The facts recorded about it.
    #[inline]
    pub(crate) fn known(&self) -> FolioFlags {
        self.folios.known(self.folio).0
    }

    /// Replaces the facts recorded about it.
    #[inline]
    pub(crate) fn learn(&self, known: FolioFlags) {
        let slot = self.folios.meta.at(self.lock.frame());
        slot.set_state(slot.state().with_flags(known.bits()));
    }

    /// Records a round of aging in which no touch of it was seen.
    pub(crate) fn grow_old(&self) {
        self.learn(self.known().aged(false));
    }

    /// Zeroes `pages` of it, counted from its first.
    pub(crate) fn zero<H: Hardware>(&self, hw: &H, pages: Range<u64>) {
        hw.clear(&self.lock.lend(), pages, Reuse::Later);
        if self.known().contains(FolioFlags::PUBLISHED) {
            hw.publish_code(self.folio.span());
        }
    }

    /// Makes all its bytes visible to instruction fetches, unless they are.
    pub(crate) fn publish<H: Hardware>(&self, hw: &H) {
        let known = self.known();
        if !known.contains(FolioFlags::PUBLISHED) {
            hw.publish_code(self.folio.span());
            self.learn(known | FolioFlags::PUBLISHED);
        }
    }

    /// Takes a reference; `false` when there are too many.
    #[inline]
    pub(crate) fn hold(&self) -> bool {
        self.folios.hold(self.folio)
    }

    /// Counts `pages` more mapped pages; `false` when the count is at its limit.
    #[inline]
    pub(crate) fn map(&self, pages: u32) -> bool {
        self.folios.share(self.folio, pages, false)
    }

    /// Whether the index has the only hold on it.
    pub(crate) fn is_idle(&self) -> bool {
        self.folios.is_indexed_only(self.folio)
    }

    /// Takes its identity away while it is still in its index: a caller that finds it there waits
    /// until this caller has taken it out and [given back](Folios::put) the index's reference.
    pub(crate) fn disclaim(self) {
        self.learn(self.known() & (FolioFlags::POISONED | FolioFlags::PUBLISHED));
    }

    /// Takes its identity away, so that no caller finds it any more. It is out of its index
    /// already. Returns the frames, if there is no other hold on it.
    #[must_use = "the last hold returns the frames"]
    pub(crate) fn forget(self) -> Option<FrameRun> {
        let (folios, folio) = (self.folios, self.folio);
        self.disclaim();
        folios.put(folio)
    }
}
