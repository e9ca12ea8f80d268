//! The strict examiner: it knows what an MMU may have cached, and reports when that would do harm.
//!
//! The machine's own TLBs are small and forget entries, so they would show a missing flush only by
//! luck. The examiner therefore keeps, beside each CPU's TLB, its *shadow*: every entry, leaf or
//! table pointer, that a walk of that CPU has read and no flush has reached since. No real TLB
//! holds more than its shadow, and a real one may hold all of it. Each entry of the shadow
//! remembers the word it was made from, so every later store into that word is judged: is the
//! cached translation still allowed?
//!
//! Rules:
//! 1. **Stale.** A store that removes or retargets an entry, takes away rights, or clears a dirty
//!    flag marks the shadows made from the old word. At the end of the operation that stored
//!    ([`Machine::operation`](crate::Machine::operation)) no such mark may be left: the flush has
//!    to reach it first. Clearing the accessed flag needs no flush.
//! 2. **Break before make** (arm64). In a live table, a valid entry must not become another valid
//!    entry with other memory, memory type or size; and a broken entry must not be made again
//!    before the flush has reached all shadows of the old one. FEAT_BBM level 2 exempts changes of
//!    size alone. A table is *live* if it is reachable from a root that some CPU has installed,
//!    whether or not a CPU has walked it.
//! 3. **Malformed.** Words that the manual forbids, when stored into a live table, when a table
//!    that has them becomes live, or when a walk meets them.
//! 4. **Freed too early.** Frames leave use while a shadow leads to them or a live table is among
//!    them; with [`Examine::Thorough`](crate::Examine), also while a live table maps them.
//! 5. **Audit.** [`Machine::audit`](crate::Machine::audit), for moments at which nothing runs,
//!    walks all live tables and compares every cached translation with a fresh walk.
//! 6. **Torn block.** Entries that claim to be one contiguous block must lead to consecutive
//!    memory that begins at a multiple of the block's size, grant the same, and all be there.
//!    * *At every store into a live table* (arm64): no valid entry of the block leads elsewhere or
//!      lacks the mark; with FEAT_BBM level 2 the mark may be set or cleared entry by entry.
//!      riscv64 allows old and new words side by side.
//!    * *At a flush of the block by the operation that changes it*: no hole and no differing right.
//!      Hardware may join the block again from any entry that is left, and would then reach pages
//!      that the caller believes flushed.
//!    * *When the operation ends*: the block is whole, or gone. A block that another CPU is
//!      changing as well is judged when the last of them is done.
//!
//!    Accessed and dirty flags may differ: hardware sets them in any entry of the block, and so
//!    does this machine. A whole block may be cached as one or page by page, so a flush has to
//!    name each of its pages (rule 1); a stride as large as the block is too large. Changing the
//!    mark takes a flush also on riscv64; with FEAT_BBM level 2 it takes none, as nothing else
//!    changes.
//! 7. **Lost dirty flag.** An entry that was dirty, or any of whose contiguous block was, must not
//!    be writable and clean with the same frame when the operation ends, also if it was read-only
//!    in between, for however long; nor may the parts of a block that was split. Where a block is
//!    contiguous again at the end, one dirty entry is enough for all. Operations that clean pages
//!    on purpose announce it ([`Operation::cleans`](crate::Operation::cleans)).
//! 8. **Shared tag.** When a CPU makes its first access after it has installed a root, its shadow
//!    holds nothing under the root's tag that was cached while the tag had another root.
//! 9. **Stale code.** Where fetches are not coherent with stores
//!    ([`Config::coherent_code`](crate::Config::coherent_code)), each frame that an executable leaf
//!    of a live table shows was published after it came into use and after it was written last
//!    ([`publish_code`](quire_hw::Hardware::publish_code)). Stores of programs do not count, as
//!    they publish their code themselves. Judged when such a leaf is stored, when its table becomes
//!    live, at a fetch, and in the audit: a CPU may fetch ahead of the program, and may hold lines
//!    of a frame from any earlier use of it.
//!
//! Where tags of spaces change ([`Config::retags`](crate::Config::retags)), a translation under a
//! tag that its CPU does not use now does no harm. Rules 1, 2, 4 and 5 then leave it alone until
//! the CPU's first access under that tag: a translation that is stale by then, whose operation has
//! ended, breaks rule 1.
//!
//! The rules cannot know the following; the models of `quire-sim` and the walkers of `quire` check
//! it:
//! * that a block lies in one folio;
//! * the fate of a dirty flag whose entry is absent at the end of the operation (unmapped, moved,
//!   hidden without any right), or that a fork copied: the flag may be in a folio's state, in
//!   another entry, or in a bit that hardware ignores;
//! * whether a flush was missed between break and make of an entry that no CPU has walked.
//!
//! A CPU that announces no operation is judged by rule 6 at stores and in the audit, by rule 7
//! never.
//!
//! Violations are kept for [`Machine::verdict`](crate::Machine::verdict). The examiner serialises
//! walks and table stores word by word, which makes its account exact; whole operations still race
//! as they would without it.

mod violation;
mod rules;
mod live;
mod ledger;
mod stores;
mod blocks;
mod dirty;
mod frames;
mod freed;
mod code;
mod tags;
mod audit;

pub(crate) use audit::audit;
pub(crate) use ledger::{Holding, Key, Ledger};
pub use violation::{Place, Rule, Violation, Why};
