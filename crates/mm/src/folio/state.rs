//! A folio's state: its holds, and when its frames become free.

use quire_hw::FrameRun;
use quire_units::{CPUS_MAX, FrameSpan, Order, Pfn, Vpn};

use super::{FolioFlags, Home};
use crate::limits::ORDER_MAX;
use crate::phys::{Kind, Meta, Ownerless, Slot, State};
use crate::sync::Ordering;

/// The name of a folio: its first frame and its order. A name gives no right to the frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Folio {
    /// The first frame, aligned to the folio's size.
    pub head: Pfn,
    /// The base-two logarithm of its size in base pages.
    pub order: Order,
}

impl Folio {
    /// All its frames.
    #[inline]
    pub const fn span(self) -> FrameSpan {
        FrameSpan::new(self.head, self.order.pages())
    }

    /// The part of `frames` that lies in this folio; `frames` begins in it.
    #[inline]
    pub(crate) fn part_of(self, frames: FrameSpan) -> FrameSpan {
        let within = self.span().end().offset_from(frames.start);
        FrameSpan::new(frames.start, frames.count.min(within))
    }
}

/// The holds on a folio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts {
    /// References: short holds that are not page-table entries.
    pub refs: u16,
    /// Pins: holders that read or write its bytes without the tables, such as a device that was
    /// told its frames.
    pub pins: u16,
    /// How many pages of it are mapped, over all page tables; a page mapped twice counts twice.
    pub mapped: u32,
}

impl Counts {
    const fn from_word(word: u64) -> Self {
        Self {
            refs: word as u16,
            pins: (word >> PINS_AT) as u16,
            mapped: (word >> MAPPED_AT) as u32,
        }
    }
}

const PINS_AT: u32 = 16;
const MAPPED_AT: u32 = 32;
const ONE_MAPPED: u64 = 1 << MAPPED_AT;
const ONE_PIN: u64 = 1 << PINS_AT;

/// How many folios are read ahead: enough to wait for many slots at once, and few enough that all
/// of them are still in the nearest cache when they are written.
const AHEAD: u64 = 64;

/// With this many mapped pages a folio gets no more of them by a fork. It is half of the count's
/// range, so that forks on all CPUs at once, each adding one folio's pages, do not reach its end.
const MAPPED_MAX: u32 = 1 << 31;

const _: () = assert!((CPUS_MAX as u64) << ORDER_MAX.get() < MAPPED_MAX as u64);

/// The folios of a system: operations on the slots of their first frames.
#[derive(Clone, Copy)]
pub struct Folios<'m> {
    pub(super) meta: Meta<'m>,
}

impl<'m> Folios<'m> {
    /// The folios recorded in `meta`.
    pub fn new(meta: Meta<'m>) -> Self {
        Self { meta }
    }

    /// Makes `run` into folios of order `each`, every page of them mapped once. The caller maps
    /// them under the table's lock, the first page at `home`; no other caller knows them before.
    ///
    /// # Panics
    /// In debug builds when the run is not a whole number of naturally aligned folios.
    #[inline(always)]
    pub(crate) fn adopt_mapped(&self, run: FrameRun, each: Order, home: Home) {
        let span = run.span();
        debug_assert!(
            span.start.is_aligned(each.pages()) && span.count.is_multiple_of(each.pages())
        );
        if span.count == each.pages() {
            let folio = Folio { head: span.start, order: each };
            return self.part(folio, each.pages() as u32, home, FolioFlags::empty());
        }
        self.adopt_several(span, each, home);
    }

    /// The same for more than one folio.
    #[inline(never)]
    fn adopt_several(&self, span: FrameSpan, each: Order, home: Home) {
        let mut head = span.start;
        while head < span.end() {
            let page = home.page.add(head.offset_from(span.start));
            let folio = Folio { head, order: each };
            self.part(folio, each.pages() as u32, Home { page, ..home }, FolioFlags::empty());
            head = head.add(each.pages());
        }
    }

    /// Makes `folio`, a part of a larger folio that has no hold but mappings, a folio of its own,
    /// of which `mapped` pages are mapped, and about which `known` is known. The caller holds the
    /// lock of the one table that maps it.
    #[inline]
    pub(crate) fn part(&self, folio: Folio, mapped: u32, home: Home, known: FolioFlags) {
        let slot = self.meta.at(folio.head);
        self.set_home(folio, home);
        slot.counts.store(u64::from(mapped) << MAPPED_AT, Ordering::Relaxed);
        slot.set_state(State::new(Kind::Folio, folio.order.get()).with_flags(known.bits()));
    }

    /// Ends `folio`, a part of a larger one that is only mapped, of which no page is.
    pub(crate) fn abandon(&self, folio: Folio) -> Ownerless {
        self.meta.end_part(folio.span())
    }

    /// The folio that holds `frame`. The caller must keep it alive: it holds a reference, or the
    /// lock of a table that maps it.
    #[inline]
    pub fn of(&self, frame: Pfn) -> Option<Folio> {
        // Most callers name a first frame.
        let state = self.meta.slot(frame)?.state();
        if state.kind() == Kind::Folio {
            return Some(Folio { head: frame, order: Order::new(state.order()) });
        }
        self.around(frame)
    }

    #[inline(never)]
    fn around(&self, frame: Pfn) -> Option<Folio> {
        let (head, state) = self.meta.head(frame)?;
        (state.kind() == Kind::Folio).then(|| Folio { head, order: Order::new(state.order()) })
    }

    /// Calls `act` with the folios that hold `frames`, one after the other, each with its part of
    /// them. Ends at a frame that belongs to no folio, or where `act` returns `false`. Returns how
    /// many frames were done. The caller must keep the folios alive, as for [`of`](Self::of).
    #[inline(always)]
    pub(crate) fn each(&self, frames: FrameSpan, act: impl FnMut(Folio, FrameSpan) -> bool) -> u64 {
        self.each_beside(frames, |_, _| 0, act)
    }

    /// Calls `act` with the folios among `frames`, each with its part of them; frames of none are
    /// passed. Ends where `act` returns `false`. Returns how many frames were done.
    pub(crate) fn each_lent(
        &self,
        frames: FrameSpan,
        mut act: impl FnMut(Folio, FrameSpan) -> bool,
    ) -> u64 {
        // Most such frames are a device's, and have no slot.
        let known = self.meta.span();
        let mut at = frames.start.max(known.start);
        let end = frames.end().min(known.end());
        while at < end {
            let Some(folio) = self.of(at) else {
                at = at.add(1);
                continue;
            };
            let piece = folio.part_of(FrameSpan::new(at, end.offset_from(at)));
            if !act(folio, piece) {
                return at.offset_from(frames.start);
            }
            at = piece.end();
        }
        frames.count
    }

    /// Makes `run`, one naturally aligned block, a folio that the caller holds and no space maps.
    pub(crate) fn adopt_lent(&self, run: FrameRun, order: Order) -> Folio {
        let folio = Folio { head: run.start(), order };
        let slot = self.meta.at(folio.head);
        slot.counts.store(1, Ordering::Relaxed);
        slot.set_state(State::new(Kind::Folio, order.get()));
        folio
    }

    /// Ends a folio if the caller's reference is the only hold on it.
    pub(crate) fn take_back(&self, folio: Folio) -> Option<FrameRun> {
        self.meta.drop_only_holds(folio.head, 1).map(|gone| self.meta.mint(gone))
    }

    /// The same, but where `at_once` returns how many frames, from the given folio on, are done
    /// already, they are passed.
    #[inline(always)]
    fn each_beside(
        &self,
        frames: FrameSpan,
        mut at_once: impl FnMut(Folio, FrameSpan) -> u64,
        mut act: impl FnMut(Folio, FrameSpan) -> bool,
    ) -> u64 {
        let mut left = frames;
        'all: while left.count > 0
            && let Some(first) = self.of(left.start)
        {
            let done = at_once(first, left);
            if done > 0 {
                left = FrameSpan::new(left.start.add(done), left.count - done);
                continue;
            }
            let pages = left.end().offset_from(first.head) + first.order.pages() - 1;
            let most = (pages >> first.order.get()).min(AHEAD);
            let mut head = first.head;
            for _ in 0..self.alike(first, most, |_| true) {
                let folio = Folio { head, ..first };
                let piece = folio.part_of(left);
                if !act(folio, piece) {
                    break 'all;
                }
                left = FrameSpan::new(piece.end(), left.count - piece.count);
                head = left.start;
            }
        }
        frames.count - left.count
    }

    /// How many folios of the size of `folio`, itself included, lie side by side and all satisfy
    /// `such`; at most `most`. A loop that does nothing else counts them: their slots come from
    /// memory, and the CPU waits for many of them at once.
    #[inline(always)]
    fn alike(&self, folio: Folio, most: u64, such: impl Fn(&Slot) -> bool) -> usize {
        let state = State::new(Kind::Folio, folio.order.get());
        let slots = self.meta.slots_from(folio.head);
        // One bound for both ends: the loop asks once.
        let end = slots.len().min((most << folio.order.get()) as usize);
        let (slots, mut at) = (&slots[..end], 0);
        while let Some(slot) = slots.get(at)
            && slot.state().with_flags(0) == state
            && such(slot)
        {
            at += folio.order.pages() as usize;
        }
        at >> folio.order.get()
    }

    /// Does [`share`](Self::share) for all folios that hold `frames`, up to the first that cannot
    /// be shared. Returns how many frames were shared, and the order of the largest folio.
    #[inline]
    pub(crate) fn share_all(&self, frames: FrameSpan, exclusive: bool) -> (u64, Order) {
        let mut largest = Order::ZERO;
        let soles = |folio: Folio, left| {
            largest = largest.max(folio.order);
            self.share_soles(folio, left)
        };
        let share = |folio, piece: FrameSpan| self.share(folio, piece.count as u32, exclusive);
        let shared = self.each_beside(frames, soles, share);
        (shared, largest)
    }

    /// Does [`share`](Self::share) for `folio` and the folios of its size behind it that lie whole
    /// in `frames` and have no hold but the mapping there. Returns how many frames were shared.
    /// Such a folio cannot gain a hold meanwhile, because that takes a hold or the lock that the
    /// caller has: its count needs no atomic addition.
    #[inline(always)]
    fn share_soles(&self, folio: Folio, frames: FrameSpan) -> u64 {
        if folio.head != frames.start {
            return 0;
        }
        let sole = folio.order.pages() << MAPPED_AT;
        let is_sole = |slot: &Slot| slot.counts.load(Ordering::Acquire) == sole;
        let whole = frames.count >> folio.order.get();
        let count = self.alike(folio, whole.min(AHEAD), is_sole);
        let done = count << folio.order.get();
        let (slots, mut at) = (&self.meta.slots_from(folio.head)[..done], 0);
        while let Some(slot) = slots.get(at) {
            slot.counts.store(2 * sole, Ordering::Relaxed);
            at += folio.order.pages() as usize;
        }
        done as u64
    }

    /// The holds on it now. Out of date at once unless the caller keeps other CPUs out.
    #[inline]
    pub fn counts(&self, folio: Folio) -> Counts {
        Counts::from_word(self.meta.at(folio.head).counts.load(Ordering::Acquire))
    }

    /// Takes a reference. The caller has a hold on the folio already, or the lock of a table that
    /// maps it. There are at most 65,535 references at any time.
    pub fn get(&self, folio: Folio) {
        let before = self.meta.at(folio.head).counts.fetch_add(1, Ordering::Relaxed);
        debug_assert!(Counts::from_word(before).refs < u16::MAX);
    }

    /// Gives a reference back. Returns the frames, when it was the last hold on the folio.
    #[must_use = "the last reference returns the frames"]
    pub fn put(&self, folio: Folio) -> Option<FrameRun> {
        self.drop_counts(folio, 1)
    }

    /// Counts `pages` more mapped pages, for a child that maps the pages of its parent. Returns
    /// `false` if there are too many already, or if the pages were `exclusive` to the parent and
    /// the folio is pinned. The caller holds the lock of the table that maps these `pages`.
    #[inline]
    #[must_use = "a folio that is not shared must be copied"]
    pub(crate) fn share(&self, folio: Folio, pages: u32, exclusive: bool) -> bool {
        let counts = &self.meta.at(folio.head).counts;
        let now = Counts::from_word(counts.load(Ordering::Relaxed));
        if exclusive && now.pins > 0 || now.mapped >= MAPPED_MAX {
            return false;
        }
        counts.fetch_add(pages as u64 * ONE_MAPPED, Ordering::Relaxed);
        true
    }

    /// The same for one page, given its frame. A folio of one page without another hold cannot gain
    /// one meanwhile, so that its count needs no atomic addition.
    #[inline(always)]
    #[must_use = "a folio that is not shared must be copied"]
    pub(crate) fn share_page(&self, frame: Pfn, exclusive: bool) -> bool {
        if self.is_sole_page(frame) {
            self.meta.at(frame).counts.store(2 * ONE_MAPPED, Ordering::Relaxed);
            return true;
        }
        self.of(frame).is_some_and(|folio| self.share(folio, 1, exclusive))
    }

    /// Whether the mapping of `pages` of its pages, which the caller has, is the only hold on it.
    #[inline]
    pub(crate) fn is_sole(&self, folio: Folio, pages: u32) -> bool {
        let counts = self.meta.at(folio.head).counts.load(Ordering::Acquire);
        counts == pages as u64 * ONE_MAPPED
    }

    /// Whether `frame` is a folio of its own, and one mapping the only hold on it.
    #[inline(always)]
    pub(crate) fn is_sole_page(&self, frame: Pfn) -> bool {
        let page = State::new(Kind::Folio, 0);
        self.meta.slot(frame).is_some_and(|slot| {
            slot.state().with_flags(0) == page && slot.counts.load(Ordering::Acquire) == ONE_MAPPED
        })
    }

    /// Whether one table may have all the holds on it: there is no reference and no pin, and no
    /// more mapped pages than one mapping of it gives.
    #[inline]
    pub(crate) fn may_be_sole(&self, folio: Folio) -> bool {
        let Counts { refs, pins, mapped } = self.counts(folio);
        refs == 0 && pins == 0 && u64::from(mapped) <= folio.order.pages()
    }

    /// Whether more pages are mapped than one mapping of it gives: spaces share it.
    #[inline]
    pub(crate) fn is_shared(&self, folio: Folio) -> bool {
        u64::from(self.counts(folio).mapped) > folio.order.pages()
    }

    /// Takes a pin; `false` when the count of pins is at its limit. The caller holds the lock of a
    /// table that maps a page of it exclusively.
    pub(crate) fn pin(&self, folio: Folio) -> bool {
        self.add_if(folio, ONE_PIN, |now| now.pins < u16::MAX)
    }

    /// Takes a reference that a caller outside the library keeps as long as it likes; `false` when
    /// half of the count is in use: the rest is for short ones. The caller holds the lock of a
    /// table that maps it.
    pub(crate) fn hold(&self, folio: Folio) -> bool {
        self.add_if(folio, 1, |now| now.refs < u16::MAX / 2)
    }

    fn add_if(&self, folio: Folio, more: u64, has_room: impl Fn(Counts) -> bool) -> bool {
        let counts = &self.meta.at(folio.head).counts;
        let mut word = counts.load(Ordering::Relaxed);
        loop {
            if !has_room(Counts::from_word(word)) {
                return false;
            }
            let more = word + more;
            match counts.compare_exchange_weak(word, more, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Gives a pin back. Returns the frames, when it was the last hold on the folio.
    #[must_use = "the last pin returns the frames"]
    pub(crate) fn unpin(&self, folio: Folio) -> Option<FrameRun> {
        self.drop_counts(folio, ONE_PIN)
    }

    /// Ends the mapping of `pages` of its pages, after the flush. Returns the frames, when it was
    /// the last hold on the folio.
    #[must_use = "the last mapping returns the frames"]
    pub(crate) fn unmap(&self, folio: Folio, pages: u32) -> Option<FrameRun> {
        self.drop_counts(folio, u64::from(pages) * ONE_MAPPED)
    }

    /// The same for frames that go into custody, though their flush is over.
    pub(crate) fn unmap_flushed(&self, folio: Folio, pages: u32) -> Option<Ownerless> {
        self.meta.drop_holds(folio.head, u64::from(pages) * ONE_MAPPED)
    }

    /// Ends the mapping of `pages` of its pages *before* the flush, if that is the only hold on
    /// the folio: then nothing else can free it, and the caller has its frames in custody until
    /// the flush is over. Otherwise nothing changes.
    #[inline]
    pub(crate) fn retire(&self, folio: Folio, pages: u32) -> Option<Ownerless> {
        self.meta.drop_only_holds(folio.head, u64::from(pages) * ONE_MAPPED)
    }

    /// Records where `folio` is mapped. This is a hint for a caller that looks for its mappings;
    /// the tables decide.
    #[inline]
    pub(crate) fn set_home(&self, folio: Folio, home: Home) {
        self.meta.at(folio.head).set_home(home.word());
    }

    /// Records for frames from the first of `frames` on, as long as each is a folio of its own,
    /// that they are mapped from `home` on. Returns how many.
    #[inline(always)]
    pub(crate) fn settle_pages(&self, frames: FrameSpan, home: Home) -> u64 {
        let page = State::new(Kind::Folio, 0);
        let slots = self.meta.slots_from(frames.start);
        let slots = &slots[..slots.len().min(frames.count as usize)];
        // Pages that a program has never wrap: the next home is the next word.
        let (mut count, mut word) = (0, home.word());
        while let Some(slot) = slots.get(count)
            && slot.state().with_flags(0) == page
        {
            slot.set_home(word);
            (count, word) = (count + 1, word + 1);
        }
        count as u64
    }

    /// Records for the folio that holds `frame` that this frame is mapped at `home`. Returns the
    /// folio, which the caller keeps alive, as for [`of`](Self::of).
    pub(crate) fn settle(&self, frame: Pfn, home: Home) -> Option<Folio> {
        let folio = self.of(frame)?;
        let ahead = frame.offset_from(folio.head);
        let page = Vpn::new(home.page.get().wrapping_sub(ahead));
        self.set_home(folio, Home { page, ..home });
        Some(folio)
    }

    /// Where `folio` was mapped when a caller recorded it last.
    #[inline]
    pub(crate) fn home(&self, folio: Folio) -> Home {
        let links = &self.meta.at(folio.head).links;
        let (low, high) = (links[0].load(Ordering::Relaxed), links[1].load(Ordering::Relaxed));
        Home::of(u64::from(high) << 32 | u64::from(low))
    }

    fn drop_counts(&self, folio: Folio, less: u64) -> Option<FrameRun> {
        self.meta.drop_holds(folio.head, less).map(|gone| self.meta.mint(gone))
    }
}

impl Slot {
    /// Records where the folio of this slot is mapped: the word of a [`Home`].
    #[inline(always)]
    fn set_home(&self, word: u64) {
        self.links[0].store(word as u32, Ordering::Relaxed);
        self.links[1].store((word >> 32) as u32, Ordering::Relaxed);
    }
}
