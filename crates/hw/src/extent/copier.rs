//! One way to copy.

use core::fmt;
use core::sync::atomic::AtomicU64;

use super::{Facts, GRAIN, isa, portable};
use crate::Reuse;

/// One way to copy an extent, which this CPU has.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CopyBackend(Way);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Way {
    Isa(isa::CopyWay),
    Portable,
}

impl CopyBackend {
    /// Plain 64-bit loads and stores as the compiler makes them: exists everywhere.
    pub const PORTABLE: CopyBackend = CopyBackend(Way::Portable);

    /// All backends this CPU has, [`PORTABLE`](Self::PORTABLE) last. Queries the CPU, which takes
    /// microseconds in a virtual machine: for set-up, not for each copy.
    pub fn available() -> impl Iterator<Item = CopyBackend> {
        let isa = isa::CopyWay::available().map(|copy| CopyBackend(Way::Isa(copy)));
        isa.chain(core::iter::once(Self::PORTABLE))
    }

    /// The backend called `name`, if this CPU has it.
    pub fn by_name(name: &str) -> Option<CopyBackend> {
        Self::available().find(|backend| backend.name() == name)
    }

    /// The one of `candidates` that is usually best for extents of `bytes` on the ISA's known CPUs;
    /// the first candidate where no preference is known.
    pub(crate) fn usual(bytes: u64, reuse: Reuse, candidates: &[CopyBackend]) -> CopyBackend {
        let wishes = isa::CopyWay::wishes(bytes, reuse).iter();
        let first = candidates.first().copied().unwrap_or(Self::PORTABLE);
        let mut wishes = wishes.map(|copy| CopyBackend(Way::Isa(*copy)));
        wishes.find(|wish| candidates.contains(wish)).unwrap_or(first)
    }

    fn facts(self) -> Facts {
        match self.0 {
            Way::Isa(copy) => copy.facts(),
            Way::Portable => Facts::new("portable", true, false),
        }
    }

    /// The name, as [`by_name`](Self::by_name) and the benches take it.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// Whether the written lines stay in the near caches as far as they fit.
    pub fn caches(self) -> bool {
        self.facts().caches
    }

    /// Whether it uses vector registers, which a kernel may touch only where it saves them.
    pub fn needs_vectors(self) -> bool {
        self.facts().vectors
    }

    /// Copies `bytes` from `from` on over those from `to` on. See the [contract](super).
    /// Where the two overlap, the bytes of `to` are unspecified.
    ///
    /// # Safety
    /// 1. `to`, `from` and `bytes` are multiples of [`GRAIN`], and both extents are ordinary,
    ///    mapped memory of one allocation each, that of `to` writable.
    /// 2. Meanwhile no other code accesses `to`, nor writes `from`, but by atomic 64-bit
    ///    operations.
    /// 3. Where [`needs_vectors`](Self::needs_vectors), vector registers may be overwritten.
    #[inline]
    pub unsafe fn copy_raw(self, to: *mut u8, from: *const u8, bytes: usize) {
        if bytes == 0 {
            return;
        }
        debug_assert!(to.addr().is_multiple_of(GRAIN) && from.addr().is_multiple_of(GRAIN));
        debug_assert!(bytes.is_multiple_of(GRAIN));
        match self.0 {
            // SAFETY: a `CopyBackend` exists only where its instructions do; the extent is not
            // empty; the rest is passed on to the caller.
            Way::Isa(copy) => unsafe { copy.run(to, from, bytes) },
            // SAFETY: passed on to the caller; `GRAIN` is a multiple of a word.
            Way::Portable => unsafe { portable::copy(to.cast(), from.cast(), bytes / 8) },
        }
    }

    /// Copies `from` over `to`, of any alignment. The backend itself is used only where both begin
    /// at the same offset in their pages.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn copy(self, to: &mut [u8], from: &[u8]) {
        assert_eq!(to.len(), from.len());
        let head = from.as_ptr().align_offset(GRAIN).min(from.len());
        if to.as_ptr().align_offset(GRAIN).min(to.len()) != head {
            return to.copy_from_slice(from);
        }
        let bulk = (from.len() - head) / GRAIN * GRAIN;
        let (to_head, to) = to.split_at_mut(head);
        let (from_head, from) = from.split_at(head);
        to_head.copy_from_slice(from_head);
        let (to, to_tail) = to.split_at_mut(bulk);
        let (from, from_tail) = from.split_at(bulk);
        // SAFETY: 1 by the splits and the comparison of the heads, 2 by the two borrows; 3: code
        // that holds a slice runs under the ABI of the target, which lets a callee overwrite
        // vector registers.
        unsafe { self.copy_raw(to.as_mut_ptr(), from.as_ptr(), bulk) };
        to_tail.copy_from_slice(from_tail);
    }

    /// Copies `from` over `to`, both of which other CPUs may access meanwhile. Any alignment; the
    /// backend itself is used only where both begin at the same offset in their pages. Where the
    /// two overlap, the words of `to` are unspecified.
    ///
    /// # Panics
    /// When the lengths differ.
    #[inline]
    pub fn copy_words(self, to: &[AtomicU64], from: &[AtomicU64]) {
        assert_eq!(to.len(), from.len());
        let head = from.as_ptr().align_offset(GRAIN).min(from.len());
        if to.as_ptr().align_offset(GRAIN).min(to.len()) != head {
            return portable::copy_words(to, from);
        }
        let bulk = (from.len() - head) / (GRAIN / 8) * (GRAIN / 8);
        let (to_head, to) = to.split_at(head);
        let (from_head, from) = from.split_at(head);
        portable::copy_words(to_head, from_head);
        let (to, to_tail) = to.split_at(bulk);
        let (from, from_tail) = from.split_at(bulk);
        // SAFETY: 1 by the splits and the comparison of the heads; atomics may be written through a
        // shared borrow; 2: the type allows other code only atomic 64-bit accesses; 3 as in `copy`.
        unsafe { self.copy_raw(to.as_ptr().cast_mut().cast(), from.as_ptr().cast(), bulk * 8) };
        portable::copy_words(to_tail, from_tail);
    }
}

impl fmt::Debug for CopyBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for CopyBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
