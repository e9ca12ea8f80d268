//! The type of memory behind a mapping.

/// How CPUs access the frames of a mapping: through their caches, and in which order.
///
/// All mappings of a frame have one type at any time. Where two differ, a CPU may read what another
/// has overwritten, and some CPUs stop (Intel SDM volume 3A, *Programming the PAT*; Arm ARM,
/// *Mismatched memory attributes*).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum MemoryType {
    /// The memory of programs: cached, written back. On riscv64 it is the type that the platform
    /// gives the address (its physical memory attributes, PMAs).
    #[default]
    Usual,
    /// Memory that no cache holds; stores may be combined and accesses reordered: a frame buffer
    /// (x86-64: WC; arm64: Normal, non-cacheable; riscv64: Svpbmt's NC).
    Combining,
    /// Registers: not cached, and each access happens once, as the program orders it (x86-64: UC;
    /// arm64: Device-nGnRE or -nGnRnE; riscv64: Svpbmt's IO).
    Device,
}

impl MemoryType {
    /// All types.
    pub const ALL: [Self; 3] = [Self::Usual, Self::Combining, Self::Device];
}
