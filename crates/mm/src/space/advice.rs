//! The advice about large folios: for an area, and for a process.

use super::AreaFlags;

/// The advice to an area about large folios.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Advice {
    /// No advice.
    #[default]
    None,
    /// They are wanted (`MADV_HUGEPAGE`).
    Huge,
    /// They are not (`MADV_NOHUGEPAGE`).
    NoHuge,
}

impl Advice {
    /// The advice that `flags` hold.
    #[inline]
    pub fn of(flags: AreaFlags) -> Self {
        if flags.contains(AreaFlags::NOHUGE) {
            Advice::NoHuge
        } else if flags.contains(AreaFlags::HUGE) {
            Advice::Huge
        } else {
            Advice::None
        }
    }

    /// `flags` with this advice in place of its own.
    pub fn put(self, flags: AreaFlags) -> AreaFlags {
        let others = flags - AreaFlags::HUGE - AreaFlags::NOHUGE;
        match self {
            Advice::None => others,
            Advice::Huge => others | AreaFlags::HUGE,
            Advice::NoHuge => others | AreaFlags::NOHUGE,
        }
    }
}

/// A process's choice about large folios (`PR_SET_THP_DISABLE`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u32)]
pub enum OptOut {
    /// The policy holds.
    #[default]
    No = 0,
    /// No large folios at all.
    All = 1,
    /// None except in areas advised so (`PR_THP_DISABLE_EXCEPT_ADVISED`).
    ExceptAdvised = 3,
}

impl OptOut {
    pub(super) fn of_number(number: u32) -> Self {
        match number {
            1 => OptOut::All,
            3 => OptOut::ExceptAdvised,
            _ => OptOut::No,
        }
    }
}
