//! CPUs, sets of CPUs, and the tag of an address space in a TLB.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

/// How many CPUs a system may have: numbers 0 up to but not including this.
pub const CPUS_MAX: usize = 256;

/// CPUs of one word of a set.
const PER_WORD: usize = 32;
const WORDS: usize = CPUS_MAX / PER_WORD;
/// The bits of a word for members; those above are for CPUs that stepped aside.
const MEMBERS: u64 = (1 << PER_WORD) - 1;

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

/// A set of CPUs that several CPUs may change at once. A CPU that leaves it may *step aside*: the
/// set then knows whether another CPU has read the members since.
///
/// ```text
///             insert: true                step_aside
///   outside ─────────────────► member ──────────────────► aside
///      ▲                          ▲                         │ │
///      │                          └───── insert: false ─────┘ │
///      └────── a CPU reads the members: iter, only, is_empty ─┘
/// ```
///
/// One word holds both states of a CPU, so a reading and a change of state have an order.
#[derive(Default)]
pub struct CpuSet([AtomicU64; WORDS]);

impl CpuSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; WORDS])
    }

    /// The word of `cpu`, and its bits in that: as a member, and aside.
    #[inline]
    fn word(&self, cpu: CpuId) -> (&AtomicU64, u64, u64) {
        let bit = 1 << (cpu.index() % PER_WORD);
        (&self.0[cpu.index() / PER_WORD], bit, bit << PER_WORD)
    }

    /// The members of a word. CPUs aside are outside from then on.
    #[inline]
    fn members(word: &AtomicU64) -> u64 {
        let bits = word.load(Ordering::SeqCst);
        match bits & !MEMBERS {
            0 => bits,
            _ => word.fetch_and(MEMBERS, Ordering::SeqCst) & MEMBERS,
        }
    }

    /// Adds `cpu`, sequentially consistently: when another CPU afterwards changes a page-table
    /// entry and then reads the set, either it sees `cpu` in the set, or `cpu` sees the changed
    /// entry. Whether it was outside: `false` for a member, and for a CPU that stepped aside if no
    /// CPU has read the members since.
    #[inline]
    pub fn insert(&self, cpu: CpuId) -> bool {
        let (word, member, aside) = self.word(cpu);
        let mut bits = word.load(Ordering::Relaxed);
        while bits & member == 0 {
            let new = (bits | member) & !aside;
            match word.compare_exchange_weak(bits, new, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return bits & aside == 0,
                Err(other) => bits = other,
            }
        }
        false
    }

    /// Removes `cpu`.
    #[inline]
    pub fn remove(&self, cpu: CpuId) {
        let (word, member, aside) = self.word(cpu);
        word.fetch_and(!(member | aside), Ordering::SeqCst);
    }

    /// Removes `cpu`, a member, until it is inserted again, which says whether another CPU has read
    /// the members meanwhile. Only `cpu` itself calls this.
    #[inline]
    pub fn step_aside(&self, cpu: CpuId) {
        let (word, member, aside) = self.word(cpu);
        if word.load(Ordering::Relaxed) & member != 0 {
            word.fetch_xor(member | aside, Ordering::SeqCst);
        }
    }

    /// Removes all CPUs, word by word.
    pub fn clear(&self) {
        self.0.iter().for_each(|word| word.store(0, Ordering::SeqCst));
    }

    /// Whether `cpu` is in the set.
    #[inline]
    pub fn contains(&self, cpu: CpuId) -> bool {
        let (word, member, _) = self.word(cpu);
        word.load(Ordering::SeqCst) & member != 0
    }

    /// Whether no CPU is in the set. If so, all CPUs aside are outside from then on: a caller that
    /// finds no CPU to flush need not flush.
    // A flush is far more: a call to this is small.
    #[inline(never)]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| Self::members(word) == 0)
    }

    /// Whether no CPU but `cpu` is in the set. If so, all CPUs aside are outside from then on.
    #[inline]
    pub fn only(&self, cpu: CpuId) -> bool {
        self.0.iter().enumerate().all(|(at, word)| {
            let own = if at == cpu.index() / PER_WORD { self.word(cpu).1 } else { 0 };
            Self::members(word) & !own == 0
        })
    }

    /// The CPUs in the set, ascending; CPUs aside are outside from then on. Each word of 32 CPUs is
    /// read at once, the words one by one.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let mut bits = Self::members(word);
            core::iter::from_fn(move || {
                let bit = bits.trailing_zeros();
                bits &= bits.checked_sub(1)?;
                Some(CpuId::new(at * PER_WORD + bit as usize))
            })
        })
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = (0..CPUS_MAX).filter(|at| self.contains(CpuId::new(*at)));
        f.debug_set().entries(all).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e10_a_cpu_aside_is_outside_once_the_members_are_read() {
        let (set, one, other) = (CpuSet::new(), CpuId::new(3), CpuId::new(200));
        assert!(set.insert(one) && !set.insert(one));
        set.step_aside(one);
        assert!(!set.contains(one));
        assert!(!set.insert(one), "no CPU has read the members");
        set.step_aside(one);
        assert!(set.is_empty() && set.insert(one), "the members were read: there are none");
        let reads: [fn(&CpuSet) -> bool; 3] =
            [|set| set.iter().count() == 1, |set| set.only(CpuId::new(200)), |set| !set.is_empty()];
        set.insert(other);
        for read in reads {
            set.step_aside(one);
            assert!(read(&set) && set.insert(one), "the members were read");
        }
        set.step_aside(one);
        set.remove(one);
        assert!(set.insert(one), "a CPU that was removed is outside");
        set.remove(one);
        set.step_aside(one);
        assert!(set.insert(one), "only a member steps aside");
    }

    #[test]
    fn e10_sets_beside_each_other_keep_to_themselves() {
        let set = CpuSet::new();
        let all = [0, 31, 32, 63, 64, 255].map(CpuId::new);
        for cpu in all {
            assert!(set.insert(cpu));
        }
        assert!(set.iter().eq(all));
        set.step_aside(all[1]);
        assert!(set.iter().eq(all.into_iter().filter(|cpu| *cpu != all[1])));
        assert!(!set.only(all[0]) && !set.contains(all[1]));
        set.clear();
        assert!(set.is_empty() && set.only(all[0]));
    }
}
