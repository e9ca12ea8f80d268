//! Storing a run, unit by unit; all of it or nothing.

use quire_units::Order;

use crate::codec::{self, Outcome};
use crate::entry::{Content, Entry, Unit};
use crate::heap::{Owner, Source};
use crate::{Error, Lender, Pool, Stored};

impl<L: Lender> Pool<'_, L> {
    /// Stores `bytes` in the run of 2^`order` slots from `first` on, which is naturally aligned. It
    /// replaces the run's contents; of larger units that reach beyond the run, the rest stays.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Misaligned`], [`Error::WrongLength`]: nothing was done.
    /// [`Error::NoMemory`]: the run is empty, and its old contents are gone as well. They were out
    /// of date anyway, and keeping them would need memory at the moment when there is none.
    pub fn store(&mut self, first: u64, order: Order, bytes: &[u8]) -> Result<Stored, Error> {
        let count = order.pages();
        self.check_range(first, count)?;
        if first & (count - 1) != 0 {
            return Err(Error::Misaligned { first, order });
        }
        self.check_length(bytes.len(), count)?;
        self.erase(first, first + count);
        let zero = self.config.first;
        let tree = self.tree.grow(&mut self.lender, first - zero, first + count - zero);
        let stored = tree.and_then(|()| self.store_units(first, order, bytes));
        if stored.is_some() {
            self.counters.stores += 1;
        } else {
            self.erase(first, first + count);
            self.prune(first, first + count);
            self.counters.failed_stores += 1;
        }
        stored.ok_or(Error::NoMemory { first, count })
    }

    fn store_units(&mut self, first: u64, order: Order, bytes: &[u8]) -> Option<Stored> {
        let order = order.min(self.config.unit_order);
        let mut stored = Stored::default();
        let mut base = first;
        for bytes in bytes.chunks_exact(self.config.page_bytes() << order.get()) {
            let owner = Owner::new(base, order);
            self.plain_of = self.plain_of.filter(|&(of, _)| of != owner);
            let unit = self.pack_unit(owner, order, bytes)?;
            self.fill_entries(base, base + order.pages(), Entry::Tail(order));
            self.set_entry(base, Entry::Head(unit));
            self.counters.slots += order.pages();
            self.counters.add(&unit.content);
            stored.add(&unit.content);
            base += order.pages();
        }
        Some(stored)
    }

    /// Makes a unit of these bytes, with its object in the heap; `None` when there is no page.
    fn pack_unit(&mut self, owner: Owner, order: Order, bytes: &[u8]) -> Option<Unit> {
        let outcome = codec::pack(self.table, bytes, self.packed);
        let word;
        let kept = match outcome {
            Outcome::Same(repeated) => {
                word = repeated.to_le_bytes();
                &word[..]
            }
            Outcome::Lz4(packed) => packed,
            Outcome::Raw => bytes,
        };
        let length = kept.len() as u32;
        let mut insert = || self.heap.insert(&mut self.lender, owner, kept, Source::Any);
        let content = match outcome {
            Outcome::Same(word) => Content::Same(word),
            Outcome::Lz4(_) => Content::Packed(length, Some(insert()?.first)),
            Outcome::Raw => Content::Raw(length, Some(insert()?.first)),
        };
        let checksum = codec::checksum(owner, content.kind(), kept);
        Some(Unit { order, is_touched: true, content, checksum })
    }
}
