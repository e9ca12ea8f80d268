//! The zones that a caller names, and the errors of a call.

use core::fmt;

use quire_hw::FrameRun;
use quire_units::{FrameSpan, Pfn};

use super::cpu_cache::FRAMES_MAX;
use super::zone::Zone;
use crate::limits::ZONES_MAX;

/// A set of zones by their number, which is their place in the slice given to
/// `Phys::new`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Zones(u32);

impl Zones {
    /// Every zone.
    pub const ALL: Zones = Zones((1 << ZONES_MAX) - 1);

    /// Zone `number` alone; the empty set for a number that no zone has.
    pub const fn only(number: usize) -> Self {
        if number < ZONES_MAX { Zones(1 << number) } else { Zones(0) }
    }

    /// Zone `number` and those before it: for devices that reach no frames behind them.
    pub const fn up_to(number: usize) -> Self {
        if number < ZONES_MAX { Zones((2 << number) - 1) } else { Self::ALL }
    }

    /// Whether zone `number` is in the set.
    #[inline]
    pub const fn contains(self, number: usize) -> bool {
        self.0 >> number & 1 != 0
    }
}

/// The reason why an allocator cannot be set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetupError {
    /// More frames than an entry of a CPU's cache can name, or frames past the end of the number
    /// space.
    TooManyFrames {
        /// The number of slots given.
        frames: u64,
    },
    /// More zones than [`ZONES_MAX`], or none.
    ZoneCount {
        /// The number of zones given.
        zones: usize,
    },
    /// A zone has frames for which there is no slot.
    ZoneOutside {
        /// The zone.
        zone: usize,
    },
    /// Two zones share a frame.
    ZonesOverlap {
        /// The zone with the lower number.
        first: usize,
        /// The other.
        second: usize,
    },
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooManyFrames { frames } => write!(f, "{frames} frames are too many"),
            Self::ZoneCount { zones } => {
                write!(f, "{zones} zones, but there must be 1 to {ZONES_MAX}")
            }
            Self::ZoneOutside { zone } => write!(f, "zone {zone} has frames without metadata"),
            Self::ZonesOverlap { first, second } => {
                write!(f, "zones {first} and {second} overlap")
            }
        }
    }
}

impl core::error::Error for SetupError {}

/// Checks the arguments of [`Phys::new`](super::Phys::new).
pub(super) fn validate(slots: FrameSpan, zones: &[Zone]) -> Result<(), SetupError> {
    if slots.count > FRAMES_MAX || slots.start.checked_add(slots.count).is_none() {
        return Err(SetupError::TooManyFrames { frames: slots.count });
    }
    if zones.is_empty() || zones.len() > ZONES_MAX {
        return Err(SetupError::ZoneCount { zones: zones.len() });
    }
    for (second, zone) in zones.iter().map(|zone| zone.span).enumerate() {
        if zone.start.checked_add(zone.count).is_none() || !slots.covers(zone) {
            return Err(SetupError::ZoneOutside { zone: second });
        }
        let overlaps = |a: &Zone| a.part(zone).count > 0;
        if let Some(first) = zones[..second].iter().position(overlaps) {
            return Err(SetupError::ZonesOverlap { first, second });
        }
    }
    Ok(())
}

/// A frame of the wanted range is not free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Occupied {
    /// The first such frame: taken, or not RAM of any zone.
    pub frame: Pfn,
}

impl fmt::Display for Occupied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "frame {} is not free", self.frame)
    }
}

impl core::error::Error for Occupied {}

/// Frames that belong to no zone cannot be managed.
#[derive(Debug)]
pub struct NotRam {
    /// The first such frame.
    pub frame: Pfn,
    /// All frames of the call; none of them was added.
    pub run: FrameRun,
}

impl fmt::Display for NotRam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "frame {} of {:?} belongs to no zone", self.frame, self.run)
    }
}

impl core::error::Error for NotRam {}
