//! Watchers of memory (`userfaultfd`): what programs ask, and what they are told.
//!
//! ```text
//!   a thread faults ──► Queue::tell ──► read: a Message ──► the watcher answers: Ask
//!         │ parked, registered                                   │
//!         └──────────────────◄── Queue::wake(span) ◄─────────────┘
//! ```
//!
//! **Owns** the faults that wait for an answer. **Key types**: [`Queue`], [`Ask`]. **Never** knows
//! page tables: the kernel carries out what an [`Ask`] says.

mod ask;
mod queue;

pub use ask::{Ask, Features, Mode, Range, Request, Then};
pub use queue::{Flags, Queue, Told};
