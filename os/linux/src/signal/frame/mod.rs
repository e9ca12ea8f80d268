//! The frame on a program's stack while it handles a signal.
//!
//! A frame has all state that `rt_sigreturn` restores: registers, the blocked signals, the
//! alternative stack. The program may change it, and some do on purpose, so parsing takes nothing
//! on trust.
//!
//! ```text
//!   build(registers, delivery) ──► Frame: bytes to write at `address`, registers to start with
//!   parse(bytes)               ──► Return: registers to go on with, blocked signals, stack
//! ```
//!
//! After `build`, the kernel sets the blocked signals to
//! [`Action::blocked_meanwhile`](super::Action::blocked_meanwhile), and the alternative stack to
//! [`AltStack::while_handled`](super::AltStack::while_handled). After `parse`, it blocks the
//! signals of [`Return::blocked`], and sets the stack by
//! [`AltStack::changed`](super::AltStack::changed), and ignores its errors. When either fails, the
//! thread gets a SIGSEGV by [`Actions::force`](super::Actions::force).

pub mod aarch64;
mod delivery;
pub mod riscv64;
pub mod x86_64;

use delivery::zeros;
pub use delivery::{Delivery, Frame, Return};
