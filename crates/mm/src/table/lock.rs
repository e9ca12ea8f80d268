//! One table, locked: the right to change its words.

use core::marker::PhantomData;

use quire_arch::{Arch, Level};
use quire_hw::{Hardware, Profile};
use quire_units::{PageSpan, Pfn, Vpn};

use crate::phys::WordsLock;
use crate::sync::Ordering;

/// A page table whose lock is held. What it is cannot change meanwhile, and only the hardware
/// changes words in it besides the holder (accessed and dirty flags of present leaves).
#[must_use]
pub struct Locked<'a, A, H> {
    hw: &'a H,
    lock: WordsLock<'a>,
    level: Level,
    base: Vpn,
    arch: PhantomData<A>,
}

impl<'a, A: Arch, H: Hardware> Locked<'a, A, H> {
    pub(super) fn new(hw: &'a H, lock: WordsLock<'a>, level: Level, base: Vpn) -> Self {
        Self { hw, lock, level, base, arch: PhantomData }
    }

    /// The table's frame.
    #[inline]
    pub fn frame(&self) -> Pfn {
        self.lock.frame()
    }

    /// The table's level.
    #[inline]
    pub fn level(&self) -> Level {
        self.level
    }

    /// The pages it translates.
    #[inline]
    pub fn reach(&self) -> PageSpan {
        let pages = A::order(self.level).pages() * A::entries(self.level) as u64;
        PageSpan::new(self.base, self.base.add(pages))
    }

    /// The entry that translates `page`, which lies in its [`reach`](Self::reach).
    #[inline]
    pub fn index(&self, page: Vpn) -> usize {
        A::index(page, self.level)
    }

    /// The first page that entry `index` translates.
    #[inline]
    pub fn page(&self, index: usize) -> Vpn {
        self.base.add((index as u64) << A::order(self.level).get())
    }

    /// Word `index`.
    #[inline]
    pub fn word(&self, index: usize) -> u64 {
        self.hw.load(self.lock.frame(), index)
    }

    /// How many words from `index` on, ended by word `end` at the latest, are `first`,
    /// `first + step`, …
    #[inline]
    pub(super) fn count_run(&self, index: usize, end: usize, first: u64, step: u64) -> usize {
        self.hw.count_run(self.lock.frame(), index, end - index, first, step)
    }

    /// How many of its words are not zero.
    #[inline]
    pub fn present(&self) -> u64 {
        self.lock.slot().counts.load(Ordering::Relaxed)
    }

    #[inline]
    fn set_present(&self, count: u64) {
        debug_assert!(count <= A::entries(self.level) as u64);
        self.lock.slot().counts.store(count, Ordering::Relaxed);
    }

    /// Writes `count` words that were zero: `first`, `first + step`, …
    #[inline]
    pub(super) fn make(&self, index: usize, count: usize, first: u64, step: u64) {
        debug_assert!((index..index + count).all(|at| self.word(at) == 0));
        self.hw.fill(self.lock.words(), index, count, first, step);
        self.set_present(self.present() + count as u64);
    }

    /// Zeroes `count` words, none of which was zero. What the hardware noted in them meanwhile is
    /// lost with them.
    #[inline]
    pub(super) fn clear(&self, index: usize, count: usize) {
        self.hw.fill(self.lock.words(), index, count, 0, 0);
        self.set_present(self.present() - count as u64);
    }

    /// Overwrites `count` words that are not zero by others that are not, where the hardware
    /// cannot change them meanwhile.
    #[inline]
    pub(super) fn rewrite(&self, index: usize, count: usize, first: u64, step: u64) {
        self.hw.fill(self.lock.words(), index, count, first, step);
    }

    /// Changes word `index` from `current` to `new`, neither of them zero, unless the hardware
    /// was faster.
    ///
    /// # Errors
    /// The word as it is now; nothing is written.
    #[inline]
    pub(super) fn exchange(&self, index: usize, current: u64, new: u64) -> Result<(), u64> {
        debug_assert!(current != 0 && new != 0);
        self.hw.compare_exchange(self.lock.words(), index, current, new)
    }

    /// Zeroes word `index` if it still is `current`, which is not zero: the break of a
    /// break-before-make.
    ///
    /// # Errors
    /// The word as it is now; nothing is written.
    pub(super) fn unmake(&self, index: usize, current: u64) -> Result<(), u64> {
        self.hw.compare_exchange(self.lock.words(), index, current, 0)?;
        self.set_present(self.present() - 1);
        Ok(())
    }

    /// What the CPUs can do.
    pub(super) fn profile(&self) -> Profile {
        self.hw.profile()
    }

    /// Takes this table, which is empty and out of its tree, out of use.
    pub(super) fn into_stray(self) -> WordsLock<'a> {
        debug_assert_eq!(self.present(), 0);
        self.lock
    }
}
