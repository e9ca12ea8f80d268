//! The group of a space.

use core::num::NonZeroU32;

/// The number of a group of spaces; see [`Mm::new_group`](crate::Groups::create).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupId(NonZeroU32);

impl GroupId {
    /// The group with this number; `None` for 0.
    #[inline]
    pub const fn new(number: u32) -> Option<Self> {
        match NonZeroU32::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Its number.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}
