//! Signals by number, and sets of them.

use core::fmt;

use linux_raw_sys::general;

use crate::{Errno, Result};

/// A signal, from 1 to 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(u8);

macro_rules! names {
    ($($name:ident)*) => {
        impl Signal {
            $(
                #[doc = concat!("The signal `SIG", stringify!($name), "`.")]
                pub const $name: Signal = Signal(pasted::$name as u8);
            )*

            /// Its name without `SIG`; nothing for a real-time signal.
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Signal::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

/// Linux's numbers under shorter names.
mod pasted {
    pub(super) use super::general::{
        SIGABRT as ABRT, SIGALRM as ALRM, SIGBUS as BUS, SIGCHLD as CHLD, SIGCONT as CONT,
        SIGFPE as FPE, SIGHUP as HUP, SIGILL as ILL, SIGINT as INT, SIGIO as IO, SIGKILL as KILL,
        SIGPIPE as PIPE, SIGPROF as PROF, SIGPWR as PWR, SIGQUIT as QUIT, SIGSEGV as SEGV,
        SIGSTKFLT as STKFLT, SIGSTOP as STOP, SIGSYS as SYS, SIGTERM as TERM, SIGTRAP as TRAP,
        SIGTSTP as TSTP, SIGTTIN as TTIN, SIGTTOU as TTOU, SIGURG as URG, SIGUSR1 as USR1,
        SIGUSR2 as USR2, SIGVTALRM as VTALRM, SIGWINCH as WINCH, SIGXCPU as XCPU, SIGXFSZ as XFSZ,
    };
}

names! {
    HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT
    CHLD CONT STOP TSTP TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS
}

/// The default action of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Default {
    /// It ends.
    Terminate,
    /// It ends, with a core dump where there are such.
    Core,
    /// Nothing.
    Ignore,
    /// It stops until SIGCONT.
    Stop,
    /// It goes on if it was stopped.
    Continue,
}

impl Signal {
    /// The last one.
    pub const MAX: u8 = 64;

    /// The signal with this number.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] when there is none.
    pub const fn new(number: u64) -> Result<Self> {
        match number {
            1..=64 => Ok(Self(number as u8)),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Its number.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Where it is in a table of all.
    pub(super) const fn index(self) -> usize {
        self.0 as usize - 1
    }

    /// Whether it can be pending more than once, each with its information.
    pub const fn is_real_time(self) -> bool {
        self.0 as u32 >= general::SIGRTMIN
    }

    /// Whether programs can neither block, ignore nor handle it.
    pub const fn is_unstoppable(self) -> bool {
        Set::UNSTOPPABLE.has(self)
    }

    /// Its default action.
    pub const fn default(self) -> Default {
        match self {
            Self::CHLD | Self::URG | Self::WINCH => Default::Ignore,
            Self::CONT => Default::Continue,
            Self::STOP | Self::TSTP | Self::TTIN | Self::TTOU => Default::Stop,
            Self::QUIT | Self::ILL | Self::TRAP | Self::ABRT | Self::BUS | Self::FPE => {
                Default::Core
            }
            Self::SEGV | Self::SYS | Self::XCPU | Self::XFSZ => Default::Core,
            _ => Default::Terminate,
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "SIG{name}"),
            None => write!(f, "signal {}", self.0),
        }
    }
}

/// A set of signals, as programs have it: signal `n` is bit `n - 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Set(pub u64);

impl Set {
    /// None.
    pub const EMPTY: Self = Self(0);
    /// SIGKILL and SIGSTOP.
    pub const UNSTOPPABLE: Self = Self(Self::bit(Signal::KILL) | Self::bit(Signal::STOP));
    /// Those that a program's own instruction causes. They come first, so that a handler finds
    /// the program at that instruction.
    pub const SYNCHRONOUS: Self = Self(
        Self::bit(Signal::SEGV)
            | Self::bit(Signal::BUS)
            | Self::bit(Signal::ILL)
            | Self::bit(Signal::TRAP)
            | Self::bit(Signal::FPE)
            | Self::bit(Signal::SYS),
    );

    const fn bit(signal: Signal) -> u64 {
        1 << (signal.0 - 1)
    }

    /// Only this one.
    pub const fn of(signal: Signal) -> Self {
        Self(Self::bit(signal))
    }

    /// Whether it has none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `signal` is one of them.
    pub const fn has(self, signal: Signal) -> bool {
        self.0 & Self::bit(signal) != 0
    }

    /// These and `signal`.
    #[must_use]
    pub const fn with(self, signal: Signal) -> Self {
        Self(self.0 | Self::bit(signal))
    }

    /// These but `signal`.
    #[must_use]
    pub const fn without(self, signal: Signal) -> Self {
        Self(self.0 & !Self::bit(signal))
    }

    /// Those in either.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Those that are not in `other`.
    #[must_use]
    pub const fn and_not(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// These, as far as a program may block them: never SIGKILL and SIGSTOP.
    #[must_use]
    pub const fn blockable(self) -> Self {
        self.and_not(Self::UNSTOPPABLE)
    }

    /// The one with the lowest number.
    pub const fn lowest(self) -> Option<Signal> {
        match self.0 {
            0 => None,
            bits => Some(Signal(bits.trailing_zeros() as u8 + 1)),
        }
    }

    /// The one that Linux takes first: of the synchronous ones, if there are any, the lowest.
    pub const fn most_urgent(self) -> Option<Signal> {
        match self.and(Self::SYNCHRONOUS).lowest() {
            None => self.lowest(),
            some => some,
        }
    }

    /// This set of blocked signals after `rt_sigprocmask`: `how` is 0 to add those of `change`, 1
    /// to take them out, 2 to have only them.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for any other `how`.
    pub const fn changed(self, how: u64, change: Self) -> Result<Self> {
        let change = change.blockable();
        match how as u32 {
            general::SIG_BLOCK => Ok(self.or(change)),
            general::SIG_UNBLOCK => Ok(self.and_not(change)),
            general::SIG_SETMASK => Ok(change),
            _ => Err(Errno::EINVAL),
        }
    }
}
