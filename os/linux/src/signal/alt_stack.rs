//! A stack of its own for signals: `sigaltstack`.

use linux_raw_sys::general;

use super::bytes::{get_u32, get_u64, put_u32, put_u64};
use crate::{Errno, Result};

/// Bytes of `stack_t`: address, flags and 4 bytes of nothing, size.
pub const ALT_STACK_BYTES: usize = 24;

/// The alternative stack of a thread, as the program set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AltStack {
    /// Its lowest address.
    pub start: u64,
    /// `SS_DISABLE` or not, `SS_AUTODISARM` or not, as the program gave it.
    pub flags: u32,
    /// Its size in bytes; 0 when there is none.
    pub bytes: u64,
}

impl AltStack {
    /// There is none.
    pub const NONE: Self = Self { start: 0, flags: general::SS_DISABLE, bytes: 0 };

    /// Reads a program's request. Nothing about it is checked, see [`changed`](Self::changed).
    pub fn decode(bytes: &[u8; ALT_STACK_BYTES]) -> Self {
        Self { start: get_u64(bytes, 0), flags: get_u32(bytes, 8), bytes: get_u64(bytes, 16) }
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; ALT_STACK_BYTES] {
        let mut out = [0; ALT_STACK_BYTES];
        put_u64(&mut out, 0, self.start);
        put_u32(&mut out, 8, self.flags);
        put_u64(&mut out, 16, self.bytes);
        out
    }

    /// Its end, exclusive; wraps for nonsense from a program.
    pub const fn end(&self) -> u64 {
        self.start.wrapping_add(self.bytes)
    }

    /// Whether there is one.
    pub const fn is_some(&self) -> bool {
        self.bytes != 0
    }

    /// Whether it is disarmed while it is in use (`SS_AUTODISARM`).
    pub const fn is_auto_disarmed(&self) -> bool {
        self.flags & general::SS_AUTODISARM != 0
    }

    /// Whether a stack with this pointer is within it. Stacks grow down: an empty one has its
    /// pointer at the end.
    pub const fn holds(&self, sp: u64) -> bool {
        sp > self.start && sp - self.start <= self.bytes
    }

    /// Whether a thread with this stack pointer uses it now. One that disarms itself is never in
    /// use, as it is gone by then.
    pub const fn is_in_use(&self, sp: u64) -> bool {
        !self.is_auto_disarmed() && self.holds(sp)
    }

    /// The answer of `sigaltstack` to a thread with this stack pointer.
    #[must_use]
    pub const fn told(&self, sp: u64) -> Self {
        let state = if !self.is_some() {
            general::SS_DISABLE
        } else if self.is_in_use(sp) {
            general::SS_ONSTACK
        } else {
            0
        };
        Self { flags: state | self.flags & general::SS_AUTODISARM, ..*self }
    }

    /// The stack after a thread with this stack pointer asks for `new`. `min_bytes` is the smallest
    /// that the ISA's frames allow (`frame::*::STACK_BYTES_MIN`).
    ///
    /// # Errors
    /// [`Errno::EPERM`] while this one is in use; [`Errno::EINVAL`] for unknown flags;
    /// [`Errno::ENOMEM`] when the new one is too small.
    pub fn changed(&self, new: Self, sp: u64, min_bytes: u64) -> Result<Self> {
        if self.is_in_use(sp) {
            return Err(Errno::EPERM);
        }
        match new.flags & !general::SS_AUTODISARM {
            general::SS_DISABLE => Ok(Self { start: 0, flags: new.flags, bytes: 0 }),
            // Linux takes SS_ONSTACK for 0, as programs pass back the value that they got.
            0 | general::SS_ONSTACK if new.bytes < min_bytes => Err(Errno::ENOMEM),
            0 | general::SS_ONSTACK => Ok(new),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The state of the stack once a handler runs.
    #[must_use]
    pub const fn while_handled(&self) -> Self {
        if self.is_auto_disarmed() { Self::NONE } else { *self }
    }
}
