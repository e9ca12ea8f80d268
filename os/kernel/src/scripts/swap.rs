//! A swap device that keeps two words of each page, which identify a script's page: its first and
//! last word.

use alloc::collections::BTreeMap;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use quire::cache::{FileId, FilePages, Reads};
use quire::units::Pfn;
use quire_script::tail;

use crate::memory::{Everyone, mm};

/// How many slots there are.
const SLOTS: u64 = 2000;

/// The device, and its content.
pub(super) struct Swap {
    id: FileId,
    pages: BTreeMap<u64, (u64, u64)>,
}

/// The words of a frame that a transfer has.
fn words(frame: Pfn) -> &'static [AtomicU64] {
    mm().hardware().all_words(frame)
}

impl Swap {
    /// A device of which nothing is used.
    pub(super) fn new() -> Self {
        let id = mm().paging().swap_on(SLOTS).unwrap_or_else(|error| panic!("swap_on: {error}"));
        Self { id, pages: BTreeMap::new() }
    }

    /// Writes all that has left and is not written.
    pub(super) fn write(&mut self) {
        let mut left = FilePages::new(0, SLOTS);
        loop {
            let next = mm().files().next_write(self.id, &mut left, &Everyone);
            let Some(write) = next.unwrap_or_else(|error| panic!("next_write: {error}")) else {
                return;
            };
            let first = write.frames().start;
            for (ahead, page) in (write.pages().start..write.pages().end).enumerate() {
                // Relaxed: the processes have lost these pages before.
                let word = |word: Option<&AtomicU64>| word.map_or(0, |it| it.load(Relaxed));
                let words = words(first.add(ahead as u64));
                self.pages.insert(page, (word(words.first()), word(words.last())));
            }
            mm().files().write_done(write, Ok(()));
        }
    }

    /// Carries out the library's reads; whether they are of this device.
    pub(super) fn read(&self, mut reads: Reads) -> bool {
        if reads.file() != self.id {
            return false;
        }
        loop {
            let next = mm().files().next_read(&mut reads);
            let Some(read) = next.unwrap_or_else(|error| panic!("next_read: {error}")) else {
                return true;
            };
            let first = read.frames().start();
            for (ahead, page) in (read.pages().start..read.pages().end).enumerate() {
                let words = self.pages.get(&page).copied().unwrap_or((u64::MAX, tail(u64::MAX)));
                fill(first.add(ahead as u64), words);
            }
            mm().files().read_done(read, Ok(()));
        }
    }

    /// Takes it out of use, when nothing is on it any more.
    pub(super) fn off(&mut self) {
        mm().paging().swap_off(self.id).unwrap_or_else(|error| panic!("swap_off: {error}"));
    }
}

/// Makes a page of its first and last word.
fn fill(frame: Pfn, (first, last): (u64, u64)) {
    let words = words(frame);
    words.iter().for_each(|word| word.store(0, Relaxed));
    words.first().into_iter().for_each(|word| word.store(first, Relaxed));
    words.last().into_iter().for_each(|word| word.store(last, Relaxed));
}
