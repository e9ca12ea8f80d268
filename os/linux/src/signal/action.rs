//! A program's actions for signals: `rt_sigaction`.

use bitflags::bitflags;
use linux_raw_sys::general;

use super::bytes::{get_u64, put_u64};
use super::{Default, Info, Set, Signal};
use crate::{Errno, Result};

/// Whether programs may say where a handler returns to: riscv64's always return to the kernel's own
/// code.
const HAS_RESTORER: bool = !cfg!(target_arch = "riscv64");

/// Bytes of the kernel's `struct sigaction`: handler, flags, restorer where there is one, mask; 8
/// bytes each.
pub const ACTION_BYTES: usize = if HAS_RESTORER { 32 } else { 24 };

/// Where the mask is.
const MASK_AT: usize = ACTION_BYTES - 8;

/// `SA_RESTORER`, which is the same where it exists. Arm's header names it, but does not use it.
const RESTORER: u64 = 0x0400_0000;

bitflags! {
    /// How a signal is handled. Bits that are not known are dropped, as Linux does, so that
    /// programs can find out.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Flags: u64 {
        /// No SIGCHLD when a child stops or goes on.
        const NO_CHILD_STOP = general::SA_NOCLDSTOP as u64;
        /// Children vanish when they end, without a wait.
        const NO_CHILD_WAIT = general::SA_NOCLDWAIT as u64;
        /// The handler takes three arguments.
        const INFO = general::SA_SIGINFO as u64;
        /// [`Action::restorer`] is where the handler returns to.
        const RESTORER = RESTORER;
        /// The handler runs on the alternative stack, if there is one.
        const ON_STACK = general::SA_ONSTACK as u64;
        /// An interrupted system call is restarted.
        const RESTART = general::SA_RESTART as u64;
        /// The signal itself is not blocked while it is handled.
        const NO_DEFER = general::SA_NODEFER as u64;
        /// After it is handled once, the default holds again.
        const RESET = general::SA_RESETHAND as u64;
    }
}

/// The handler of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handler {
    /// The kernel, as [`Signal::default`] says.
    Default,
    /// None: the signal is dropped.
    Ignore,
    /// The function at this address, which is neither 0 nor 1.
    At(u64),
}

/// A program's action for one signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    /// Its handler.
    pub handler: Handler,
    /// How.
    pub flags: Flags,
    /// Where the handler returns to, when [`Flags::RESTORER`] is set.
    pub restorer: u64,
    /// The signals that are blocked, too, while it is handled.
    pub mask: Set,
}

impl Action {
    /// The kernel handles it.
    pub const DEFAULT: Self = Self::plain(Handler::Default);

    const fn plain(handler: Handler) -> Self {
        Self { handler, flags: Flags::empty(), restorer: 0, mask: Set::EMPTY }
    }

    /// Reads a program's action. SIGKILL and SIGSTOP are taken out of the mask.
    pub fn decode(bytes: &[u8; ACTION_BYTES]) -> Self {
        let handler = match get_u64(bytes, 0) {
            0 => Handler::Default,
            1 => Handler::Ignore,
            address => Handler::At(address),
        };
        let mut flags = Flags::from_bits_truncate(get_u64(bytes, 8));
        flags.set(Flags::RESTORER, HAS_RESTORER && flags.contains(Flags::RESTORER));
        Self {
            handler,
            flags,
            restorer: if HAS_RESTORER { get_u64(bytes, 16) } else { 0 },
            mask: Set(get_u64(bytes, MASK_AT)).blockable(),
        }
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; ACTION_BYTES] {
        let handler = match self.handler {
            Handler::Default => 0,
            Handler::Ignore => 1,
            Handler::At(address) => address,
        };
        let mut out = [0; ACTION_BYTES];
        put_u64(&mut out, 0, handler);
        put_u64(&mut out, 8, self.flags.bits());
        if HAS_RESTORER {
            put_u64(&mut out, 16, self.restorer);
        }
        put_u64(&mut out, MASK_AT, self.mask.0);
        out
    }

    /// Whether nothing happens when `signal` comes. One that is pending is forgotten when the
    /// action becomes so.
    pub const fn ignores(&self, signal: Signal) -> bool {
        match self.handler {
            Handler::Ignore => true,
            Handler::Default => matches!(signal.default(), Default::Ignore),
            Handler::At(_) => false,
        }
    }

    /// The signals that are blocked while `signal` is handled, when `blocked` were before.
    pub const fn blocked_meanwhile(&self, signal: Signal, blocked: Set) -> Set {
        let blocked = blocked.or(self.mask);
        if self.flags.contains(Flags::NO_DEFER) {
            return blocked.blockable();
        }
        blocked.with(signal).blockable()
    }
}

/// The present action for a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing.
    Ignore,
    /// The process ends.
    Terminate {
        /// Whether its status says that it left a core dump, where there are such.
        core: bool,
    },
    /// The process stops.
    Stop,
    /// The process goes on; it does already since the signal was sent.
    Continue,
    /// The program's handler runs.
    Handle {
        /// How.
        action: Action,
    },
}

/// A program's actions for all signals. All threads of a process share one such table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actions([Action; Signal::MAX as usize]);

impl Actions {
    /// The kernel handles all.
    pub const fn new() -> Self {
        Self([Action::DEFAULT; Signal::MAX as usize])
    }

    /// The action for `signal`.
    pub const fn get(&self, signal: Signal) -> &Action {
        &self.0[signal.index()]
    }

    /// Sets the action for `signal`; returns the old one. When the new action
    /// [ignores](Action::ignores) the signal, the caller forgets those that are pending.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for SIGKILL and SIGSTOP.
    pub fn set(&mut self, signal: Signal, action: Action) -> Result<Action> {
        if signal.is_unstoppable() {
            return Err(Errno::EINVAL);
        }
        Ok(core::mem::replace(&mut self.0[signal.index()], action))
    }

    /// A new program begins: handlers are gone with the old one, ignored signals stay ignored.
    pub fn reset(&mut self) {
        for action in &mut self.0 {
            *action = match action.handler {
                Handler::Ignore => Action::plain(Handler::Ignore),
                _ => Action::DEFAULT,
            };
        }
    }

    /// The present action for this signal. This resets a handler that runs only once.
    pub fn deliver(&mut self, info: &Info) -> Decision {
        let signal = info.signal;
        let slot = &mut self.0[signal.index()];
        match slot.handler {
            Handler::Ignore => Decision::Ignore,
            Handler::At(_) => {
                let action = *slot;
                if action.flags.contains(Flags::RESET) {
                    slot.handler = Handler::Default;
                }
                Decision::Handle { action }
            }
            Handler::Default => match signal.default() {
                Default::Terminate => Decision::Terminate { core: false },
                Default::Core => Decision::Terminate { core: true },
                Default::Ignore => Decision::Ignore,
                Default::Stop => Decision::Stop,
                Default::Continue => Decision::Continue,
            },
        }
    }

    /// Makes sure that `signal` has an effect: a thread at a failed instruction cannot go on
    /// otherwise. If it is blocked or ignored, the default holds from now on, and it is blocked no
    /// more.
    pub fn force(&mut self, signal: Signal, blocked: &mut Set) {
        let slot = &mut self.0[signal.index()];
        if blocked.has(signal) || slot.handler == Handler::Ignore {
            slot.handler = Handler::Default;
        }
        *blocked = blocked.without(signal);
    }
}

impl core::default::Default for Actions {
    fn default() -> Self {
        Self::new()
    }
}
