//! The area tree: the areas of one address space, in order, none overlapping another (row E3).
//!
//! A B+-tree whose nodes are frames. Leaves hold areas, inner nodes hold a summary of each child:
//! where its first area begins, where its last one ends, and the largest gap between two areas
//! inside it. So one descent answers *which area holds this page*, *which is the next*, and *where
//! are N free pages*. Both kinds of node have one layout, in the first 4 KiB of a frame:
//!
//! ```text
//! word 0      how many entries
//! 1..128      keys        first page of entry 0, 1, 2, …  (compact: a search touches few lines)
//! 128..509    records     3 words each
//!             leaf        end       rights, flags, file id         file page        (see `area`)
//!             inner       end       frame of the child             largest gap inside
//! ```
//!
//! Gaps *between* two children follow from the end of one and the key of the next, and are not
//! stored; a change of an area therefore touches the path to it and nothing beside it.
//!
//! # Reading without a lock
//! Faults read while at most one writer writes. `seq` is odd while the tree is being changed, and
//! a reader that finds another number after reading than before throws its answer away:
//!
//! ```text
//! writer                                  reader
//! W1  seq ← odd, then a release fence     R1  seq → s, acquire; again if odd
//! W2  write words (release)               R2  read root and words (acquire)
//! W3  seq ← even (release)                R3  seq → t; the answer stands if t = s
//! ```
//!
//! * If R2 reads a word that W2 wrote, that acquire load saw a release store, so R3 sees W1 or
//!   something newer: `t ≠ s`. Hence a standing answer has read nothing of a change that began
//!   after R1.
//! * If R1 reads what W3 wrote, it sees all of W2. Hence a standing answer has read the whole of
//!   each change that ended before R1. Together: the tree as it was at one moment.
//! * R3 stays behind R2 because the loads of R2 acquire.
//! * A node that a change gives up may leave the tree's hands and be anything, a cleared folio
//!   even, while a reader still reads it. Its new owner got it from the writer, after W1, and the
//!   fence orders W1 before every later store, plain ones included: a reader of such a store fails
//!   at R3. W1 is an exchange, which on x86-64 also orders it before non-temporal stores. So nodes
//!   are freed at once, without a grace period.
//! * Until R3 a reader holds garbage. It bounds every index, follows only frames that exist, and
//!   goes down a fixed number of levels; the words mean no memory (see `area`).
//!
//! # Writing
//! The tree allocates nothing. A writer checks how many frames it [`lacks`](TreeWriter::lacks),
//! [`stock`](TreeWriter::stock)s that many, and then no change can fail; each high-level operation
//! checks first and changes either all or nothing. Freed nodes go to the same stock, from which
//! [`unstock`](TreeWriter::unstock) takes them back.

mod areas;
mod entry;
mod node;
mod read;
mod gap;
mod write;
mod balance;
mod edit;
mod check;

pub use areas::{AreaTree, NODE_ENTRIES, Seq};
pub use check::{Miscount, TreeViolation};
#[cfg(any(test, feature = "inject"))]
pub use edit::EditError;
#[cfg(test)]
pub(in crate::space) use entry::Entry;
pub use node::TreeReader;
pub use write::TreeWriter;
