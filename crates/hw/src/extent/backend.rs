//! One way to clear.

use core::fmt;
use core::sync::atomic::AtomicU64;

use super::{Facts, GRAIN, isa, portable};
use crate::Reuse;

/// One way to clear an extent, which this CPU has.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Backend(Way);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Way {
    Isa(isa::ClearWay),
    Portable,
}

impl Backend {
    /// Plain 64-bit stores as the compiler makes them: exists everywhere.
    pub const PORTABLE: Backend = Backend(Way::Portable);

    /// All backends this CPU has, [`PORTABLE`](Self::PORTABLE) last. Queries the CPU, which takes
    /// microseconds in a virtual machine: for set-up, not for each clear.
    pub fn available() -> impl Iterator<Item = Backend> {
        let isa = isa::ClearWay::available().map(|clear| Backend(Way::Isa(clear)));
        isa.chain(core::iter::once(Self::PORTABLE))
    }

    /// The backend called `name`, if this CPU has it.
    pub fn by_name(name: &str) -> Option<Backend> {
        Self::available().find(|backend| backend.name() == name)
    }

    /// Zicboz `cbo.zero` with blocks of `block_bytes`; `None` where that is not a power of two from
    /// 8 to [`GRAIN`]. Software cannot query a RISC-V CPU: the device tree has the size
    /// (`riscv,cboz-block-size`), or `riscv_hwprobe` under Linux.
    ///
    /// # Safety
    /// All CPUs have Zicboz with blocks of this size, and the current privilege level may use it
    /// (`menvcfg.CBZE`, and `senvcfg.CBZE` for user mode).
    #[cfg(target_arch = "riscv64")]
    pub unsafe fn zicboz(block_bytes: usize) -> Option<Backend> {
        // SAFETY: passed on to the caller.
        unsafe { isa::ClearWay::zicboz(block_bytes) }.map(|clear| Backend(Way::Isa(clear)))
    }

    /// The one of `candidates` that is usually best for extents of `bytes` on the ISA's known CPUs;
    /// the first candidate where no preference is known.
    pub(crate) fn usual(bytes: u64, reuse: Reuse, candidates: &[Backend]) -> Backend {
        let wishes = isa::ClearWay::wishes(bytes, reuse).iter();
        let first = candidates.first().copied().unwrap_or(Self::PORTABLE);
        let mut wishes = wishes.map(|clear| Backend(Way::Isa(*clear)));
        wishes.find(|wish| candidates.contains(wish)).unwrap_or(first)
    }

    fn facts(self) -> Facts {
        match self.0 {
            Way::Isa(clear) => clear.facts(),
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

    /// Clears `bytes` from `start` on. See the [contract](super).
    ///
    /// # Safety
    /// 1. `start` and `bytes` are multiples of [`GRAIN`], and the bytes are ordinary, mapped,
    ///    writable memory of one allocation that `start` may access.
    /// 2. Meanwhile no other code accesses them but by atomic 64-bit operations.
    /// 3. Where [`needs_vectors`](Self::needs_vectors), vector registers may be overwritten.
    #[inline]
    pub unsafe fn clear_raw(self, start: *mut u8, bytes: usize) {
        if bytes == 0 {
            return;
        }
        debug_assert!(start.addr().is_multiple_of(GRAIN) && bytes.is_multiple_of(GRAIN));
        match self.0 {
            // SAFETY: a `Backend` exists only where its instructions do; the extent is not empty;
            // the rest is passed on to the caller.
            Way::Isa(clear) => unsafe { clear.run(start, bytes) },
            // SAFETY: passed on to the caller; `GRAIN` is a multiple of a word.
            Way::Portable => unsafe { portable::clear(start.cast(), bytes / 8) },
        }
    }

    /// Clears `extent`, of any alignment and length.
    pub fn clear(self, extent: &mut [u8]) {
        let head = extent.as_ptr().align_offset(GRAIN).min(extent.len());
        let (head, rest) = extent.split_at_mut(head);
        let (bulk, tail) = rest.split_at_mut(rest.len() / GRAIN * GRAIN);
        head.fill(0);
        // SAFETY: 1 by the two splits, 2 by the exclusive borrow; 3: code that holds a slice runs
        // under the ABI of the target, which lets a callee overwrite vector registers.
        unsafe { self.clear_raw(bulk.as_mut_ptr(), bulk.len()) };
        tail.fill(0);
    }

    /// Clears `extent`, which other CPUs may load from meanwhile. Any alignment and length.
    #[inline]
    pub fn clear_words(self, extent: &[AtomicU64]) {
        let (start, bytes) = (extent.as_ptr(), extent.len() * 8);
        if (start.addr() | bytes).is_multiple_of(GRAIN) {
            // SAFETY: 1 by the check above; atomics may be written through a shared borrow; 2: the
            // type allows other code only atomic 64-bit accesses; 3 as in `clear`.
            return unsafe { self.clear_raw(start.cast_mut().cast(), bytes) };
        }
        self.clear_crooked(extent);
    }

    /// The same for an extent that does not begin and end at a grain.
    #[inline(never)]
    fn clear_crooked(self, extent: &[AtomicU64]) {
        let head = extent.as_ptr().align_offset(GRAIN).min(extent.len());
        let (head, rest) = extent.split_at(head);
        let (bulk, tail) = rest.split_at(rest.len() / (GRAIN / 8) * (GRAIN / 8));
        portable::clear_words(head);
        // SAFETY: 1 by the two splits; 2 and 3 as in `clear_words`.
        unsafe { self.clear_raw(bulk.as_ptr().cast_mut().cast(), bulk.len() * 8) };
        portable::clear_words(tail);
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
