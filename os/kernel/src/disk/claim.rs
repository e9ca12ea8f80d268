//! Exclusive owners of block devices.

use core::sync::atomic::{AtomicU8, Ordering};

use quire_linux::{Errno, Result};

/// The exclusive owner of a device.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Claim {
    /// No owner.
    None = 0,
    /// Its files are in the tree.
    Mounted = 1,
    /// It is swapped to.
    Swap = 2,
    /// It is behind compressed memory.
    Behind = 3,
}

/// The claim to one device.
#[derive(Default)]
pub(crate) struct Claims(AtomicU8);

impl Claims {
    /// Gives the device as a whole to `by`.
    ///
    /// # Errors
    /// [`Errno::EBUSY`] when it has an owner.
    pub(crate) fn claim(&self, by: Claim) -> Result<()> {
        let (none, by) = (Claim::None as u8, by as u8);
        let claimed = self.0.compare_exchange(none, by, Ordering::AcqRel, Ordering::Acquire);
        claimed.map(drop).map_err(|_| Errno::EBUSY)
    }

    /// Takes it back from its owner.
    pub(crate) fn unclaim(&self) {
        self.0.store(Claim::None as u8, Ordering::Release);
    }

    /// Whether `by` is its owner.
    pub(crate) fn is_claimed(&self, by: Claim) -> bool {
        self.0.load(Ordering::Acquire) == by as u8
    }

    /// Lets programs write the device only if it has no owner.
    ///
    /// # Errors
    /// [`Errno::ETXTBSY`] when it is swapped to, [`Errno::EBUSY`] when it is mounted.
    pub(super) fn refuse(&self) -> Result<()> {
        if self.is_claimed(Claim::Swap) {
            return Err(Errno::ETXTBSY);
        }
        if self.is_claimed(Claim::None) { Ok(()) } else { Err(Errno::EBUSY) }
    }
}
