//! The choice of an ISA and the geometry of its tables.

use quire_units::{MemoryType, Order, VirtAddr, Vpn};

use super::{Meaning, arm64, riscv64, x86_64};

/// An instruction set with the page-table format it runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Isa {
    /// x86-64 in IA-32e mode, `CR4.PGE`, `EFER.NXE` set, no protection keys.
    X86_64 {
        /// 4, or 5 with `CR4.LA57`.
        levels: u8,
    },
    /// arm64, stage 1 of EL0 and EL1 through `TTBR0_EL1`, without FEAT_LPA, FEAT_LPA2, FEAT_D128.
    Arm64 {
        /// The base page.
        granule: Granule,
        /// How many bits a virtual address has: 64 − `TCR_EL1.T0SZ`.
        va_bits: u8,
    },
    /// riscv64 with Svnapot and Svpbmt.
    Riscv64(Sv),
}

/// The base page of arm64.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Granule {
    /// 4 KiB.
    K4,
    /// 16 KiB.
    K16,
    /// 64 KiB.
    K64,
}

/// The address-translation mode of riscv64.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Sv {
    /// Three levels.
    Sv39,
    /// Four levels.
    Sv48,
    /// Five levels.
    Sv57,
}

impl Isa {
    /// One of each shape: both depths of x86-64, the granules of arm64 (16 KiB with three and with
    /// four levels), the modes of riscv64.
    pub const ALL: [Isa; 9] = [
        Isa::X86_64 { levels: 4 },
        Isa::X86_64 { levels: 5 },
        Isa::Arm64 { granule: Granule::K4, va_bits: 48 },
        Isa::Arm64 { granule: Granule::K16, va_bits: 47 },
        Isa::Arm64 { granule: Granule::K16, va_bits: 48 },
        Isa::Arm64 { granule: Granule::K64, va_bits: 48 },
        Isa::Riscv64(Sv::Sv39),
        Isa::Riscv64(Sv::Sv48),
        Isa::Riscv64(Sv::Sv57),
    ];

    /// The geometry of its tables.
    ///
    /// # Panics
    /// When the numbers in the variant are none that the ISA has.
    pub fn geometry(self) -> Geometry {
        let (page_shift, va_bits) = match self {
            Isa::X86_64 { levels: 4 } => (12, 48),
            Isa::X86_64 { levels: 5 } => (12, 57),
            Isa::X86_64 { levels } => panic!("x86-64 has 4 or 5 levels, not {levels}"),
            Isa::Arm64 { granule, va_bits } => {
                assert!((36..=48).contains(&va_bits), "arm64 addresses have 36 to 48 bits here");
                (granule.page_shift(), va_bits as u32)
            }
            Isa::Riscv64(Sv::Sv39) => (12, 39),
            Isa::Riscv64(Sv::Sv48) => (12, 48),
            Isa::Riscv64(Sv::Sv57) => (12, 57),
        };
        Geometry::new(page_shift, va_bits, !matches!(self, Isa::Arm64 { .. }))
    }

    /// The meaning of `word` as entry `index` of a table of `level`.
    #[inline]
    pub fn decode(self, word: u64, level: u8, index: usize) -> Meaning {
        match self {
            Isa::X86_64 { .. } => x86_64::decode(word, level),
            Isa::Arm64 { granule, .. } => arm64::decode(word, level, granule),
            Isa::Riscv64(_) => riscv64::decode(word, level, index),
        }
    }

    /// The leaf `word` as the walker leaves it after an access, a store if `store`.
    #[inline]
    pub(crate) fn touched(self, word: u64, store: bool) -> u64 {
        match self {
            Isa::X86_64 { .. } => x86_64::touched(word, store),
            Isa::Arm64 { .. } => arm64::touched(word, store),
            Isa::Riscv64(_) => riscv64::touched(word, store),
        }
    }

    /// The table `word` as the walker leaves it.
    #[inline]
    pub(crate) fn passed(self, word: u64) -> u64 {
        match self {
            Isa::X86_64 { .. } => x86_64::touched(word, false),
            Isa::Arm64 { .. } | Isa::Riscv64(_) => word,
        }
    }

    /// How many entries of `level` form a contiguous block; 1 where there are none.
    #[inline]
    pub fn contiguous_entries(self, level: u8) -> usize {
        match self {
            Isa::X86_64 { .. } => 1,
            Isa::Arm64 { granule, .. } => arm64::contiguous_entries(level, granule),
            Isa::Riscv64(_) => riscv64::contiguous_entries(level),
        }
    }

    /// The memory type that a leaf's field `memory` names; `None` for one that the machine's PAT or
    /// `MAIR_EL1` does not have.
    #[inline]
    pub(crate) fn memory_type(self, memory: u16) -> Option<MemoryType> {
        match self {
            Isa::X86_64 { .. } => x86_64::memory_type(memory),
            Isa::Arm64 { .. } => arm64::memory_type(memory),
            Isa::Riscv64(_) => riscv64::memory_type(memory),
        }
    }

    /// Whether a live entry must be broken before another is made in its place.
    pub fn breaks_before_make(self) -> bool {
        matches!(self, Isa::Arm64 { .. })
    }

    /// Whether the hardware always sets accessed and dirty flags.
    pub fn always_sets_flags(self) -> bool {
        matches!(self, Isa::X86_64 { .. })
    }

    /// The widths that a space's tag has in CPUs of the ISA, in bits.
    pub fn asid_bits(self) -> &'static [u32] {
        match self {
            Isa::X86_64 { .. } => &[0, 12],
            Isa::Arm64 { .. } => &[8, 16],
            Isa::Riscv64(_) => &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
        }
    }
}

impl Granule {
    pub(super) const fn page_shift(self) -> u32 {
        match self {
            Granule::K4 => 12,
            Granule::K16 => 14,
            Granule::K64 => 16,
        }
    }
}

const LEVELS_MAX: usize = 5;

/// The shape of a table tree: how an address falls apart into indices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// The base-two logarithm of the base page in bytes.
    pub page_shift: u32,
    /// How many levels there are; the root's is `levels − 1`.
    pub levels: u8,
    /// How many low bits of an address are translated.
    pub va_bits: u32,
    index_bits: [u8; LEVELS_MAX],
    orders: [u8; LEVELS_MAX + 1],
    signed: bool,
}

impl Geometry {
    /// Every table fills one base page, except the root, which has the remaining address bits.
    fn new(page_shift: u32, va_bits: u32, signed: bool) -> Self {
        let full = page_shift - 3;
        let mut shape = Self {
            page_shift,
            levels: 0,
            va_bits,
            index_bits: [0; LEVELS_MAX],
            orders: [0; LEVELS_MAX + 1],
            signed,
        };
        let mut left = va_bits - page_shift;
        while left > 0 {
            let bits = left.min(full);
            let level = shape.levels as usize;
            shape.index_bits[level] = bits as u8;
            shape.orders[level + 1] = shape.orders[level] + bits as u8;
            shape.levels += 1;
            left -= bits;
        }
        shape
    }

    /// The level of the root table.
    #[inline]
    pub fn root_level(&self) -> u8 {
        self.levels - 1
    }

    /// The size that one entry of `level` translates.
    #[inline]
    pub fn order(&self, level: u8) -> Order {
        Order::new(self.orders[level as usize])
    }

    /// How many entries a table of `level` has.
    #[inline]
    pub fn entries(&self, level: u8) -> usize {
        1 << self.index_bits[level as usize]
    }

    /// The entry of a table of `level` that translates `page`.
    #[inline]
    pub fn index(&self, page: Vpn, level: u8) -> usize {
        (page.get() >> self.orders[level as usize]) as usize & (self.entries(level) - 1)
    }

    /// The page that holds `addr`; `None` for an address that the tables do not translate: not
    /// sign-extended (x86-64, riscv64), or not in the lower half (arm64's `TTBR0_EL1`).
    #[inline]
    pub fn page(&self, addr: VirtAddr) -> Option<Vpn> {
        let above = if self.signed {
            (addr.get() as i64) >> (self.va_bits - 1)
        } else {
            (addr.get() >> self.va_bits) as i64
        };
        let canonical = above == 0 || (self.signed && above == -1);
        canonical.then(|| addr.vpn(self.page_shift))
    }
}
