//! Words of leaves, and the bits that have a meaning of their own.

use quire_arch::{Arch, Attrs, Level};
use quire_units::{Pfn, Prot};

/// The word of entry `index` as it would be outside of a contiguous block.
#[inline]
pub(crate) fn plain<A: Arch>(raw: u64, level: Level, index: usize) -> u64 {
    if A::is_folded(raw, level) { A::unfold(raw, level, index) } else { raw }
}

/// The word of a leaf, as part of a contiguous block or not.
#[inline]
pub(super) fn word<A: Arch>(frame: Pfn, level: Level, attrs: Attrs, folded: bool) -> u64 {
    let word = A::leaf(frame, level, attrs);
    if folded { A::fold(word, level) } else { word }
}

/// Marks a leaf of frames that the embedder has given the right to. Either no folio has them
/// (device memory), or a folio that the embedder lends. The library ages, shares out and writes
/// back neither.
pub(crate) const FOREIGN: Attrs = Attrs::SOFT;

/// Marks a leaf whose next write its area's watcher answers. It is COW as well: so every path that
/// gives rights leaves it without that to write. Formats with two bits for software have no third
/// bit for it, and no foreign leaf is COW.
pub(crate) const WATCHED: Attrs = FOREIGN.union(Attrs::COW);

/// The same attributes for a leaf whose first write its area's watcher answers.
pub(crate) fn shielded(attrs: Attrs) -> Attrs {
    attrs.with_prot(unwritten(attrs.prot())).difference(Attrs::DIRTY).union(WATCHED)
}

/// Whether a leaf is [`FOREIGN`].
#[inline(always)]
pub(crate) const fn is_foreign(attrs: Attrs) -> bool {
    attrs.intersection(WATCHED).bits() == FOREIGN.bits()
}

/// Whether a leaf is COW, and no watcher answers for it.
#[inline(always)]
pub(crate) const fn is_cow(attrs: Attrs) -> bool {
    attrs.intersection(WATCHED).bits() == Attrs::COW.bits()
}

/// The bits that the hardware sets by itself, and that may therefore differ within a run.
pub(super) const NOTED: Attrs = Attrs::YOUNG.union(Attrs::DIRTY);

/// Whether the hardware has no more bit to set in a leaf.
#[inline]
pub(super) fn is_settled(attrs: Attrs) -> bool {
    !attrs.intersects(Attrs::RIGHTS)
        || attrs.contains(Attrs::YOUNG)
            && (attrs.contains(Attrs::DIRTY) || !attrs.contains(Attrs::WRITE))
}

/// The part of `prot` that a COW leaf grants. A page that may be written may be read.
pub(crate) fn unwritten(prot: Prot) -> Prot {
    if prot.contains(Prot::WRITE) { (prot - Prot::WRITE) | Prot::READ } else { prot }
}
