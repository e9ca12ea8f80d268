//! The decision for a fault near the last one: its area and its table are known already.
//!
//! Most faults are of two kinds: to fill an empty page of the program's private memory, and to
//! write a page that a fork has shared. For them the record of the last fault
//! ([`Recent`](crate::space::Recent)) is enough; all others [`decide`](super::decide) from the root
//! on. A record is a hint like the end of a walk: the table's lock tells whether it holds.

use quire_arch::{Arch, Entry, Level};
use quire_hw::Hardware;
use quire_units::{Access, Vpn};

use super::plan::{Plan, Reach};
use super::policy::Policy;
use super::unshare::Unshare;
use crate::space::{AreaFlags, Recent, View};
use crate::table::{Place, is_cow, plain};

/// The need of a fault near the last one.
pub enum Near {
    /// Frames are needed, in the table that the record names.
    Fill(Plan),
    /// A leaf is there that others may map, too, and is to be written.
    Unshare(Unshare),
}

/// Decides by the record of this CPU's last fault what `access` to `page` needs; `None` where that
/// does not tell. Whatever else the recorded table has than nothing or a leaf to be copied may be a
/// frame's that is no table any more, and no lock would show it.
#[inline(always)]
pub(crate) fn near<A: Arch, H: Hardware>(
    view: &View<'_, A, H>,
    policy: &Policy,
    page: Vpn,
    access: Access,
    reach: Reach,
) -> Option<Near> {
    let Recent { area, seq, table } = view.space.recent(view.hw.cpu().index(), page)?;
    if !area.prot.allows(access) || reach != Reach::Folio {
        return None;
    }
    let (level, index) = (Level::LAST, A::index(page, Level::LAST));
    let raw = view.hw.load(table, index);
    let place = Place { frame: table, level, word: raw };
    if raw == 0 {
        let plan = Plan::around(view, policy, page, access, &area, place, seq);
        return Some(Near::Fill(plan));
    }
    let place = Place { word: plain::<A>(raw, level, index), ..place };
    match A::decode(place.word, level) {
        Entry::Leaf { frame, attrs }
            if access == Access::Write
                && is_cow(attrs)
                && !area.flags.contains(AreaFlags::SHARED) =>
        {
            let leaf = Some((frame, attrs));
            Some(Near::Unshare(Unshare { page, place, leaf, area, seq }))
        }
        _ => None,
    }
}
