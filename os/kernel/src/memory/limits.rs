//! Reclaim within a control group at its limit. Rooms to the right do it.

use quire::space::GroupId;
use spin::Once;

/// The functions that make room in a group.
pub(crate) struct Limits {
    /// Pages out the group's least recently used memory; whether it has room now.
    pub(crate) relieve: fn(GroupId) -> bool,
    /// The same for a caller that cannot wait until a process of the group has ended: whether it
    /// may go on.
    pub(crate) lend: fn(GroupId) -> bool,
}

static LIMITS: Once<Limits> = Once::new();

/// Sets the functions that make room in a group.
pub(crate) fn set_limits(limits: Limits) {
    LIMITS.call_once(|| limits);
}

/// Pages out a group's least recently used memory; whether it has room now.
pub(crate) fn relieve(group: GroupId) -> bool {
    LIMITS.get().is_some_and(|limits| (limits.relieve)(group))
}

/// The same for the kernel's own copies, which cannot wait until one of the group has ended:
/// whether they may go on.
pub(crate) fn lend(group: GroupId) -> bool {
    LIMITS.get().is_some_and(|limits| (limits.lend)(group))
}
