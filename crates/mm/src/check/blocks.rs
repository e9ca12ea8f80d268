//! I4: contiguous blocks, entry by entry; and C1: every block that can be folded is. A CPU without
//! contiguous blocks has none.

use quire_arch::{Arch, Attrs, Entry, Level};
use quire_hw::Hardware;
use quire_units::Pfn;

use super::Violation;
use crate::space::View;
use crate::table::{FOREIGN, plain};

/// The bits that the hardware sets by itself, in any entry of a block.
const NOTED: Attrs = Attrs::YOUNG.union(Attrs::DIRTY);

/// Checks the block that begins at entry `index` of `table`, if there is one; returns whether it is
/// folded.
pub(super) fn check_block<A: Arch, H: Hardware>(
    view: &View<'_, A, H>,
    table: Pfn,
    level: Level,
    index: usize,
) -> Result<bool, Violation> {
    let Some(order) = A::fold_order(level) else { return Ok(false) };
    let width = 1 << A::LEVELS[level.index()].contiguous;
    if !index.is_multiple_of(width) {
        return Ok(false);
    }
    let raw = |at: usize| view.hw.load(table, index + at);
    let folded = (0..width).filter(|&at| A::is_folded(raw(at), level)).count();
    let leaf = |at: usize| match A::decode(plain::<A>(raw(at), level, index + at), level) {
        Entry::Leaf { frame, attrs } if attrs.intersects(Attrs::RIGHTS) => Some((frame, attrs)),
        _ => None,
    };
    let fits = leaf(0).is_some_and(|(first, attrs)| {
        let alike = |at: usize| {
            let frame = first.add(at as u64 * A::order(level).pages());
            leaf(at).is_some_and(|(found, also)| found == frame && also - NOTED == attrs - NOTED)
        };
        let folio = view.folios().of(first);
        let one = attrs.contains(FOREIGN) || folio.is_some_and(|folio| folio.order >= order);
        first.is_aligned(order.pages()) && one && (0..width).all(alike)
    });
    let fits = fits && view.hw.profile().contiguous;
    match (folded == width, folded == 0, fits) {
        (true, _, true) => Ok(true),
        (_, true, false) => Ok(false),
        (_, true, true) => Err(Violation::Plain { table, index }),
        _ => Err(Violation::Torn { table, index }),
    }
}
