//! The ways to read text that are compared.

use quire_arch::Arch;
use quire_sim::system::HostedMm;
use quire_units::{Order, Prot};

/// How files are read for faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Policy {
    /// Each page when it is touched, and nothing else.
    Pages,
    /// Half a window before and half of it after the fault, whatever the area is: Linux for text
    /// until 6.15, and for all else today.
    Around,
    /// A window from the fault on, in no preferred size: Linux 7.2 for text where the CPU prefers
    /// none.
    Ahead,
    /// Windows of whole folios of 64 KiB in all of a program's file; written pages are copied in
    /// blocks of up to 64 KiB.
    Exec,
    /// The same, with folios of 2 MiB where the text has room for them (row B7).
    Tiers,
}

impl Policy {
    /// All, in the order of tables.
    pub(super) const ALL: [Policy; 5] =
        [Policy::Pages, Policy::Around, Policy::Ahead, Policy::Exec, Policy::Tiers];

    /// The variant's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Policy::Pages => "page-at-a-time",
            Policy::Around => "read-around",
            Policy::Ahead => "read-ahead",
            Policy::Exec => "exec-64K",
            Policy::Tiers => "tiers-2M",
        }
    }

    /// Sets the policy of `mm`.
    pub(super) fn apply<A: Arch>(self, mm: &HostedMm<'_, '_, A>) {
        let order = |bytes: u64| Order::of_bytes(bytes, A::PAGE_SHIFT).unwrap_or_default();
        let (middle, large) = (order(64 << 10), order(2 << 20));
        if self == Policy::Pages {
            mm.files().policy().set_window(0);
        }
        let tiers: &[Order] = match self {
            Policy::Exec => &[middle],
            Policy::Tiers => &[middle, large],
            Policy::Pages | Policy::Around | Policy::Ahead => &[],
        };
        if !tiers.is_empty() {
            // Written pages of private areas are anonymous memory, in folios of these sizes.
            let set = mm.policy().set_sizes("16K-64K:always", A::PAGE_SHIFT);
            debug_assert!(set.is_ok(), "sizes of formats with pages of 4K: {set:?}");
        }
        let set = mm.files().policy().set_exec_tiers(tiers);
        debug_assert!(set.is_ok(), "64K and 2M are sizes of formats with pages of 4K: {set:?}");
    }

    /// The rights of an area of text: Linux reads around in areas that are not executable.
    pub(super) fn text_rights(self) -> Prot {
        if self == Policy::Around { Prot::READ } else { Prot::RX }
    }
}
