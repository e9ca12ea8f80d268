//! The errors of a pool, each with its evidence.

use core::fmt;

use quire_units::Order;

/// An error of a pool. Slots are absolute numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// Some of the `count` slots from `first` on do not belong to this pool. Nothing was done.
    OutOfRange {
        /// The first slot asked for.
        first: u64,
        /// How many.
        count: u64,
    },
    /// A run does not begin at a multiple of its length. Nothing was done.
    Misaligned {
        /// The first slot of the run.
        first: u64,
        /// Its order.
        order: Order,
    },
    /// The caller's bytes are not as long as the slots. Nothing was done.
    WrongLength {
        /// How long they are, in bytes.
        given: usize,
        /// How long they should be.
        needed: u64,
    },
    /// The lender had no page. The run is empty now, and its earlier contents are gone; all other
    /// slots are as before.
    NoMemory {
        /// The first slot of the run.
        first: u64,
        /// How many it has.
        count: u64,
    },
    /// Nothing is stored in this slot.
    Absent {
        /// The first such slot of those asked for.
        slot: u64,
    },
    /// Other code wrote into the memory of this unit: none of its slots can be read. Free them.
    Corrupt {
        /// The first slot of the unit.
        first: u64,
        /// How many slots it has, freed ones included.
        count: u64,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::OutOfRange { first, count } => {
                write!(f, "{count} slots from {first} on are not all of this pool")
            }
            Self::Misaligned { first, order } => {
                write!(f, "a run of order {} cannot begin at slot {first}", order.get())
            }
            Self::WrongLength { given, needed } => {
                write!(f, "{given} bytes were given where {needed} are needed")
            }
            Self::NoMemory { first, count } => {
                write!(f, "no page for {count} slots from {first} on, which are empty now")
            }
            Self::Absent { slot } => write!(f, "nothing is stored in slot {slot}"),
            Self::Corrupt { first, count } => {
                write!(f, "the unit of {count} slots from {first} on is damaged")
            }
        }
    }
}

impl core::error::Error for Error {}

/// The reason why a pool cannot be set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetupError {
    /// No ISA has such base pages.
    PageShift {
        /// The base-two logarithm of the base page in bytes that was asked for.
        page_shift: u32,
    },
    /// A unit is a power of two of bytes, from one base page to [`UNIT_BYTES_MAX`].
    ///
    /// [`UNIT_BYTES_MAX`]: crate::UNIT_BYTES_MAX
    Unit {
        /// The number of bytes asked for.
        unit_bytes: usize,
    },
    /// The slots are none, or reach beyond [`SLOT_END`].
    ///
    /// [`SLOT_END`]: crate::SLOT_END
    Slots {
        /// The first slot asked for.
        first: u64,
        /// How many.
        count: u64,
    },
    /// The scratch memory is too short.
    Scratch {
        /// How many bytes were given.
        given: usize,
        /// How many are needed.
        needed: usize,
    },
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::PageShift { page_shift } => write!(f, "no base page has 2^{page_shift} bytes"),
            Self::Unit { unit_bytes } => write!(f, "a unit cannot have {unit_bytes} bytes"),
            Self::Slots { first, count } => {
                write!(f, "a pool cannot have {count} slots from {first} on")
            }
            Self::Scratch { given, needed } => {
                write!(f, "{given} bytes of scratch memory were given, {needed} are needed")
            }
        }
    }
}

impl core::error::Error for SetupError {}
