//! What lies on a program's stack while it handles a signal.
//!
//! A frame has all that `rt_sigreturn` needs to go on as if nothing had happened: registers, the
//! blocked signals, the alternative stack. The program may change it, and some do on purpose, so
//! parsing takes nothing on trust.
//!
//! ```text
//!   build(registers, delivery) ──► Frame: bytes to write at `address`, registers to start with
//!   parse(bytes)               ──► Return: registers to go on with, blocked signals, stack
//! ```
//!
//! After `build`, the kernel sets the blocked signals to
//! [`Action::blocked_meanwhile`](super::Action::blocked_meanwhile), and the alternative stack to
//! [`AltStack::while_handled`](super::AltStack::while_handled). After `parse`, it blocks what
//! [`Return::blocked`] says, and sets the stack by [`AltStack::changed`](super::AltStack::changed),
//! whose errors do not matter then. When either fails, the thread gets a SIGSEGV by
//! [`Actions::force`](super::Actions::force).

use alloc::vec::Vec;

use super::{Action, AltStack, Flags, Handler, Info, Set};
use crate::{Errno, Result};

pub mod aarch64;
pub mod x86_64;

/// What is delivered, and how.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// The signal.
    pub info: &'a Info,
    /// What the program wants done; its handler must be a function.
    pub action: &'a Action,
    /// What is blocked again once the handler returns. In `rt_sigsuspend` and the like this is
    /// what was blocked before that call.
    pub blocked: Set,
    /// The alternative stack of the thread.
    pub alt_stack: AltStack,
}

/// A frame that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<Registers> {
    /// Where its bytes belong in the program's memory.
    pub address: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// With what the handler starts.
    pub registers: Registers,
}

/// What a frame says that a handler has returned from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Return<Registers> {
    /// With what the program goes on. Safe to load.
    pub registers: Registers,
    /// What is blocked from now on; never SIGKILL and SIGSTOP.
    pub blocked: Set,
    /// The alternative stack, not checked.
    pub alt_stack: AltStack,
}

impl Delivery<'_> {
    /// Where the handler begins.
    fn handler(&self) -> Result<u64> {
        match self.action.handler {
            Handler::At(address) => Ok(address),
            Handler::Default | Handler::Ignore => Err(Errno::EINVAL),
        }
    }

    /// Whether the frame goes to the alternative stack while the program is on another.
    fn switches_stack(&self, sp: u64) -> bool {
        let wanted = self.action.flags.contains(Flags::ON_STACK);
        wanted && self.alt_stack.is_some() && !self.alt_stack.is_in_use(sp)
    }

    /// That a frame at `address` does not run over the alternative stack's start, if it is there.
    /// `sp` is the program's, before.
    fn check_fits(&self, sp: u64, address: u64) -> Result<()> {
        let is_there = self.switches_stack(sp) || self.alt_stack.is_in_use(sp);
        if is_there && !self.alt_stack.holds(address) {
            return Err(Errno::EFAULT);
        }
        Ok(())
    }
}

/// So many zeros.
fn zeros(bytes: usize) -> Result<Vec<u8>> {
    let mut zeros = Vec::new();
    zeros.try_reserve_exact(bytes).map_err(|_| Errno::ENOMEM)?;
    zeros.resize(bytes, 0);
    Ok(zeros)
}
