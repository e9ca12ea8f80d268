//! The area and the page table of a CPU's last fault: the next fault nearby searches for neither.
//!
//! A space keeps one record for each shard of its counters, in words under a sequence lock:
//!
//! ```text
//! word 0  stamp      odd while a CPU writes the record; a CPU that finds it so writes none
//!      1  seq        of the tree of areas: another number there, and the record says nothing
//!      2  start      of the area
//!      3  end        of it
//!      4  terms      its rights and flags; it is private memory of the program without a watcher
//!      5  table      frame of a table of the last level: a hint, as the end of a walk is
//!      6  base       first page that the table translates
//! ```
//!
//! A record needs no care by any change: a change of the areas gives the tree another number, and
//! the slot of the table tells, under its lock, whether it is that table still.

use quire_arch::{Arch, Level};
use quire_units::{PageSpan, Pfn, Prot, Vpn};

use super::{Area, AreaFlags, Backing, Seq, Space};
use crate::stats::SHARD_WORDS;
use crate::sync::{AtomicU64, Ordering, fence};

const MAX_AT: u32 = 40;
const PROT_AT: u32 = 32;

/// The words of a record but for the stamp.
type Words = [u64; SHARD_WORDS - 1];

/// An area as some moment had it, and a table of the last level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Recent {
    /// The area.
    pub(crate) area: Area,
    /// The moment.
    pub(crate) seq: Seq,
    /// The table.
    pub(crate) table: Pfn,
}

impl<A: Arch> Space<A> {
    /// The record of `cpu`, if it holds for `page` now.
    #[inline(always)]
    pub(crate) fn recent(&self, cpu: usize, page: Vpn) -> Option<Recent> {
        let [seq, start, end, terms, table, first] = read(self.counters.words(cpu))?;
        let seq = self.areas.at_moment(seq)?;
        let span = PageSpan { start: Vpn::new(start), end: Vpn::new(end) };
        if !span.contains(page) || first != base::<A>(page) {
            return None;
        }
        let area = Area {
            span,
            prot: Prot::from_bits_truncate((terms >> PROT_AT) as u8),
            max_prot: Prot::from_bits_truncate((terms >> MAX_AT) as u8),
            flags: AreaFlags::from_bits_truncate(terms as u32),
            backing: Backing::Anon,
        };
        Some(Recent { area, seq, table: Pfn::new(table) })
    }

    /// Records `recent` for `cpu`, whose table translates `page`; without effect for other areas
    /// than those that a record can have.
    pub(crate) fn note_recent(&self, cpu: usize, page: Vpn, recent: &Recent) {
        let Recent { area, seq, table } = recent;
        if !area.is_private_anon() || area.flags.intersects(AreaFlags::WATCH) {
            return;
        }
        let rights = u64::from(area.prot.bits()) << PROT_AT;
        let terms =
            rights | u64::from(area.max_prot.bits()) << MAX_AT | u64::from(area.flags.bits());
        let base = base::<A>(page);
        let (start, end) = (area.span.start.get(), area.span.end.get());
        write(self.counters.words(cpu), [seq.number(), start, end, terms, table.get(), base]);
    }
}

/// The first page that a table of the last level translates, if it translates `page`.
#[inline(always)]
fn base<A: Arch>(page: Vpn) -> u64 {
    page.align_down(A::entries(Level::LAST) as u64).get()
}

/// The words of a record, all of one write; `None` while it is written.
#[inline(always)]
pub(super) fn read([stamp, words @ ..]: &[AtomicU64; SHARD_WORDS]) -> Option<Words> {
    let before = stamp.load(Ordering::Acquire);
    let read = words.each_ref().map(|word| word.load(Ordering::Relaxed));
    // The words were read before the stamp is read again.
    fence(Ordering::Acquire);
    let same = before.is_multiple_of(2) && stamp.load(Ordering::Relaxed) == before;
    same.then_some(read)
}

/// Writes a record, unless another writer is at it.
pub(super) fn write([stamp, words @ ..]: &[AtomicU64; SHARD_WORDS], new: Words) {
    let before = stamp.load(Ordering::Relaxed) & !1;
    let (taken, missed) = (Ordering::Acquire, Ordering::Relaxed);
    if stamp.compare_exchange(before, before + 1, taken, missed).is_err() {
        return;
    }
    // A reader that sees one of the words sees the odd stamp as well.
    fence(Ordering::Release);
    words.iter().zip(new).for_each(|(word, new)| word.store(new, Ordering::Relaxed));
    stamp.store(before + 2, Ordering::Release);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const NEW: Words = [2, 3, 4, 5, 6, 7];

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let words = Default::default();
        write(&words, NEW);
        assert_eq!(read(&words), Some(NEW));
    }

    #[test]
    fn a_record_that_is_being_written_is_neither_read_nor_written() {
        let words: [AtomicU64; SHARD_WORDS] = Default::default();
        write(&words, NEW);
        words[0].fetch_add(1, Ordering::Relaxed);
        assert_eq!(read(&words), None);
        write(&words, [0; SHARD_WORDS - 1]);
        words[0].fetch_sub(1, Ordering::Relaxed);
        assert_eq!(read(&words), Some(NEW));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    #[test]
    fn loom_a_record_is_all_of_one_write() {
        loom::model(|| {
            let words: Arc<[AtomicU64; SHARD_WORDS]> = Arc::new(Default::default());
            let other = words.clone();
            let writer = thread::spawn(move || write(&other, [1; SHARD_WORDS - 1]));
            write(&words, [2; SHARD_WORDS - 1]);
            if let Some(read) = read(&words) {
                assert!(read.iter().all(|word| *word == read[0]), "{read:?}");
            }
            writer.join().expect("no thread panics");
        });
    }
}
