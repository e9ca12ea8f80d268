//! Control groups (cgroup v2): the tree of their names, and writes to their files.
//!
//! **Owns** the tree of groups, and the groups that pass the memory controller on. **Key types**:
//! [`Groups`] (all of them), [`Group`] (one, with the kernel's data), [`Control`] (a write to
//! `cgroup.subtree_control`).
//!
//! ```text
//!   0  ""        gives memory ─► 1 "shop" has memory.max; gives ─► 2 "till"  has memory.max
//!                                                                  3 "cellar"
//! ```
//!
//! A group is named by its number, which no other group ever has: the number of a removed group
//! finds none. There are few groups, and speed does not matter: each lookup is a walk over all.
//! **Never** knows processes: the caller says whether any is in a group.

mod tree;
mod words;

#[cfg(test)]
mod tests;

pub use tree::{Group, Groups};
pub use words::{Control, amount, limit, pid};
