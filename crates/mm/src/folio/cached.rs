//! Folios that hold pages of files.
//!
//! A CPU that looks for a page finds such a folio without a hold on it. So the folio has an
//! *identity* (`owner`: which file's, from which page), and while it has one, a CPU that looks
//! locks its slot, asks, and takes a hold before it unlocks. The index that gave the identity holds
//! a reference; the folio loses its identity under that lock, before the index gives the reference
//! back. As it is never held by a mapping alone while it has one, no table counts it with plain stores.

use core::ops::Range;

use bitflags::bitflags;
use quire_hw::{FrameRun, Hardware, Reuse};
use quire_units::{Order, Pfn, Vpn};

use super::{Folio, Folios};
use crate::phys::{FrameLock, Kind, State};
use crate::sync::Ordering;

bitflags! {
    /// Flags of a folio, most of them of a file's.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Known: u32 {
        /// It has an identity: it is in its file's index.
        const CACHED = 1 << 0;
        /// All its bytes are what the file says. Whether the store has them, too, the index knows.
        const FILLED = 1 << 1;
        /// It is being written to the file's store.
        const WRITING = 1 << 2;
        /// A touch of it starts the readahead of what follows.
        const MARK = 1 << 3;
        /// Its memory failed; its content is lost.
        const POISONED = 1 << 4;
        /// It is on its way to a swap device: its mappings are being replaced by swap entries.
        const LEAVING = 1 << 5;
        /// For how many rounds of aging it was not touched, up to three: the low bit.
        const IDLE_LOW = 1 << 6;
        /// The high bit.
        const IDLE_HIGH = 1 << 7;
        /// Its content may be lost until a program writes it (`MADV_FREE`): its leaves were made
        /// clean, and tell.
        const LAZY = 1 << 8;
        /// Its pages are about to be in another folio, or in several: lookups wait.
        const SECLUDED = 1 << 9;
    }
}

/// Where in [`Known`] the rounds are counted.
const IDLE_AT: u32 = 6;
/// The most rounds that are counted.
const IDLE_MOST: u32 = 3;

/// References that the index has to each of its folios.
const INDEX: u64 = 1;
/// The reference of a read that fills a folio, or a write of it to its store.
const CARRIER: u64 = 1;

impl Known {
    const fn idle(self) -> u32 {
        self.bits() >> IDLE_AT & IDLE_MOST
    }

    /// A round of aging later.
    fn aged(self, touched: bool) -> Self {
        let idle = if touched { 0 } else { (self.idle() + 1).min(IDLE_MOST) };
        Self::from_bits_truncate(self.bits() & !(IDLE_MOST << IDLE_AT) | idle << IDLE_AT)
    }
}

/// A folio with an identity, its slot locked: neither changes while this lives.
pub(crate) struct Cached<'m> {
    folios: Folios<'m>,
    lock: FrameLock<'m>,
    /// Which.
    pub(crate) folio: Folio,
}

impl<'m> Folios<'m> {
    /// Makes `run` one folio of `order` that is to be the pages of `owner`: one reference for the
    /// index it is about to enter, and one for its filler, if it is not filled yet.
    ///
    /// The run stays in the caller's hand: for its filler, to write it until `read_done`, or to be
    /// freed if [no index takes the folio](Self::unadopt). Otherwise the caller drops it.
    pub(crate) fn adopt_cached(
        &self,
        run: &FrameRun,
        order: Order,
        owner: u64,
        known: Known,
    ) -> Folio {
        let folio = Folio { head: run.start(), order };
        debug_assert!(run.count() == order.pages() && folio.head.is_aligned(order.pages()));
        let slot = self.meta.at(folio.head);
        let filler = if known.contains(Known::FILLED) { 0 } else { CARRIER };
        slot.counts.store(INDEX + filler, Ordering::Relaxed);
        slot.owner.store(owner, Ordering::Relaxed);
        self.set_home(folio, Home::UNKNOWN);
        let known = known | Known::CACHED;
        slot.set_state(State::new(Kind::Folio, order.get()).with_flags(known.bits()));
        folio
    }

    /// Gives `folio`, an anonymous one, an identity: it is about to enter the index of `owner`'s
    /// file, which refers to it from now on. `false` when it has one already. The caller refers to
    /// it, too.
    pub(crate) fn identify(&self, folio: Folio, owner: u64) -> bool {
        let Some(_lock) = self.meta.lock(folio.head) else { return false };
        let slot = self.meta.at(folio.head);
        let known = Known::from_bits_truncate(slot.state().flags());
        if known.intersects(Known::CACHED | Known::POISONED) {
            return false;
        }
        slot.counts.fetch_add(INDEX, Ordering::Relaxed);
        slot.owner.store(owner, Ordering::Relaxed);
        let known = Known::CACHED | Known::FILLED | Known::LEAVING;
        slot.set_state(slot.state().with_flags(known.bits()));
        true
    }

    /// The folio at `head`, locked, if it has an identity; and which.
    pub(crate) fn identified(&self, folio: Folio) -> Option<(Cached<'m>, u64)> {
        let owner = self.meta.at(folio.head).owner.load(Ordering::Relaxed);
        self.cached(folio.head, owner).filter(|cached| cached.folio == folio).map(|it| (it, owner))
    }

    /// For how many rounds of aging `folio` was not touched, up to three.
    #[inline]
    pub fn idle(&self, folio: Folio) -> u32 {
        self.known(folio).0.idle()
    }

    /// Whether the content of `folio` may be lost until a program writes it.
    #[inline]
    pub(crate) fn is_lazy(&self, folio: Folio) -> bool {
        self.known(folio).0.contains(Known::LAZY)
    }

    /// Notes whether the content of `folio`, an anonymous one, may be lost until a program writes
    /// it. The caller has the lock of a table that maps it, or refers to it.
    pub(crate) fn set_lazy(&self, folio: Folio, lazy: bool) {
        let Some(_lock) = self.meta.lock(folio.head) else { return };
        let slot = self.meta.at(folio.head);
        let mut known = Known::from_bits_truncate(slot.state().flags());
        if slot.state().kind() == Kind::Folio && !known.contains(Known::CACHED) {
            known.set(Known::LAZY, lazy);
            slot.set_state(slot.state().with_flags(known.bits()));
        }
    }

    /// Notes that memory of `folio`, an anonymous one, has failed. The caller refers to it.
    pub(crate) fn poison(&self, folio: Folio) {
        let Some(_lock) = self.meta.lock(folio.head) else { return };
        let slot = self.meta.at(folio.head);
        let known = Known::from_bits_truncate(slot.state().flags()) | Known::POISONED;
        slot.set_state(slot.state().with_flags(known.bits()));
    }

    /// Notes that memory of `folio`, which no file has, did not fail; whether it was said to have.
    pub(crate) fn mend(&self, folio: Folio) -> bool {
        let Some(_lock) = self.meta.lock(folio.head) else { return false };
        let slot = self.meta.at(folio.head);
        let known = Known::from_bits_truncate(slot.state().flags());
        let failed = known & (Known::POISONED | Known::CACHED) == Known::POISONED;
        if failed {
            slot.set_state(slot.state().with_flags((known - Known::POISONED).bits()));
        }
        failed
    }

    /// Notes a round of aging in which `folio` was touched, or not. The caller has the lock of a
    /// table that maps it: without that, it might be something else by now.
    pub(crate) fn grow_old(&self, folio: Folio, touched: bool) {
        let Some(_lock) = self.meta.lock(folio.head) else { return };
        let slot = self.meta.at(folio.head);
        debug_assert_eq!(slot.state().kind(), Kind::Folio);
        let known = self.known(folio).0.aged(touched);
        slot.set_state(slot.state().with_flags(known.bits()));
    }

    /// Notes where `folio` is mapped: a number for its space, and the page its first page is at. A
    /// hint for a search for its mappings; the tables know.
    #[inline]
    pub(crate) fn set_home(&self, folio: Folio, home: Home) {
        let links = &self.meta.at(folio.head).links;
        let word = home.word();
        links[0].store(word as u32, Ordering::Relaxed);
        links[1].store((word >> 32) as u32, Ordering::Relaxed);
    }

    /// Where `folio` was mapped when that was noted last.
    #[inline]
    pub(crate) fn home(&self, folio: Folio) -> Home {
        let links = &self.meta.at(folio.head).links;
        let (low, high) = (links[0].load(Ordering::Relaxed), links[1].load(Ordering::Relaxed));
        Home::of(u64::from(high) << 32 | u64::from(low))
    }

    /// Takes back what [`adopt_cached`](Self::adopt_cached) made, and no index has taken: its run
    /// is the only right to the frames again.
    pub(crate) fn unadopt(&self, folio: Folio) {
        let slot = self.meta.at(folio.head);
        {
            let _lock = self.meta.lock(folio.head);
            slot.set_state(State::new(Kind::Folio, folio.order.get()));
        }
        slot.counts.store(0, Ordering::Relaxed);
        slot.set_state(State::new(Kind::None, 0));
    }

    /// The folio at `head`, locked, if it is the pages of `owner` and not secluded.
    #[inline]
    pub(crate) fn cached(&self, head: Pfn, owner: u64) -> Option<Cached<'m>> {
        let lock = self.meta.lock(head)?;
        let slot = self.meta.at(head);
        let state = slot.state();
        let known = Known::from_bits_truncate(state.flags());
        let is_it = state.kind() == Kind::Folio
            && known.contains(Known::CACHED)
            && !known.contains(Known::SECLUDED)
            && slot.owner.load(Ordering::Relaxed) == owner;
        let folio = Folio { head, order: Order::new(state.order()) };
        is_it.then_some(Cached { folios: *self, lock, folio })
    }

    /// Lets lookups find `folio` again, which was secluded.
    pub(crate) fn readmit(&self, folio: Folio) {
        let Some(_lock) = self.meta.lock(folio.head) else { return };
        let slot = self.meta.at(folio.head);
        let known = Known::from_bits_truncate(slot.state().flags()) - Known::SECLUDED;
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

    /// Whether its index has the only hold on `folio`.
    pub(crate) fn is_indexed_only(&self, folio: Folio) -> bool {
        self.meta.at(folio.head).counts.load(Ordering::Acquire) == INDEX
    }

    /// Whether `folio` is a file's, and secluded.
    pub(crate) fn is_secluded(&self, folio: Folio) -> bool {
        self.known(folio).0.contains(Known::CACHED | Known::SECLUDED)
    }

    /// The flags of a folio, and whose it is or was last. Out of date at once unless the caller
    /// keeps others out.
    pub fn known(&self, folio: Folio) -> (Known, u64) {
        let slot = self.meta.at(folio.head);
        let known = Known::from_bits_truncate(slot.state().flags());
        (known, slot.owner.load(Ordering::Relaxed))
    }
}

/// Where a folio is mapped, or was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Home {
    /// The low bits of a number of the space: that of its root's frame.
    pub(crate) space: u32,
    /// The page that its first page is at.
    pub(crate) page: Vpn,
}

const HOME_PAGE_BITS: u32 = 44;

impl Home {
    /// It is not known.
    pub(crate) const UNKNOWN: Self = Self { space: 0, page: Vpn::new((1 << HOME_PAGE_BITS) - 1) };

    /// `page` of the space with the root number `root`.
    #[inline]
    pub(crate) const fn new(root: u32, page: Vpn) -> Self {
        Self { space: root & ((1 << (64 - HOME_PAGE_BITS)) - 1), page }
    }

    const fn word(self) -> u64 {
        (self.space as u64) << HOME_PAGE_BITS | self.page.get() & ((1 << HOME_PAGE_BITS) - 1)
    }

    const fn of(word: u64) -> Self {
        let page = Vpn::new(word & ((1 << HOME_PAGE_BITS) - 1));
        Self { space: (word >> HOME_PAGE_BITS) as u32, page }
    }
}

impl Cached<'_> {
    /// Its flags.
    #[inline]
    pub(crate) fn known(&self) -> Known {
        self.folios.known(self.folio).0
    }

    /// Learns something new of it.
    #[inline]
    pub(crate) fn learn(&self, known: Known) {
        let slot = self.folios.meta.at(self.lock.frame());
        slot.set_state(slot.state().with_flags(known.bits()));
    }

    /// Notes a round of aging without a known touch.
    pub(crate) fn grow_old(&self) {
        self.learn(self.known().aged(false));
    }

    /// Zeroes `pages` of it, counted from its first.
    pub(crate) fn zero<H: Hardware>(&self, hw: &H, pages: Range<u64>) {
        hw.clear(&self.lock.lend(), pages, Reuse::Later);
    }

    /// Takes a reference; `false` when there are too many.
    #[inline]
    pub(crate) fn hold(&self) -> bool {
        self.folios.hold(self.folio)
    }

    /// Counts `pages` more mapped pages; `false` when there are too many.
    #[inline]
    pub(crate) fn map(&self, pages: u32) -> bool {
        self.folios.share(self.folio, pages, false)
    }

    /// Whether the index has the only hold on it.
    pub(crate) fn is_idle(&self) -> bool {
        self.folios.is_indexed_only(self.folio)
    }

    /// Takes its identity away, while it is still in its index: a CPU that finds it there from now
    /// on waits until the caller has taken it out, and [given back](Folios::put) the index's
    /// reference.
    pub(crate) fn disclaim(self) {
        self.learn(self.known() & Known::POISONED);
    }

    /// Takes its identity away. No CPU finds it any more; the frames, if there is no hold on it
    /// either. It is out of its index already.
    #[must_use = "the last hold returns the frames"]
    pub(crate) fn forget(self) -> Option<FrameRun> {
        self.learn(self.known() & Known::POISONED);
        let (folios, folio) = (self.folios, self.folio);
        drop(self.lock);
        folios.put(folio)
    }
}
