//! Markers: entries that are absent for the hardware, and not to be mapped over.
//!
//! ```text
//!   55    52 51                                  0
//!   | kind  | of the kind                         |
//! ```
//!
//! Page `n` of a block with one marker has the marker's payload plus `n`. So the lowest bits are
//! those that a kind counts by pages.

use quire_arch::Arch;
use quire_units::Vpn;

const KIND_AT: u32 = 52;

/// The kinds of markers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MarkKind {
    /// The page is on a swap device (`SwapEntry` of the room `swap`).
    Swap = 1,
    /// The page may not be touched: a guard. Its payload only makes neighbouring guards one run.
    Guard = 2,
    /// The page was in memory that failed, and its content is lost.
    Poison = 3,
    /// The page is absent, and its area's watcher answers its first write. Its payload only makes
    /// neighbouring markers one run.
    Watched = 4,
}

impl MarkKind {
    /// The kind of a payload; `None` for what this library does not write.
    #[inline]
    pub const fn of(payload: u64) -> Option<Self> {
        match payload >> KIND_AT {
            1 => Some(Self::Swap),
            2 => Some(Self::Guard),
            3 => Some(Self::Poison),
            4 => Some(Self::Watched),
            _ => None,
        }
    }

    /// The payload of this kind with `rest`, which is below 2^52.
    #[inline]
    pub(crate) const fn payload(self, rest: u64) -> u64 {
        (self as u64) << KIND_AT | rest
    }

    /// A payload without its kind.
    #[inline]
    pub(crate) const fn rest(payload: u64) -> u64 {
        payload & ((1 << KIND_AT) - 1)
    }
}

/// The payloads of a run of markers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marks {
    /// The payload of the first.
    pub first: u64,
    /// Each payload is one higher than the one before; otherwise all are equal.
    pub ascending: bool,
}

/// The difference of the words of payloads `first + 1` and `first`, if there are both.
pub(super) fn ascent<A: Arch>(first: u64) -> Option<u64> {
    (first + 1 < PAYLOADS).then(|| A::marker(first + 1).wrapping_sub(A::marker(first)))
}

/// In the payload of a watched marker: it stays. No page has so high a number.
const STAYS: u64 = 1 << (KIND_AT - 1);

/// The frame of a page whose content was never in memory.
#[cfg(feature = "watch")]
const NO_FRAME: u64 = (1 << KIND_AT) - 1;

/// Payloads are below this.
const PAYLOADS: u64 = 1 << 56;

impl Marks {
    /// Guards from `page` on.
    pub(crate) const fn guards(page: Vpn) -> Self {
        Self { first: MarkKind::Guard.payload(page.get()), ascending: true }
    }

    /// Markers of absent pages from `page` on whose first write a watcher answers; with `stay`, of
    /// pages whose content is a file's, and that discarding does not change.
    #[cfg(feature = "watch")]
    pub(crate) const fn watched(page: Vpn, stay: bool) -> Self {
        let stay = if stay { STAYS } else { 0 };
        Self { first: MarkKind::Watched.payload(stay | page.get()), ascending: true }
    }

    /// Whether they stay where the content of their pages is discarded.
    pub(super) const fn stay(self) -> bool {
        match self.kind() {
            Some(MarkKind::Guard) => true,
            Some(MarkKind::Watched) => self.first & STAYS != 0,
            _ => false,
        }
    }

    /// Markers of pages whose content is lost, in no frame.
    #[cfg(feature = "watch")]
    pub(crate) const fn lost() -> Self {
        Self { first: MarkKind::Poison.payload(NO_FRAME), ascending: false }
    }

    /// Their kind.
    pub const fn kind(self) -> Option<MarkKind> {
        MarkKind::of(self.first)
    }

    /// The difference of the words of two neighbouring markers.
    pub(super) fn step<A: Arch>(self) -> u64 {
        if self.ascending { ascent::<A>(self.first).unwrap_or(0) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d4_a_payload_has_the_kind_it_was_made_of() {
        for kind in [MarkKind::Swap, MarkKind::Guard, MarkKind::Poison, MarkKind::Watched] {
            for rest in [0, 1, (1 << KIND_AT) - 1] {
                let payload = kind.payload(rest);
                assert_eq!(MarkKind::of(payload), Some(kind));
                assert_eq!(MarkKind::rest(payload), rest);
                assert!(payload < 1 << 56);
            }
        }
        assert_eq!(MarkKind::of(0), None);
        assert_eq!(MarkKind::of(42), None);
    }
}
