//! The configuration of a machine.

use std::fmt;

use quire_hw::{MemoryTypes, Transitions, TypedBy};
use quire_units::{Asid, CPUS_MAX, FrameSpan, MemoryType, PhysAddr};

use crate::clock::Time;
use crate::mmu::{Flaw, Granule, Isa, Leaf, Meaning, Sv};
use crate::tlb::TlbGeometry;

/// The address of the first register of the machine's device: 16 TiB.
pub const DEVICES_BYTES: u64 = 1 << 44;

/// How strictly the machine checks the library; see [`examiner`](crate::examiner).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Examine {
    /// Not at all, as for measurements.
    Off,
    /// Every rule that costs little for each event.
    Usual,
    /// As `Usual`, and all tables are searched whenever frames are freed.
    Thorough,
}

/// The configuration of a machine. Start from a preset and change fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The instruction set and page-table format.
    pub isa: Isa,
    /// How many CPUs.
    pub cpus: usize,
    /// The address of the first byte of RAM: a multiple of the base page, not 0, so that frame 0 is
    /// never RAM and an address that was never set shows.
    pub ram_start_bytes: u64,
    /// The TLB of each CPU.
    pub tlb: TlbGeometry,
    /// The walker sets the accessed flag (arm64: FEAT_HAFDBS, riscv64: Svadu); otherwise the first
    /// access traps. x86-64 always does.
    pub sets_accessed: bool,
    /// The walker sets the dirty flag; otherwise the first store traps. x86-64 always does.
    pub sets_dirty: bool,
    /// How a live entry may change its size (arm64: FEAT_BBM).
    pub transitions: Transitions,
    /// The CPU has contiguous blocks (riscv64: Svnapot; arm64: all parts without an erratum against
    /// them). Without them, a contiguous entry is malformed. x86-64 has none either way.
    pub contiguous: bool,
    /// How mappings get their memory types. An entry that says a type which entries of this CPU
    /// cannot say (riscv64 without Svpbmt) is malformed. The PAT or `MAIR_EL1` has the types where
    /// the formats of `quire-arch` have them unless told otherwise.
    pub memory_types: MemoryTypes,
    /// How many frames at the end of the RAM are the registers of a device instead, at
    /// [`DEVICES_BYTES`]. Programs reach them through mappings; they are not the library's.
    pub device_frames: u64,
    /// Contiguous blocks are cached as one translation, and the walker sets flags in any of the
    /// entries, not always in the one that it walked. Hardware may also ignore the hint; then each
    /// entry of a block has its own translation and its own flags.
    pub joins_contiguous: bool,
    /// A cached translation that denies the access is dropped and walked again, as x86-64 does.
    /// Without it, the translation denies until it is flushed, as arm64 and riscv64 allow.
    pub rewalks_on_denial: bool,
    /// A CPU goes on using that an entry was not valid until it is flushed, as riscv64 may without
    /// Svvptc: with `tables`, unless the entry is of the last level.
    pub caches_absence: bool,
    /// Instruction fetches see all stores at once, as on x86-64, and on arm64 with CTR_EL0.IDC and
    /// DIC. Otherwise a frame must be published before it is executed.
    pub coherent_code: bool,
    /// Bits of a space's tag that the CPU has; it ignores those above. x86-64 has 12 (PCID) or 0,
    /// arm64 16 or 8, riscv64 0 to 16. Without any, all spaces share tag 0, and only x86-64 drops
    /// translations where a root is installed.
    pub asid_bits: u32,
    /// Spaces' tags change: translations under a tag that their CPU does not use now may then
    /// outlive their frames, and the examiner judges them when the CPU uses the tag again.
    pub retags: bool,
    /// Size of the caches near a CPU; see [`Profile`](quire_hw::Profile).
    pub near_cache_bytes: u64,
    /// Bytes that may be cleared between preemption points; see [`Profile`](quire_hw::Profile).
    pub clear_unit_bytes: u64,
    /// How strict the examiner is.
    pub examine: Examine,
    /// Panic at the first violation, for a backtrace, instead of keeping it for the verdict. Other
    /// threads may then wait for locks that the panicking thread held.
    pub panics: bool,
    /// Keep [`Counts`](crate::Counts).
    pub counts: bool,
    /// How time passes.
    pub time: Time,
}

impl Config {
    /// A machine with one CPU that sets accessed and dirty flags, with the usual examination.
    pub fn new(isa: Isa) -> Self {
        Self {
            isa,
            cpus: 1,
            ram_start_bytes: 1 << 30,
            tlb: TlbGeometry::default(),
            sets_accessed: true,
            sets_dirty: true,
            transitions: Transitions::Base,
            contiguous: true,
            memory_types: MemoryTypes::ENTRIES,
            device_frames: 0,
            joins_contiguous: true,
            rewalks_on_denial: true,
            caches_absence: false,
            coherent_code: matches!(isa, Isa::X86_64 { .. }),
            asid_bits: isa.asid_bits().last().copied().unwrap_or_default(),
            retags: false,
            near_cache_bytes: 1 << 20,
            clear_unit_bytes: u64::MAX,
            examine: Examine::Usual,
            panics: false,
            counts: true,
            time: Time::Stepped(1000),
        }
    }

    /// x86-64 with four levels.
    pub fn x86_64() -> Self {
        Self::new(Isa::X86_64 { levels: 4 })
    }

    /// x86-64 with five levels.
    pub fn x86_64_la57() -> Self {
        Self::new(Isa::X86_64 { levels: 5 })
    }

    /// arm64 with 4 KiB pages and 48-bit addresses.
    pub fn arm64_4k() -> Self {
        Self::new(Isa::Arm64 { granule: Granule::K4, va_bits: 48 })
    }

    /// arm64 with 16 KiB pages and 47-bit addresses: three full levels.
    pub fn arm64_16k_47() -> Self {
        Self::new(Isa::Arm64 { granule: Granule::K16, va_bits: 47 })
    }

    /// arm64 with 16 KiB pages and 48-bit addresses: a root of two entries above three levels.
    pub fn arm64_16k() -> Self {
        Self::new(Isa::Arm64 { granule: Granule::K16, va_bits: 48 })
    }

    /// arm64 with 64 KiB pages and 48-bit addresses.
    pub fn arm64_64k() -> Self {
        Self::new(Isa::Arm64 { granule: Granule::K64, va_bits: 48 })
    }

    /// riscv64 Sv39.
    pub fn riscv64_sv39() -> Self {
        Self::new(Isa::Riscv64(Sv::Sv39))
    }

    /// riscv64 Sv48.
    pub fn riscv64_sv48() -> Self {
        Self::new(Isa::Riscv64(Sv::Sv48))
    }

    /// riscv64 Sv57.
    pub fn riscv64_sv57() -> Self {
        Self::new(Isa::Riscv64(Sv::Sv57))
    }

    /// With this many CPUs.
    pub fn with_cpus(self, cpus: usize) -> Self {
        Self { cpus, ..self }
    }

    /// For measurements: no examination, no counters, and the host's clock.
    pub fn bare(self) -> Self {
        Self { examine: Examine::Off, counts: false, time: Time::Host, ..self }
    }

    /// The meaning of a word for this CPU; see [`Isa::decode`].
    #[inline]
    pub(crate) fn decode(&self, word: u64, level: u8, index: usize) -> Meaning {
        match self.isa.decode(word, level, index) {
            Meaning::Leaf(leaf) if leaf.is_contiguous() && !self.contiguous => {
                Meaning::Malformed(Flaw::NoContiguous)
            }
            Meaning::Leaf(leaf) => match self.mistyped(&leaf) {
                Some(flaw) => Meaning::Malformed(flaw),
                None => Meaning::Leaf(leaf),
            },
            meaning => meaning,
        }
    }

    /// The flaw of a leaf's memory type.
    #[inline]
    fn mistyped(&self, leaf: &Leaf) -> Option<Flaw> {
        match self.isa.memory_type(leaf.memory) {
            Some(MemoryType::Usual) => {
                let types = self.memory_types.device == TypedBy::Entry;
                (types && self.devices().contains(leaf.frame)).then_some(Flaw::CachedDevice)
            }
            Some(memory) if self.memory_types.of(memory) == TypedBy::Entry => None,
            _ => Some(Flaw::NoMemoryType),
        }
    }

    /// The frames of the device's registers.
    #[inline]
    pub(crate) fn devices(&self) -> FrameSpan {
        let first = PhysAddr::new(DEVICES_BYTES).pfn(self.isa.geometry().page_shift);
        FrameSpan::new(first, self.device_frames)
    }

    /// Whether a live entry may change its size.
    pub(crate) fn relaxed(&self) -> bool {
        self.transitions == Transitions::BbmLevel2
    }

    /// The tag that a CPU takes `asid` for.
    #[inline]
    pub(crate) fn tag(&self, asid: Asid) -> Asid {
        Asid((u32::from(asid.0) & ((1 << self.asid_bits) - 1)) as u16)
    }

    /// Whether a CPU drops its translations where it installs a root: `CR3` without PCID.
    pub(crate) fn drops_at_switch(&self) -> bool {
        self.asid_bits == 0 && self.isa.always_sets_flags()
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let page = 1u64 << self.isa.geometry().page_shift;
        let sets = self.tlb.sets;
        let two_levels = sets == 0 || (sets.is_power_of_two() && self.tlb.ways > 0);
        if self.cpus == 0 || self.cpus > CPUS_MAX {
            Err(ConfigError::Cpus(self.cpus))
        } else if self.ram_start_bytes == 0 || !self.ram_start_bytes.is_multiple_of(page) {
            Err(ConfigError::RamStart(self.ram_start_bytes))
        } else if self.tlb.first == 0 || !two_levels {
            Err(ConfigError::Tlb(self.tlb))
        } else if self.isa.always_sets_flags() && !(self.sets_accessed && self.sets_dirty) {
            Err(ConfigError::Flags)
        } else if !self.isa.asid_bits().contains(&self.asid_bits) {
            Err(ConfigError::AsidBits(self.asid_bits))
        } else {
            Ok(())
        }
    }
}

/// Why there is no such machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigError {
    /// There are at least 1 and at most [`CPUS_MAX`] CPUs, not this many.
    Cpus(usize),
    /// RAM cannot begin here.
    RamStart(u64),
    /// A TLB of this geometry cannot be built.
    Tlb(TlbGeometry),
    /// x86-64 always sets accessed and dirty flags.
    Flags,
    /// No CPU of the ISA has tags of this width.
    AsidBits(u32),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Cpus(cpus) => {
                write!(f, "a machine has 1 to {CPUS_MAX} CPUs, not {cpus}")
            }
            ConfigError::RamStart(bytes) => {
                write!(f, "RAM cannot begin at {bytes:#x}: not a whole page, or the first")
            }
            ConfigError::Tlb(tlb) => write!(f, "there is no TLB of this geometry: {tlb:?}"),
            ConfigError::AsidBits(bits) => write!(f, "no CPU of the ISA has {bits} bits of tags"),
            ConfigError::Flags => f.write_str("x86-64 always sets accessed and dirty flags"),
        }
    }
}

impl std::error::Error for ConfigError {}
