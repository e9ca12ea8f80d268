//! The meaning of an entry: attributes, kinds of entries, and the demands of a change.

use bitflags::bitflags;
use quire_units::{MemoryType, Pfn, Prot};

bitflags! {
    /// The rights of a leaf, and the records that hardware and library keep in it.
    ///
    /// The ISAs tie some together, and encoding gives the nearest larger grant: `WRITE` brings
    /// `READ` on all three; `EXEC` brings `READ` on x86-64, and on arm64 unless with `USER`. A leaf
    /// with none of `READ`, `WRITE` and `EXEC` is hidden from the hardware.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Attrs: u16 {
        /// Loads.
        const READ = 1 << 0;
        /// Stores.
        const WRITE = 1 << 1;
        /// Instruction fetches.
        const EXEC = 1 << 2;
        /// Programs may use it, not only the kernel.
        const USER = 1 << 3;
        /// The same in all address spaces.
        const GLOBAL = 1 << 4;
        /// A CPU accessed it since this bit was last cleared.
        const YOUNG = 1 << 5;
        /// A CPU wrote to it since this bit was last cleared. Kept when write permission is taken
        /// away.
        const DIRTY = 1 << 6;
        /// Device memory: not cached, not reordered ([`MemoryType::Device`]). Not together with
        /// `COMBINING`.
        const DEVICE = 1 << 7;
        /// A bit for the library's own use, which the hardware ignores.
        const SOFT = 1 << 8;
        /// The page is not exclusive: other spaces may map it, so that a write must first copy or
        /// claim it. The library's own, ignored by the hardware.
        const COW = 1 << 9;
        /// Memory that is not cached, and may be reordered ([`MemoryType::Combining`]).
        const COMBINING = 1 << 10;
    }
}

impl Attrs {
    /// The three rights. A leaf with none of them is hidden from the hardware.
    pub const RIGHTS: Self = Self::READ.union(Self::WRITE).union(Self::EXEC);

    /// The library's own flags. The hardware ignores them.
    pub const OWN: Self = Self::SOFT.union(Self::COW);

    /// The flags that say a memory type; neither of them for the usual one.
    pub const MEMORY: Self = Self::DEVICE.union(Self::COMBINING);

    /// The flag of a memory type.
    #[inline]
    pub const fn memory(memory: MemoryType) -> Self {
        match memory {
            MemoryType::Usual => Self::empty(),
            MemoryType::Combining => Self::COMBINING,
            MemoryType::Device => Self::DEVICE,
        }
    }

    /// The attributes of a program's leaf in an area with protection `prot`.
    #[inline]
    pub const fn user(prot: Prot) -> Self {
        Self::from_bits_retain(prot.bits() as u16).union(Self::USER)
    }

    /// The three rights as a protection.
    #[inline]
    pub const fn prot(self) -> Prot {
        Prot::from_bits_truncate(self.bits() as u8 & 7)
    }

    /// The same with the rights of `prot` in place of its own.
    #[inline]
    pub const fn with_prot(self, prot: Prot) -> Self {
        Self::from_bits_retain(self.bits() & !7 | prot.bits() as u16)
    }
}

/// The meaning of an entry's word.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Entry {
    /// Nothing.
    Absent,
    /// A lower table.
    Table(Pfn),
    /// A block of memory.
    Leaf {
        /// Its first frame.
        frame: Pfn,
        /// Its rights and records.
        attrs: Attrs,
    },
    /// Absent for the hardware; the library keeps this payload there.
    Marker(u64),
    /// A word that neither this library nor the hardware writes, such as a leaf at a level that has
    /// none, or a word with a reserved bit set.
    Malformed,
}

/// The demand of a change to an entry of a live table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Transition {
    /// Just write it.
    Nothing,
    /// Write it, then flush before the change is relied on.
    Flush,
    /// Write zero, flush, then write it: the hardware must never see both.
    BreakBeforeMake,
}
