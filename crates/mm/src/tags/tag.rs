//! The tag of one space, and the CPUs that may hold translations of it.

use quire_units::{Asid, CpuId, CpuSet};

use crate::sync::{AtomicU64, Ordering};

/// Bits of a tag in an identity; above them stands the generation.
pub(super) const NUMBER_BITS: u32 = 16;

/// The tag under which TLBs keep the translations of a space, and the CPUs that may hold some. The
/// [rules](super#how-a-tag-changes) say when it may change.
///
/// An identity is one word: the generation in which [`Asids`](super::Asids) gave the tag, and the
/// tag. Generation 0: the embedder gave it.
#[derive(Debug)]
pub struct Tag {
    identity: AtomicU64,
    cpus: CpuSet,
}

crate::sync::names!([] Tag, "tags" { identity, cpus });

impl Tag {
    /// The tag `asid`, which the embedder gives. No CPU holds translations.
    #[cfg(not(loom))]
    pub const fn new(asid: Asid) -> Self {
        Self { identity: AtomicU64::new(asid.0 as u64), cpus: CpuSet::new() }
    }

    /// The tag `asid`, which the embedder gives. No CPU holds translations.
    #[cfg(loom)]
    pub fn new(asid: Asid) -> Self {
        Self { identity: AtomicU64::new(asid.0 as u64), cpus: CpuSet::new() }
    }

    /// The tag that the space has now. While a CPU is in the space, it does not change.
    #[inline]
    pub fn asid(&self) -> Asid {
        Asid(self.identity.load(Ordering::Relaxed) as u16)
    }

    /// Gives the space the tag `asid` of the embedder's. No CPU holds translations under it, as far
    /// as the set knows: the caller keeps rule 1 of [the rules](super#how-a-tag-changes).
    pub fn set(&self, asid: Asid) {
        self.change(asid.0.into());
    }

    /// The CPUs that may hold translations of the space.
    #[inline]
    pub fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// `cpu` may hold translations from now on. Whether those that it has under the tag may be out
    /// of date: it was not among these CPUs, or stepped [aside](Self::step_aside) before a flush.
    /// Call it after the tag was read, and before the root register is written.
    #[inline]
    pub fn join(&self, cpu: CpuId) -> bool {
        self.cpus.insert(cpu)
    }

    /// `cpu` uses no translation any more: it has left the space *and* flushed the tag, or flushes
    /// it whenever it [joins](Self::join) the space again.
    #[inline]
    pub fn leave(&self, cpu: CpuId) {
        self.cpus.remove(cpu);
    }

    /// `cpu` has left the space, and keeps what it holds: no flush waits for it. Its next
    /// [`join`](Self::join) says whether a flush came meanwhile.
    #[inline]
    pub fn step_aside(&self, cpu: CpuId) {
        self.cpus.step_aside(cpu);
    }

    /// The identity. A CPU that reads it also sees the steps before it was set: of a rollover, and
    /// of emptying the set.
    #[inline]
    pub(super) fn identity(&self) -> u64 {
        self.identity.load(Ordering::Acquire)
    }

    /// The same number in another generation: translations under it stay right.
    pub(super) fn renew(&self, identity: u64) {
        self.identity.store(identity, Ordering::Release);
    }

    /// Another number: CPUs that hold translations under the old one do not use them again.
    pub(super) fn change(&self, identity: u64) {
        self.cpus.clear();
        self.identity.store(identity, Ordering::Release);
    }
}
