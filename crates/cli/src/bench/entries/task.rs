//! The tasks, their parts, and the names of what is counted.

use clap::ValueEnum;
use quire_units::{Asid, Prot};

/// A task that changes all entries of an area.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Task {
    /// A space is copied, twice, and the first copy ends.
    Fork,
    /// All of an area is unmapped and freed.
    Zap,
    /// All of an area loses the right to write, and gets it back.
    Protect,
}

/// The first fork: every page is exclusive and writable.
pub(crate) const FIRST: &str = "first fork";
/// The end of its child, which has changed no memory.
pub(crate) const EXIT: &str = "child exit";
/// A later fork: no page is writable any more.
pub(crate) const LATER: &str = "later fork";
/// All pages are unmapped and freed.
pub(crate) const UNMAP: &str = "unmap";
/// From read and write to read only.
pub(crate) const TO_READ: &str = "to read-only";
/// Back again.
pub(crate) const TO_WRITE: &str = "to writable";

pub(super) const WRITABLE: Prot = Prot::READ.union(Prot::WRITE);
pub(super) const CHILD: Asid = Asid(2);

impl Task {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Task::Fork => "fork",
            Task::Zap => "zap",
            Task::Protect => "protect",
        }
    }

    /// The parts that are measured, in their order.
    pub(crate) fn parts(self) -> &'static [&'static str] {
        match self {
            Task::Fork => &[FIRST, EXIT, LATER],
            Task::Zap => &[UNMAP],
            Task::Protect => &[TO_READ, TO_WRITE],
        }
    }
}

/// Words written in tables, and in the nodes of area trees.
pub(crate) const WORDS: &str = "words written";
/// Calls of the hardware that write words: each writes one, or a run of them.
pub(crate) const WRITES: &str = "calls that write";
/// Flushes.
pub(crate) const FLUSHES: &str = "flushes";
/// Invalidations of one block each, for each CPU.
pub(crate) const INVALIDATIONS: &str = "invalidations";
/// Invalidations of a whole space, for each CPU.
pub(crate) const WHOLE: &str = "whole-space invalidations";
/// Contiguous blocks written as such where nothing was.
pub(crate) const FOLDS: &str = "blocks written folded";
/// Contiguous blocks that were broken up.
pub(crate) const UNFOLDS: &str = "unfolds";
/// Live entries that became a contiguous block.
pub(crate) const REFOLDS: &str = "refolds";
/// Entries zeroed and flushed before they were written.
pub(crate) const BREAKS: &str = "breaks before make";
