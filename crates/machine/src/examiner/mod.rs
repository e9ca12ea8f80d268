//! The strict examiner: it knows what an MMU may have cached, and says when that would hurt.
//!
//! The machine's own TLBs are small and forget; whether a missing flush shows would be luck. The
//! examiner therefore keeps, beside each CPU's TLB, the *shadow* of it: every entry, leaf or table
//! pointer, that a walk of that CPU has read and no flush has reached since. No real TLB holds
//! more than its shadow, and a real one may hold all of it. Each entry of the shadow remembers the
//! word it was made from, so every later store into that word is judged: is what is cached still
//! allowed?
//!
//! Rules, each a [`Rule`]:
//! 1. **Stale.** A store that removes or retargets an entry, takes away rights, or clears a dirty
//!    flag marks the shadows made from the old word. At the end of the operation that stored
//!    ([`Machine::operation`](crate::Machine::operation)) no such mark may be left: the flush has
//!    to reach it first. Clearing the accessed flag needs no flush.
//! 2. **Break before make** (arm64). In a live table, a valid entry must not become another valid
//!    entry with other memory, memory type or size; and once broken it must not be made before the
//!    flush has reached all shadows of the old one. FEAT_BBM level 2 exempts changes of size alone.
//!    *Live* is a table reachable from a root that some CPU has installed, whether or not walked.
//! 3. **Malformed.** Words that the manual forbids, when stored into a live table, when a table
//!    that has them becomes live, or when a walk meets them.
//! 4. **Freed too early.** Frames leave use while a shadow leads to them or a live table is among
//!    them; with [`Examine::Thorough`](crate::Examine), also while a live table maps them.
//! 5. **Audit.** [`Machine::audit`](crate::Machine::audit), for moments at which nothing runs,
//!    walks all live tables and compares every cached translation with a fresh walk.
//!
//! Violations are kept for [`Machine::verdict`](crate::Machine::verdict). The examiner serialises
//! walks and table stores word by word, which makes its account exact, and races between whole
//! operations are as before.

mod violation;
mod rules;
mod live;
mod ledger;
mod stores;
mod blocks;
mod dirty;
mod freed;
mod audit;

pub(crate) use audit::audit;
pub(crate) use ledger::{Holding, Key, Ledger};
pub use violation::{Place, Rule, Violation, Why};
