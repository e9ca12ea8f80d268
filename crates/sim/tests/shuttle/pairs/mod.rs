//! Each call that takes memory back beside each call that changes a space, while a third CPU has
//! the translations of all pages in its TLB.
//!
//! ```text
//!   CPU 2   reads and writes all pages ─ ready ─────────────────── uses them again
//!   CPU 1                                  └─► changes the space ── done ─┘        └─► looks
//!   CPU 0                                  └─► takes memory back
//! ```
//!
//! When the change has returned, CPU 2 sees it, and nothing else: a TLB that was not flushed would
//! show it the memory, or the right, of before.
//!
//! * [`place`]: the memory that the two meet on.
//! * [`takes`]: the calls that take memory back.
//! * [`changes`]: the calls that change a space; [`views`] is what programs see after them.
//! * [`play`]: the scenario of a pair, and all scenarios.
//! * [`table`]: the table of all pairs, with the reason where there is no scenario.

mod changes;
mod place;
mod play;
mod table;
mod takes;
mod views;

use quire_arch::X86_64;

type Runner<'t, 'm, 'r> = crate::scene::Runner<'t, 'm, 'r, X86_64>;
