//! The layout of a pool: base page, unit, slots; and the scratch memory that it needs.

use lz4_flex::block::{CompressTable, get_maximum_output_size};
use quire_units::Order;

use crate::{SLOT_END, SetupError, UNIT_BYTES_MAX};

/// The shape of a pool. Fixed for its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The base-two logarithm of the base page in bytes: of a slot, and of a lent page.
    pub(crate) page_shift: u32,
    /// The most slots that are compressed as one unit.
    pub(crate) unit_order: Order,
    /// The first slot.
    pub(crate) first: u64,
    /// How many slots there are.
    pub(crate) slots: u64,
}

impl Config {
    /// A pool for the `slots` slots from `first` on, of 2^`page_shift` bytes (12, 14 or 16), that
    /// compresses up to `unit_bytes` as one.
    ///
    /// # Errors
    /// [`SetupError::PageShift`], [`SetupError::Unit`], [`SetupError::Slots`].
    pub const fn new(
        page_shift: u32,
        unit_bytes: usize,
        first: u64,
        slots: u64,
    ) -> Result<Self, SetupError> {
        if !matches!(page_shift, 12 | 14 | 16) {
            return Err(SetupError::PageShift { page_shift });
        }
        let Some(unit_order) = Order::of_bytes(unit_bytes as u64, page_shift) else {
            return Err(SetupError::Unit { unit_bytes });
        };
        if unit_bytes > UNIT_BYTES_MAX {
            return Err(SetupError::Unit { unit_bytes });
        }
        if slots == 0 || first >= SLOT_END || slots > SLOT_END - first {
            return Err(SetupError::Slots { first, count: slots });
        }
        Ok(Self { page_shift, unit_order, first, slots })
    }

    /// Bytes of a slot, and of a lent page.
    pub const fn page_bytes(&self) -> usize {
        1 << self.page_shift
    }

    /// Bytes of a unit, at most.
    pub const fn unit_bytes(&self) -> usize {
        self.page_bytes() << self.unit_order.get()
    }

    /// How much scratch memory such a pool needs, in bytes: one unit as it is, and one as the
    /// compressor may leave it in the worst case.
    pub const fn scratch_bytes(&self) -> usize {
        self.unit_bytes() + get_maximum_output_size(self.unit_bytes())
    }
}

/// The hash table of the compressor, 16 KiB. A kernel keeps it in a `static`, not on a stack.
pub struct Table(pub(crate) CompressTable);

impl Table {
    /// A new table. Its content means nothing between calls.
    pub const fn new() -> Self {
        // The large table also suits small units: its hash of five bytes finds fewer false matches,
        // and was faster than the small table at every unit size that was measured.
        Self(CompressTable::large())
    }
}

impl Default for Table {
    fn default() -> Self {
        Self::new()
    }
}

/// Memory to work in, for as long as the pool lives.
pub struct Scratch<'s> {
    /// The compressor's hash table.
    pub table: &'s mut Table,
    /// At least [`Config::scratch_bytes`].
    pub bytes: &'s mut [u8],
}
