//! The embedder's own tables: the kernel's half, which is under every root.
//!
//! They are made once, before there is a memory manager, out of early memory, and never change.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use quire_arch::{Arch, Attrs, Level};
use quire_hw::{Early, SetupError};
use quire_units::{FrameSpan, Order, PageSpan, Pfn, Vpn};

/// A stretch of the kernel's half.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// The pages, in the upper half: addresses of 64 bits, shifted.
    pub pages: PageSpan,
    /// The frames that they show, from the first on; again from the first on where there are fewer
    /// than pages.
    pub frames: FrameSpan,
    /// The rights, and the memory type where it is not the usual one.
    pub attrs: Attrs,
}

impl Region {
    /// The whole pages in `bytes` of physical memory, where a direct map shows them that shows
    /// address 0 at `direct`, a multiple of the page.
    pub fn direct<A: Arch>(direct: u64, bytes: Range<u64>, attrs: Attrs) -> Self {
        let first = bytes.start.div_ceil(1 << A::PAGE_SHIFT);
        let count = (bytes.end >> A::PAGE_SHIFT).saturating_sub(first);
        let start = Vpn::new((direct >> A::PAGE_SHIFT) + first);
        let pages = PageSpan::new(start, start.add(count));
        Self { pages, frames: FrameSpan::new(Pfn::new(first), count), attrs }
    }

    /// The leaf for the block `pages`, if one leaf can show it.
    fn leaf<A: Arch>(&self, level: Level, pages: PageSpan, largest: Order) -> Option<u64> {
        let past = pages.start.get().checked_sub(self.pages.start.get())?;
        let past = past.checked_rem(self.frames.count)?;
        let frame = self.frames.start.add(past);
        let fits = A::is_leaf_level(level)
            && A::order(level) <= largest
            && self.pages.covers(pages)
            && pages.count() <= self.frames.count - past
            && frame.is_aligned(pages.count());
        // The same in all spaces; and no CPU has to record its accesses.
        let attrs = self.attrs | Attrs::GLOBAL | Attrs::YOUNG | Attrs::DIRTY;
        fits.then(|| A::leaf(frame, level, attrs))
    }
}

/// The kernel's half, with a root of its own.
#[derive(Clone, Copy, Debug)]
pub struct KernelHalf {
    root: Pfn,
    words: &'static [AtomicU64],
}

impl KernelHalf {
    /// Makes it, with the largest leaves that fit, of order `largest` at most: on x86-64, CPUs
    /// without PDPE1GB lack leaves of 1 GiB, and all have [`Arch::block_order`]. Where regions
    /// overlap, the first one counts.
    ///
    /// # Errors
    /// [`SetupError::Short`] where early memory is too little.
    pub fn new<A: Arch, const MOST: usize>(
        early: &mut Early<MOST>,
        regions: &[Region],
        largest: Order,
    ) -> Result<Self, SetupError> {
        let end = 1 << (u64::BITS - A::PAGE_SHIFT);
        let upper = PageSpan::new(Vpn::new(end - A::USER_PAGES), Vpn::new(end));
        let words = table::<A, MOST>(early, (regions, largest), A::ROOT, upper)?;
        Ok(Self { root: words.first().map_or(Pfn::new(0), |first| early.frame_of(first)), words })
    }

    /// The root, for a CPU that is in no space.
    pub fn root(&self) -> Pfn {
        self.root
    }

    /// Writes to `words`, those of a space's root to be, what it begins with: the kernel's entries,
    /// and zeroes for programs. For formats and CPUs with one root for both halves (x86-64,
    /// riscv64); where the kernel's has a register of its own (arm64), spaces begin with zeroes.
    pub fn copy_to(&self, words: &[AtomicU64]) {
        for (word, at) in words.iter().zip(0..) {
            let value = self.words.get(at).map_or(0, |word| word.load(Ordering::Relaxed));
            word.store(value, Ordering::Relaxed);
        }
    }
}

/// A table whose last entries translate `pages`.
fn table<A: Arch, const MOST: usize>(
    early: &mut Early<MOST>,
    (regions, largest): (&[Region], Order),
    level: Level,
    pages: PageSpan,
) -> Result<&'static [AtomicU64], SetupError> {
    let words = early.array((0..A::entries(level)).map(|_| AtomicU64::new(0)))?;
    let order = A::order(level);
    let other = words.len() - (pages.count() >> order.get()) as usize;
    for (word, at) in words[other..].iter().zip(0..) {
        let own = PageSpan::block(pages.start.add(at << order.get()), order);
        let Some(region) = regions.iter().find(|region| region.pages.overlaps(own)) else {
            continue;
        };
        let value = match (region.leaf::<A>(level, own, largest), level.child()) {
            (Some(leaf), _) => leaf,
            (None, Some(child)) => {
                let lower = table::<A, MOST>(early, (regions, largest), child, own)?;
                lower.first().map_or(0, |first| A::table(early.frame_of(first)))
            }
            // Less than a page: there is no such region.
            (None, None) => 0,
        };
        word.store(value, Ordering::Relaxed);
    }
    Ok(words)
}

#[cfg(all(test, not(loom)))]
mod tests;
