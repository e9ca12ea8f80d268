//! The counters of a pool's contents and events.

use crate::entry::Content;

/// A pool's counters. Those under *now* go up and down, the others only up.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Now: slots that store data.
    pub slots: u64,
    /// Now: units that repeat one word and take no memory but their entries.
    pub same_units: u64,
    /// Now: units that are kept uncompressed, since compression gained too little.
    pub raw_units: u64,
    /// Now: units that are compressed.
    pub packed_units: u64,
    /// Now: bytes that the raw and compressed units take, without headers.
    pub object_bytes: u64,
    /// Now: pages that hold the bytes of units.
    pub data_pages: u64,
    /// Now: pages of the tree from slots to units.
    pub tree_pages: u64,
    /// Runs that were stored.
    pub stores: u64,
    /// Runs that were not, for lack of a page.
    pub failed_stores: u64,
    /// Runs that were loaded.
    pub loads: u64,
    /// Units that were decompressed or copied for loads. Those that repeat one word do not count.
    pub decoded_units: u64,
    /// Units that were found damaged when they were loaded.
    pub corrupt_units: u64,
    /// Pages that compaction gave back.
    pub compacted_pages: u64,
    /// Pieces without a unit that compaction met; always zero unless memory was damaged.
    pub orphans: u64,
}

impl Counters {
    /// Counts a new unit.
    pub(crate) fn add(&mut self, content: &Content) {
        *self.units(content) += 1;
        self.object_bytes += object_bytes(content);
    }

    /// Uncounts a unit.
    pub(crate) fn subtract(&mut self, content: &Content) {
        let units = self.units(content);
        *units = units.saturating_sub(1);
        self.object_bytes = self.object_bytes.saturating_sub(object_bytes(content));
    }

    fn units(&mut self, content: &Content) -> &mut u64 {
        match content {
            Content::Same(_) => &mut self.same_units,
            Content::Packed(..) => &mut self.packed_units,
            Content::Raw(..) => &mut self.raw_units,
        }
    }

    /// Pages the lender lends now.
    pub const fn lent_pages(&self) -> u64 {
        self.data_pages + self.tree_pages
    }
}

/// The result of storing one run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stored {
    /// Units that repeat one word.
    pub same_units: u32,
    /// Units that are kept uncompressed.
    pub raw_units: u32,
    /// Units that are compressed.
    pub packed_units: u32,
    /// Bytes that all of them take.
    pub object_bytes: u64,
}

impl Stored {
    pub(crate) fn add(&mut self, content: &Content) {
        match content {
            Content::Same(_) => self.same_units += 1,
            Content::Packed(..) => self.packed_units += 1,
            Content::Raw(..) => self.raw_units += 1,
        }
        self.object_bytes += object_bytes(content);
    }
}

fn object_bytes(content: &Content) -> u64 {
    content.object().map_or(0, |(bytes, _)| u64::from(bytes))
}
