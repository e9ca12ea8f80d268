//! The meaning of a word, in terms that all ISAs share.

use core::fmt;

use quire_units::{Order, Pfn, Prot};

/// The hardware's reading of a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meaning {
    /// No translation; the rest of the word is the software's.
    Absent,
    /// A lower table.
    Table(Table),
    /// Memory.
    Leaf(Leaf),
    /// A word that the manual forbids; hardware faults, or worse.
    Malformed(Flaw),
}

/// An entry that points at a lower table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Table {
    /// The frame that holds the lower table.
    pub frame: Pfn,
    /// The most that programs may do below.
    pub limits: Prot,
    /// Whether the walker has marked the entry as used. Always set where the ISA has no such mark.
    pub accessed: bool,
}

/// An entry that maps memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaf {
    /// The first frame of this one entry.
    pub frame: Pfn,
    /// The size of this one entry's mapping.
    pub order: Order,
    /// The aligned block that the entry and its neighbours map as one translation, if the entry is
    /// marked so; else as large as `order`.
    pub block: Order,
    /// The rights of programs; empty for the kernel's memory.
    pub prot: Prot,
    /// It belongs to every address space.
    pub global: bool,
    /// Memory type, cacheability and shareability, in some form that can be compared.
    pub memory: u16,
    /// Other properties that the entries of one contiguous block share but programs do not feel:
    /// the kernel's rights, and the bits by which a right is granted. In some form that can be
    /// compared.
    pub rest: u16,
    /// It was used.
    pub accessed: bool,
    /// It may be written without the walker having to record that.
    pub dirty: bool,
}

impl Leaf {
    /// Whether it claims to be part of a block of several entries.
    pub fn is_contiguous(&self) -> bool {
        self.block != self.order
    }
}

impl Meaning {
    /// Whether the hardware would follow or use the entry.
    pub fn is_valid(&self) -> bool {
        matches!(self, Meaning::Table(_) | Meaning::Leaf(_))
    }
}

/// Why a word is malformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// These bits must be zero.
    Reserved(u64),
    /// The block does not begin at a multiple of its size; these address bits are too many.
    Misaligned(u64),
    /// The level has no leaves.
    NoLeafHere,
    /// The last level has no lower tables.
    NoTableHere,
    /// Writable memory that cannot be read.
    WriteWithoutRead,
    /// A field holds a value that the manual reserves.
    Encoding,
    /// A contiguous block, and the CPU has none.
    NoContiguous,
    /// The entry says a memory type, and the CPU's entries cannot; or its slot of the PAT or the
    /// `MAIR_EL1` has none.
    NoMemoryType,
    /// A cached mapping of a device's registers, though entries of this CPU can say the type.
    CachedDevice,
    /// The contiguous block's size is not one the ISA has.
    BlockSize,
    /// The entries of a contiguous block do not lead to memory that begins at a multiple of its
    /// size.
    BlockMisaligned,
    /// Entries of one contiguous block contradict each other about memory.
    BlockTorn,
    /// Some entries of a contiguous block lack the mark.
    BlockMixed,
    /// Some entries of a contiguous block are absent.
    BlockPartial,
    /// The entries of a contiguous block do not all grant the same.
    BlockUneven,
    /// A table or memory where the machine has no RAM.
    OutsideRam,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Flaw::Reserved(bits) => write!(f, "reserved bits {bits:#x} are set"),
            Flaw::Misaligned(bits) => write!(f, "address bits {bits:#x} lie below the block size"),
            Flaw::NoLeafHere => f.write_str("a leaf at a level that has none"),
            Flaw::NoTableHere => f.write_str("a table pointer at the last level"),
            Flaw::WriteWithoutRead => f.write_str("writable but not readable"),
            Flaw::Encoding => f.write_str("a field holds a reserved value"),
            Flaw::NoContiguous => f.write_str("a contiguous block on a CPU that has none"),
            Flaw::NoMemoryType => f.write_str("a memory type that the CPU does not have"),
            Flaw::CachedDevice => f.write_str("a device is mapped as usual memory"),
            Flaw::BlockSize => f.write_str("a contiguous block of a size that does not exist"),
            Flaw::BlockMisaligned => f.write_str("a contiguous block at a misaligned address"),
            Flaw::BlockTorn => f.write_str("entries of a contiguous block contradict each other"),
            Flaw::BlockMixed => f.write_str("a contiguous block in which some have no such mark"),
            Flaw::BlockPartial => f.write_str("a contiguous block with a hole"),
            Flaw::BlockUneven => f.write_str("a contiguous block of different rights"),
            Flaw::OutsideRam => f.write_str("points outside of RAM"),
        }
    }
}
