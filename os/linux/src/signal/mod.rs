//! Signals: numbers and sets, pending signals, actions, and the bytes in which programs get them.
//!
//! Nothing here delivers: when a thread is about to run the kernel calls [`next`] and
//! [`Actions::deliver`], and writes the bytes of [`frame`] onto the program's stack.
//!
//! ```text
//!   kill, fault, timer ──► Pending::add ──► next ──► Actions::deliver ──► Decision
//!                                                                           │ Handle
//!   the handler's return ◄── rt_sigreturn: frame::*::parse    frame::*::build ◄──┘
//! ```
//!
//! The numbers of signals and the layouts of [`Info`], [`Action`] and [`AltStack`] are the same
//! for x86-64 and arm64; frames are not.

mod action;
mod alt_stack;
mod bytes;
pub mod frame;
mod info;
mod pending;
mod set;
pub mod status;

pub use action::{ACTION_BYTES, Action, Actions, Decision, Flags, Handler};
pub use alt_stack::{ALT_STACK_BYTES, AltStack};
pub use info::{Detail, INFO_BYTES, Info, code, info_for_file};
pub use pending::{Pending, next};
pub use set::{Default, Set, Signal};

#[cfg(test)]
mod tests;
