//! Watchers of memory (`userfaultfd`): what programs ask, and what they are told.
//!
//! ```text
//!   a thread faults ──► Queue::tell ──► read: a Message ──► the watcher answers: Ask
//!         │ parked, registered                                   │
//!         └──────────────────◄── Queue::wake(span) ◄─────────────┘
//!
//!   a thread forks, moves, removes, unmaps ──► Queue::announce ──► read: a Message
//!         └────── parked on its Notice ◄── the watcher knows ◄──────┘
//! ```
//!
//! **Owns** the faults that wait for an answer, and the changes that are not read yet. **Key
//! types**: [`Queue`], [`Ask`], [`Notice`]. **Never** knows page tables: the kernel carries out
//! what an [`Ask`] says.

mod ask;
mod notice;
mod queue;

pub use ask::{Ask, Features, Mode, Range, Request, Then};
pub use notice::{Change, Notice};
pub use queue::{Flags, Queue, Told};
