//! The settings of a life, and the policies that are compared.

use quire_units::Order;

/// Steps of a simulated day: one every ten minutes.
pub(super) const STEPS: u64 = 144;

/// The ways to keep large folios available.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Policy {
    /// The kernel's frames lie among all others, and nothing moves.
    Nothing,
    /// Frames that cannot move have groups of their own.
    Grouping,
    /// Also, a fault that lacks a folio waits until memory is compacted for it.
    OnDemand,
    /// Also, the background keeps a share of the free memory in blocks.
    Background,
}

impl Policy {
    pub(super) const ALL: [Policy; 4] =
        [Policy::Nothing, Policy::Grouping, Policy::OnDemand, Policy::Background];

    pub(super) fn name(self) -> &'static str {
        match self {
            Policy::Nothing => "nothing",
            Policy::Grouping => "grouping",
            Policy::OnDemand => "on-demand",
            Policy::Background => "background",
        }
    }

    pub(super) fn groups(self) -> bool {
        self != Policy::Nothing
    }

    pub(super) fn compacts(self) -> bool {
        matches!(self, Policy::OnDemand | Policy::Background)
    }
}

/// The settings of one life.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) policy: Policy,
    /// The RAM of the machine, in bytes.
    pub(super) bytes: u64,
    /// Which share of it is in use, per cent.
    pub(super) occupied: u32,
    /// Which share of it the kernel has, per cent.
    pub(super) unmovable: u32,
    pub(super) days: u32,
    pub(super) seed: u64,
    /// The folio sizes that programs want, the smallest first.
    pub(super) wanted: Vec<Order>,
}

impl Plan {
    pub(super) fn frames(&self) -> u64 {
        self.bytes >> 12
    }

    /// A per cent share of all frames.
    pub(super) fn share(&self, per_cent: u32) -> u64 {
        self.frames() * u64::from(per_cent) / 100
    }
}
