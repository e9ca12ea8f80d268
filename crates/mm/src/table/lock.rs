//! One table, locked: the right to change its words.

use core::cell::Cell;
use core::ops::Range;

use quire_arch::{Arch, Attrs, Entry, Level};
use quire_hw::Hardware;
use quire_units::{FrameSpan, Order, PageSpan, Pfn, Vpn};

use super::sample::Sample;
use super::word::plain;
use super::{Place, Tables};
use crate::phys::WordsLock;
use crate::sync::Ordering;

/// A page table whose lock is held. It stays the table of these pages of this tree, and besides the
/// holder only the hardware changes words in it (accessed and dirty bits of present leaves).
#[must_use]
pub struct Locked<'a, A, H> {
    pub(super) tables: Tables<'a, A, H>,
    lock: WordsLock<'a>,
    level: Level,
    base: Vpn,
    /// The leaf that was decoded last.
    read: Cell<Sample>,
    /// The leaf that was encoded last.
    spelled: Cell<Sample>,
}

/// How many words are loaded and stored at once: enough to spread the costs of a batch.
pub(super) const BATCH: usize = 16;

/// How many bits of a table's `counts` count the words that are not zero; those above count
/// contiguous blocks.
const PRESENT_BITS: u32 = 32;

impl<'a, A: Arch, H: Hardware> Locked<'a, A, H> {
    /// The size of a contiguous block of this level; `None` where the format or the CPU has none.
    #[inline]
    pub(super) fn fold_order(&self) -> Option<Order> {
        A::fold_order(self.level).filter(|_| self.tables.hw.profile().contiguous)
    }

    /// How many entries the format joins in a contiguous block of this level; 1 where it has none.
    /// That is so on a CPU without contiguous blocks as well, where no block is folded.
    #[inline]
    pub(super) fn width(&self) -> usize {
        1 << A::LEVELS[self.level().index()].contiguous
    }

    /// Whether `raw` is the word of a leaf in a contiguous block.
    #[inline(always)]
    pub(super) fn is_folded(&self, raw: u64) -> bool {
        A::is_folded(raw, self.level)
    }

    /// The first entry of the block that entry `index` is in.
    #[inline]
    pub(super) fn block_at(&self, index: usize) -> usize {
        index & !(self.width() - 1)
    }

    /// How many contiguous blocks lie in these entries, which cut none.
    pub(super) fn folded_in(&self, index: usize, count: usize) -> usize {
        if self.folded() == 0 {
            return 0;
        }
        let first = index.next_multiple_of(self.width());
        let blocks = (first..index + count).step_by(self.width());
        blocks.filter(|&at| self.is_folded(self.raw(at))).count()
    }

    pub(super) fn new(
        tables: Tables<'a, A, H>,
        lock: WordsLock<'a>,
        level: Level,
        base: Vpn,
    ) -> Self {
        let none = || Cell::new(Sample::NONE);
        Self { tables, lock, level, base, read: none(), spelled: none() }
    }

    /// The table's level.
    #[inline]
    pub fn level(&self) -> Level {
        self.level
    }

    /// The pages it translates.
    #[inline]
    pub fn reach(&self) -> PageSpan {
        Tables::<A, H>::reach(self.base, self.level)
    }

    /// The order of each entry.
    #[inline]
    pub(crate) fn unit(&self) -> Order {
        A::order(self.level)
    }

    /// The pages of `count` entries from `index` on.
    #[inline]
    pub(super) fn span(&self, index: usize, count: usize) -> PageSpan {
        PageSpan::new(self.page(index), self.page(index + count))
    }

    /// The frames of `count` leaves, from `frame` on.
    #[inline]
    pub(super) fn frames(&self, frame: Pfn, count: usize) -> FrameSpan {
        FrameSpan::new(frame, (count as u64) << self.unit().get())
    }

    /// The entry that translates `page`, which lies in its [`reach`](Self::reach).
    #[inline]
    pub fn index(&self, page: Vpn) -> usize {
        A::index(page, self.level)
    }

    /// The entries that translate pages of `span`, which is not empty and begins in its
    /// [`reach`](Self::reach).
    #[inline]
    pub(super) fn entries(&self, span: PageSpan) -> Range<usize> {
        let unit = self.unit().get();
        let more = ((span.end.get() - 1) >> unit) - (span.start.get() >> unit);
        let index = self.index(span.start);
        index..A::entries(self.level).min(index + more as usize + 1)
    }

    /// The first page that entry `index` translates.
    #[inline]
    pub fn page(&self, index: usize) -> Vpn {
        self.base.add((index as u64) << self.unit().get())
    }

    /// Word `index`, as it would be outside of a contiguous block.
    #[inline]
    pub fn word(&self, index: usize) -> u64 {
        plain::<A>(self.raw(index), self.level, index)
    }

    /// Word `index` as it is.
    #[inline]
    pub(super) fn raw(&self, index: usize) -> u64 {
        self.tables.hw.load(self.lock.frame(), index)
    }

    /// The meaning of `raw`, a word of entry `index`.
    #[inline]
    pub(super) fn decode(&self, raw: u64, index: usize) -> Entry {
        A::decode(plain::<A>(raw, self.level, index), self.level)
    }

    /// The same, sooner where the word is like the one that was decoded last.
    #[inline(always)]
    pub(super) fn meaning(&self, raw: u64, index: usize) -> Entry {
        let word = plain::<A>(raw, self.level, index);
        match self.read.get().read::<A>(word) {
            _ if word == 0 => Entry::Absent,
            Some((frame, attrs)) => Entry::Leaf { frame, attrs },
            None => self.learn(word),
        }
    }

    /// The leaf that was decoded last.
    #[inline(always)]
    pub(super) fn sample(&self) -> Sample {
        self.read.get()
    }

    #[inline(never)]
    fn learn(&self, word: u64) -> Entry {
        let entry = A::decode(word, self.level);
        if let Entry::Leaf { frame, attrs } = entry {
            self.read.set(Sample::of::<A>(word, self.level, frame, attrs));
        }
        entry
    }

    /// Recalls what the leaf at `place` maps: mostly it still does, and is not decoded again.
    #[inline]
    pub(crate) fn recall(&self, place: Place, frame: Pfn, attrs: Attrs) {
        if place.level == self.level {
            self.read.set(Sample::of::<A>(place.word, place.level, frame, attrs));
        }
    }

    /// The word of a leaf outside of a contiguous block.
    #[inline(always)]
    pub(super) fn spelled(&self, frame: Pfn, attrs: Attrs) -> u64 {
        self.spelled.get().spell::<A>(frame, attrs).unwrap_or_else(|| self.spell_out(frame, attrs))
    }

    #[inline(never)]
    fn spell_out(&self, frame: Pfn, attrs: Attrs) -> u64 {
        let word = A::leaf(frame, self.level, attrs);
        self.spelled.set(Sample::of::<A>(word, self.level, frame, attrs));
        word
    }

    /// Loads words from `index` on, as they are, into all of `words`.
    #[inline(always)]
    pub(super) fn load_words(&self, index: usize, words: &mut [u64]) {
        self.tables.hw.load_words(self.lock.frame(), index, words);
    }

    /// Writes words from `index` on. The caller keeps the counts, and makes sure that the hardware
    /// cannot change the words meanwhile.
    #[inline(always)]
    pub(super) fn store_words(&self, index: usize, words: &[u64]) {
        self.tables.hw.store_words(self.lock.words(), index, words);
    }

    /// The way to this table, with the word for `page`.
    #[inline]
    pub(super) fn place(&self, page: Vpn) -> Place {
        let word = self.word(self.index(page));
        Place { frame: self.lock.frame(), level: self.level, word }
    }

    /// How many words from `index` on, before word `end`, are `first`, `first + step`, …
    #[inline]
    pub(super) fn count_run(&self, index: usize, end: usize, first: u64, step: u64) -> usize {
        self.tables.hw.count_run(self.lock.frame(), index, end - index, first, step)
    }

    /// Whether `count` words from `index` on are zero.
    #[inline]
    pub(crate) fn is_empty(&self, index: usize, count: usize) -> bool {
        match count {
            1 => self.raw(index) == 0,
            _ => self.count_run(index, index + count, 0, 0) == count,
        }
    }

    /// How many of its words are not zero.
    #[inline]
    pub fn present(&self) -> u64 {
        self.counts() & ((1 << PRESENT_BITS) - 1)
    }

    /// How many contiguous blocks it holds.
    #[inline]
    pub fn folded(&self) -> u64 {
        self.counts() >> PRESENT_BITS
    }

    #[inline]
    fn counts(&self) -> u64 {
        self.lock.slot().counts.load(Ordering::Relaxed)
    }

    /// Adds to its counts of words that are not zero, and of contiguous blocks.
    #[inline]
    pub(super) fn add(&self, present: i64, folded: i64) {
        let counts = self.counts().wrapping_add_signed(present + (folded << PRESENT_BITS));
        debug_assert!(counts & ((1 << PRESENT_BITS) - 1) <= A::entries(self.level) as u64);
        debug_assert!(counts >> PRESENT_BITS <= A::entries(self.level) as u64);
        self.lock.slot().counts.store(counts, Ordering::Relaxed);
    }

    /// Writes `count` words: `first`, `first + step`, … The caller keeps the counts, and makes sure
    /// that the hardware cannot change the words meanwhile.
    #[inline]
    pub(super) fn fill(&self, index: usize, count: usize, first: u64, step: u64) {
        self.tables.hw.fill(self.lock.words(), index, count, first, step);
    }

    /// Changes word `index` from `current` to `new`, unless the hardware was faster.  The caller
    /// keeps the counts.
    ///
    /// # Errors
    /// The word as it is now; nothing is written.
    #[inline]
    pub(super) fn exchange(&self, index: usize, current: u64, new: u64) -> Result<(), u64> {
        self.tables.hw.compare_exchange(self.lock.words(), index, current, new)
    }

    /// Writes one word over zero.
    #[inline]
    pub(super) fn make(&self, index: usize, word: u64) {
        debug_assert_eq!(self.raw(index), 0);
        self.fill(index, 1, word, 0);
        self.add(1, 0);
    }

    /// Zeroes `count` words, none of which was zero, with the bits that the hardware sets in them.
    /// They cut no contiguous block.
    #[inline]
    pub(super) fn clear(&self, index: usize, count: usize) {
        // With all words go all blocks.
        let all = count as u64 == self.present();
        let folded = if all { self.folded() as usize } else { self.folded_in(index, count) };
        self.fill(index, count, 0, 0);
        self.add(-(count as i64), -(folded as i64));
    }

    /// Makes this table the one for the pages from `base` on: it moves with everything it maps.
    pub(super) fn rebase(&self, base: Vpn) {
        self.lock.slot().owner.store(base.get(), Ordering::Relaxed);
    }

    /// Takes this table, which is empty and out of its tree, out of use.
    pub(super) fn into_stray(self) -> WordsLock<'a> {
        debug_assert_eq!(self.present(), 0);
        self.lock
    }
}

impl<'a, A: Arch, H: Hardware> Tables<'a, A, H> {
    /// Locks the table at `frame` if it is this tree's table of `level` which translates `page`.
    #[inline]
    pub fn lock(&self, frame: Pfn, level: Level, page: Vpn) -> Option<Locked<'a, A, H>> {
        let lock = self.words(frame, level, page)?;
        Some(Locked::new(*self, lock, level, Self::base(page, level)))
    }

    /// The lock alone.
    #[inline(always)]
    fn words(&self, frame: Pfn, level: Level, page: Vpn) -> Option<WordsLock<'a>> {
        let lock = self.meta.lock(frame)?.table_of(level.index() as u8)?;
        let slot = lock.slot();
        let is_it = slot.owner.load(Ordering::Relaxed) == Self::base(page, level).get()
            && slot.links[0].load(Ordering::Relaxed) == self.meta.index(self.root());
        is_it.then_some(lock)
    }

    /// Locks the lowest table that translates `page`, but not below `least`.
    pub fn lock_lowest(&self, page: Vpn, least: Level) -> Locked<'a, A, H> {
        loop {
            let place = self.walk_here(page, least);
            if let Some(lock) = self.lowest_words(place, page, least) {
                return Locked::new(*self, lock, place.level, Self::base(page, place.level));
            }
        }
    }

    /// The same, where a walk for `page` has ended at `place` some time ago.
    #[inline]
    pub fn lock_lowest_from(&self, place: Place, page: Vpn) -> Locked<'a, A, H> {
        match self.lowest_words(place, page, Level::LAST) {
            Some(lock) => Locked::new(*self, lock, place.level, Self::base(page, place.level)),
            None => self.lock_lowest(page, Level::LAST),
        }
    }

    /// The lock of the table of `place`, if it is still the lowest that translates `page`, but not
    /// below `least`.
    #[inline(always)]
    fn lowest_words(&self, place: Place, page: Vpn, least: Level) -> Option<WordsLock<'a>> {
        let Place { frame, level, .. } = place;
        let lock = self.words(frame, level, page)?;
        // The word may have become a lower table before the lock was taken.
        let index = A::index(page, level);
        let word = || plain::<A>(self.hw.load(frame, index), level, index);
        let deeper = level != least && matches!(A::decode(word(), level), Entry::Table(_));
        (!deeper).then_some(lock)
    }
}
