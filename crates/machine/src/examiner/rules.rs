//! The rules that compare two readings of one entry. Pure functions.

use quire_units::Prot;

use super::Why;
use crate::mmu::{Leaf, Meaning};

/// The reason why a translation made from `cached` must be flushed now that the entry is `now`;
/// `None` when every access that it allows is still allowed.
///
/// `dirty` means that stores go through the cached translation without a walk, which `cached` alone
/// does not show where the translation covers a contiguous block and a neighbour is dirty.
///
/// `regroups` means that a translation made as part of a contiguous block, or as none, must be
/// flushed when that changes (riscv64: "Svnapot" wants all pages of the range fenced). On arm64 a
/// break comes first, which is judged elsewhere; with FEAT_BBM level 2 the cached translation stays
/// right.
///
/// Two changes need no flush. Rights gained: a denied access walks again, or traps and is handled.
/// A cleared accessed flag: an access through the old translation only leaves the page looking idle
/// for longer, which all three ISAs allow, and kernels age pages without a flush.
pub(super) fn excess(cached: Meaning, dirty: bool, now: Meaning, regroups: bool) -> Option<Why> {
    match (cached, now) {
        (Meaning::Absent | Meaning::Malformed(_), _) => None,
        (_, Meaning::Absent | Meaning::Malformed(_)) => Some(Why::Removed),
        (Meaning::Table(was), Meaning::Table(now)) => {
            if was.frame != now.frame {
                Some(Why::Retargeted)
            } else {
                (!now.limits.contains(was.limits)).then_some(Why::RightsLost)
            }
        }
        (Meaning::Leaf(was), Meaning::Leaf(now)) => {
            let regrouped = regroups && was.block != now.block;
            excess_of_leaf(was, dirty, now).or(regrouped.then_some(Why::Resized))
        }
        // Even where the lower table maps the same: a block cached as dirty would go on taking
        // stores that the new, clean entries never record.
        _ => Some(Why::Resized),
    }
}

fn excess_of_leaf(was: Leaf, dirty: bool, now: Leaf) -> Option<Why> {
    // While the block stays joined, a neighbour's dirty flag counts for all of it.
    let joined = now.is_contiguous() && was.block == now.block;
    let dirty = if joined { was.dirty } else { dirty };
    if was.frame != now.frame {
        Some(Why::Retargeted)
    } else if was.memory != now.memory {
        Some(Why::Memory)
    } else if was.global && !now.global {
        Some(Why::Global)
    } else if !now.prot.contains(was.prot) {
        Some(Why::RightsLost)
    } else if dirty && !now.dirty && was.prot.contains(Prot::WRITE) {
        Some(Why::DirtyCleared)
    } else {
        None
    }
}

/// The reason why arm64 does not let a live entry go from `old` straight to `new` (Arm ARM D8.16.1
/// "Support levels for changing translation table entries" and "Using break-before-make").
///
/// `relaxed` is FEAT_BBM level 2, which allows a change of size or contiguity as long as the
/// addresses stay; `same_memory` reports whether they do, where a leaf and a table trade places.
pub(super) fn must_break(
    old: Meaning,
    new: Meaning,
    relaxed: bool,
    same_memory: impl FnOnce() -> bool,
) -> Option<Why> {
    match (old, new) {
        (Meaning::Leaf(old), Meaning::Leaf(new)) => {
            if old.frame != new.frame {
                Some(Why::Retargeted)
            } else if old.memory != new.memory {
                Some(Why::Memory)
            } else if old.global != new.global {
                Some(Why::Global)
            } else {
                (old.block != new.block && !relaxed).then_some(Why::Resized)
            }
        }
        (Meaning::Table(old), Meaning::Table(new)) => {
            (old.frame != new.frame).then_some(Why::Retargeted)
        }
        (Meaning::Leaf(_), Meaning::Table(_)) | (Meaning::Table(_), Meaning::Leaf(_)) => {
            if !relaxed { Some(Why::Resized) } else { (!same_memory()).then_some(Why::Retargeted) }
        }
        _ => None,
    }
}
