//! The pool itself: its parts, and the search for a slot's unit.

use quire_units::Order;

use crate::entry::{Entry, Unit};
use crate::heap::{Heap, Owner};
use crate::tree::Tree;
use crate::{Config, Counters, Error, Lender, Scratch, SetupError, Table};

/// Swap slots, compressed in memory that `L` lends. The crate's documentation shows how to use it.
///
/// Dropping a pool that stores data gives no page back: call [`clear`](Self::clear) first.
#[must_use = "only the pool knows the pages that it was lent"]
pub struct Pool<'s, L> {
    pub(crate) config: Config,
    pub(crate) lender: L,
    pub(crate) table: &'s mut Table,
    /// Scratch for compressing units, and for assembling compressed ones.
    pub(crate) packed: &'s mut [u8],
    /// Scratch for decompressing a unit that is loaded in part.
    pub(crate) plain: &'s mut [u8],
    /// The unit in `plain`, and its checksum. No unit stored later has this owner.
    pub(crate) plain_of: Option<(Owner, u32)>,
    pub(crate) tree: Tree,
    pub(crate) heap: Heap,
    /// The position of the search for cold units, counted from the pool's first slot.
    pub(crate) hand: u64,
    pub(crate) counters: Counters,
}

/// A unit that was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// The first slot of its block, whether freed or not.
    pub(crate) base: u64,
    /// The slot that describes it.
    pub(crate) head: u64,
    pub(crate) unit: Unit,
}

impl Found {
    pub(crate) fn owner(&self) -> Owner {
        Owner::new(self.base, self.unit.order)
    }

    /// The first slot behind its block.
    pub(crate) fn end(&self) -> u64 {
        self.base + self.unit.order.pages()
    }

    pub(crate) fn corrupt(&self) -> Error {
        Error::Corrupt { first: self.base, count: self.unit.order.pages() }
    }
}

impl<'s, L: Lender> Pool<'s, L> {
    /// An empty pool. It takes no page before the first store.
    ///
    /// # Errors
    /// [`SetupError::Scratch`] when that memory is shorter than [`Config::scratch_bytes`].
    pub fn new(config: Config, lender: L, scratch: Scratch<'s>) -> Result<Self, SetupError> {
        let (given, needed) = (scratch.bytes.len(), config.scratch_bytes());
        let Some((plain, packed)) = scratch.bytes.split_at_mut_checked(config.unit_bytes()) else {
            return Err(SetupError::Scratch { given, needed });
        };
        if given < needed {
            return Err(SetupError::Scratch { given, needed });
        }
        Ok(Self {
            config,
            lender,
            table: scratch.table,
            packed,
            plain,
            plain_of: None,
            tree: Tree::new(&config),
            heap: Heap::new(config.page_bytes()),
            hand: 0,
            counters: Counters::default(),
        })
    }

    /// Its shape.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The lender of its pages.
    pub fn lender(&self) -> &L {
        &self.lender
    }

    /// The lender of its pages, mutable.
    pub fn lender_mut(&mut self) -> &mut L {
        &mut self.lender
    }

    /// Ends the pool. Its contents are lost, and its pages are back with the lender.
    pub fn into_lender(mut self) -> L {
        self.clear();
        self.lender
    }

    /// Its counters.
    pub fn counters(&self) -> Counters {
        let (data_pages, tree_pages) = (self.heap.pages, self.tree.pages);
        Counters { data_pages, tree_pages, ..self.counters }
    }

    /// How many pages storing one run of this order takes at most, whatever its contents. A lender
    /// that keeps this many can always store it.
    pub fn store_pages_max(&self, order: Order) -> u64 {
        let slots = order.pages().min(self.config.slots);
        self.heap.pages_max(slots << self.config.page_shift) + self.tree.pages_max(slots)
    }

    /// Checks that the `count` slots from `first` on are the pool's.
    pub(crate) fn check_range(&self, first: u64, count: u64) -> Result<(), Error> {
        let end = self.config.first + self.config.slots;
        let is_inside = first >= self.config.first
            && count > 0
            && first.checked_add(count).is_some_and(|last| last <= end);
        if is_inside { Ok(()) } else { Err(Error::OutOfRange { first, count }) }
    }

    /// Checks that `given` bytes are those of `count` slots.
    pub(crate) fn check_length(&self, given: usize, count: u64) -> Result<(), Error> {
        let needed = count << self.config.page_shift;
        if given as u64 == needed { Ok(()) } else { Err(Error::WrongLength { given, needed }) }
    }

    /// The entry of a slot.
    #[inline]
    pub(crate) fn entry(&self, slot: u64) -> Entry {
        self.tree.get(&self.lender, slot.wrapping_sub(self.config.first))
    }

    pub(crate) fn set_entry(&mut self, slot: u64, entry: Entry) {
        self.fill_entries(slot, slot + 1, entry);
    }

    /// Changes the entries of the slots from `first` to `end`, exclusive.
    pub(crate) fn fill_entries(&mut self, first: u64, end: u64, entry: Entry) {
        let zero = self.config.first;
        self.tree.fill(&mut self.lender, first - zero, end - zero, entry);
    }

    /// The first slot from `first` on, and before `end`, that belongs to a unit of this order, or
    /// with `is_of` false, that does not.
    pub(crate) fn next_of(&self, first: u64, end: u64, order: Order, is_of: bool) -> Option<u64> {
        (first..end).find(|&slot| (self.entry(slot).order() == Some(order)) == is_of)
    }

    /// The unit of a slot; `None` where nothing is stored.
    pub(crate) fn find(&self, slot: u64) -> Result<Option<Found>, Error> {
        let order = match self.entry(slot) {
            Entry::Empty => return Ok(None),
            Entry::Head(unit) => {
                return Ok(Some(Found { base: align_down(slot, unit.order), head: slot, unit }));
            }
            Entry::Tail(order) => order,
        };
        let base = align_down(slot, order);
        self.head_of(base, order)
            .map(Some)
            .ok_or(Error::Corrupt { first: base, count: order.pages() })
    }

    /// The unit of this order whose block begins at `base`.
    pub(crate) fn head_of(&self, base: u64, order: Order) -> Option<Found> {
        let first = base.max(self.config.first);
        let end = (base + order.pages()).min(self.config.first + self.config.slots);
        let head = self.next_of(first, end, order, true)?;
        match self.entry(head) {
            Entry::Head(unit) => Some(Found { base, head, unit }),
            _ => None,
        }
    }
}

/// The first slot of the block of this order that has `slot`.
fn align_down(slot: u64, order: Order) -> u64 {
    slot & !(order.pages() - 1)
}
