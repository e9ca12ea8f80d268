//! I11 and I13: an exclusive page has one owner.

use quire_arch::{Arch, Attrs};
use quire_hw::Hardware;
use quire_units::Pfn;

use super::{Leaf, Violation, leaves};
use crate::mm::Mm;
use crate::space::{AreaFlags, Space};
use crate::table::FOREIGN;

/// Flags that a frame's slot has only during this check.
const MAPPED: u32 = 1 << 20;
const MAPPED_TWICE: u32 = 1 << 21;
const OWNED: u32 = 1 << 22;

/// Verifies that each page that is mapped exclusively in a private area is mapped nowhere else. It
/// marks the frames that it has seen by flags in their slots, and takes the flags back.
pub(super) fn check_exclusive<A: Arch, H: Hardware>(
    mm: &Mm<'_, A, H>,
    spaces: &[&Space<A>],
) -> Result<(), Violation> {
    let slot = |frame| mm.allocator().meta().at(frame);
    each_page(mm, spaces, |frame, owns| {
        let state = slot(frame).state();
        let twice = if state.flags() & MAPPED != 0 { MAPPED_TWICE } else { 0 };
        let seen = MAPPED | twice | if owns { OWNED } else { 0 };
        slot(frame).set_state(state.with_flags(state.flags() | seen));
    })?;
    let bad = MAPPED_TWICE | OWNED;
    let mut wrong = None;
    each_page(mm, spaces, |frame, _| {
        let state = slot(frame).state();
        wrong = wrong.or((state.flags() & bad == bad).then_some(frame));
        slot(frame).set_state(state.with_flags(state.flags() & !(MAPPED | bad)));
    })?;
    wrong.map_or(Ok(()), |frame| Err(Violation::NotExclusive(frame)))
}

/// Calls `each` with every frame of a folio that a private area maps, and whether exclusively.
fn each_page<A: Arch, H: Hardware>(
    mm: &Mm<'_, A, H>,
    spaces: &[&Space<A>],
    mut each: impl FnMut(Pfn, bool),
) -> Result<(), Violation> {
    for space in spaces {
        let view = mm.base().view(space);
        leaves(mm, space, |leaf: &Leaf| {
            let area = view.areas().lookup(leaf.pages.start).0;
            let shared = area.is_none_or(|area| area.flags.contains(AreaFlags::SHARED));
            if shared || leaf.attrs.contains(FOREIGN) {
                return;
            }
            let owns = !leaf.attrs.contains(Attrs::COW);
            (0..leaf.pages.count()).for_each(|page| each(leaf.frame.add(page), owns));
        })?;
    }
    Ok(())
}
