//! CPUs, sets of CPUs, and the tag of an address space in a TLB.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

/// How many CPUs a system may have: numbers 0 up to but not including this.
pub const CPUS_MAX: usize = 256;

const WORDS: usize = CPUS_MAX / 64;

/// The number of a CPU, below [`CPUS_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CpuId(u16);

impl CpuId {
    /// CPU `number`.
    ///
    /// # Panics
    /// When `number` is not below [`CPUS_MAX`].
    #[inline]
    pub const fn new(number: usize) -> Self {
        assert!(number < CPUS_MAX);
        Self(number as u16)
    }

    /// The number as an index into a per-CPU table.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The tag under which a TLB keeps the translations of one address space: PCID on x86-64, ASID on
/// arm64 and riscv64. The embedder assigns it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Asid(pub u16);

/// A set of CPUs that several CPUs may change at once.
#[derive(Default)]
pub struct CpuSet([AtomicU64; WORDS]);

impl CpuSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; WORDS])
    }

    /// Adds `cpu`, sequentially consistently: when another CPU afterwards changes a page-table
    /// entry and then reads the set, either it sees `cpu` in the set, or `cpu` sees the changed
    /// entry. Whether it was not in the set before.
    #[inline]
    pub fn insert(&self, cpu: CpuId) -> bool {
        let bit = 1 << (cpu.index() % 64);
        let word = &self.0[cpu.index() / 64];
        let is_new = word.load(Ordering::Relaxed) & bit == 0;
        if is_new {
            word.fetch_or(bit, Ordering::SeqCst);
        }
        is_new
    }

    /// Removes `cpu`.
    #[inline]
    pub fn remove(&self, cpu: CpuId) {
        self.0[cpu.index() / 64].fetch_and(!(1 << (cpu.index() % 64)), Ordering::SeqCst);
    }

    /// Removes all CPUs, word by word.
    pub fn clear(&self) {
        self.0.iter().for_each(|word| word.store(0, Ordering::SeqCst));
    }

    /// Whether `cpu` is in the set.
    #[inline]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.0[cpu.index() / 64].load(Ordering::SeqCst) & (1 << (cpu.index() % 64)) != 0
    }

    /// Whether no CPU is in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| word.load(Ordering::Acquire) == 0)
    }

    /// Whether no CPU but `cpu` is in the set.
    #[inline]
    pub fn only(&self, cpu: CpuId) -> bool {
        self.0.iter().enumerate().all(|(at, word)| {
            let own = if at == cpu.index() / 64 { 1 << (cpu.index() % 64) } else { 0 };
            word.load(Ordering::SeqCst) & !own == 0
        })
    }

    /// The CPUs in the set, ascending. Each word of 64 CPUs is read at once, the words one by one.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let mut bits = word.load(Ordering::SeqCst);
            core::iter::from_fn(move || {
                let bit = bits.trailing_zeros();
                bits &= bits.checked_sub(1)?;
                Some(CpuId::new(at * 64 + bit as usize))
            })
        })
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(CpuId::index)).finish()
    }
}
