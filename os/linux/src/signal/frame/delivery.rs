//! Delivery of signals, and its result.

use alloc::vec::Vec;

use crate::signal::{Action, AltStack, Flags, Handler, Info, Set};
use crate::{Errno, Result};

/// A signal to deliver, and the way it is delivered.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// The signal.
    pub info: &'a Info,
    /// The program's action; its handler must be a function.
    pub action: &'a Action,
    /// The signals that are blocked again once the handler returns. In `rt_sigsuspend` and the like
    /// these were blocked before that call.
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
    /// The registers with which the handler starts.
    pub registers: Registers,
}

/// The content of a frame from which a handler has returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Return<Registers> {
    /// The registers with which the program goes on. Safe to load.
    pub registers: Registers,
    /// The signals that are blocked from now on; never SIGKILL and SIGSTOP.
    pub blocked: Set,
    /// The alternative stack, not checked.
    pub alt_stack: AltStack,
}

impl Delivery<'_> {
    /// Where the handler begins.
    pub(super) fn handler(&self) -> Result<u64> {
        match self.action.handler {
            Handler::At(address) => Ok(address),
            Handler::Default | Handler::Ignore => Err(Errno::EINVAL),
        }
    }

    /// Whether the frame goes to the alternative stack while the program is on another.
    pub(super) fn switches_stack(&self, sp: u64) -> bool {
        let wanted = self.action.flags.contains(Flags::ON_STACK);
        wanted && self.alt_stack.is_some() && !self.alt_stack.is_in_use(sp)
    }

    /// Checks that a frame at `address` does not run over the alternative stack's start, if it is
    /// there. `sp` is the program's, before.
    pub(super) fn check_fits(&self, sp: u64, address: u64) -> Result<()> {
        let is_there = self.switches_stack(sp) || self.alt_stack.is_in_use(sp);
        if is_there && !self.alt_stack.holds(address) {
            return Err(Errno::EFAULT);
        }
        Ok(())
    }
}

/// A vector of `bytes` zeros.
pub(super) fn zeros(bytes: usize) -> Result<Vec<u8>> {
    let mut zeros = Vec::new();
    zeros.try_reserve_exact(bytes).map_err(|_| Errno::ENOMEM)?;
    zeros.resize(bytes, 0);
    Ok(zeros)
}
