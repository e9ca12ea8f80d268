//! The information about a signal: `siginfo_t`, 128 bytes, the same for all ISAs.
//!
//! ```text
//!   0        4        8        12       16
//!   ┌────────┬────────┬────────┬────────┬──────────────────────────────────────────────┐
//!   │ signal │ errno  │ code   │ 0      │ by kind, see `Detail`                        │
//!   └────────┴────────┴────────┴────────┴──────────────────────────────────────────────┘
//! ```

use super::Signal;
use super::bytes::{get_i32, get_u32, get_u64, put, put_u32, put_u64};
use crate::{Errno, Result};

/// Bytes of `siginfo_t`.
pub const INFO_BYTES: usize = 128;

/// Values of `si_code`. Those above 0 are the kernel's own; their meaning depends on the signal.
pub mod code {
    use linux_raw_sys::general;

    /// `kill`.
    pub const USER: i32 = general::SI_USER as i32;
    /// The kernel, with no more to say.
    pub const KERNEL: i32 = general::SI_KERNEL as i32;
    /// `rt_sigqueueinfo`.
    pub const QUEUE: i32 = general::SI_QUEUE;
    /// A timer of `timer_create`.
    pub const TIMER: i32 = general::SI_TIMER;
    /// Input or output is possible, by a queued signal of old.
    pub const IO: i32 = general::SI_SIGIO;
    /// `tkill` or `tgkill`.
    pub const THREAD: i32 = general::SI_TKILL;
    /// SIGSEGV: nothing is there.
    pub const SEGV_UNMAPPED: i32 = general::SEGV_MAPERR as i32;
    /// SIGSEGV: it may not be used so.
    pub const SEGV_DENIED: i32 = general::SEGV_ACCERR as i32;
    /// SIGBUS: a number is not where its size demands.
    pub const BUS_ALIGNMENT: i32 = general::BUS_ADRALN as i32;
    /// SIGBUS: nothing is behind the address, such as after a file's end.
    pub const BUS_ADDRESS: i32 = general::BUS_ADRERR as i32;
    /// SIGILL: no such instruction.
    pub const ILL_OPCODE: i32 = general::ILL_ILLOPC as i32;
    /// SIGFPE: an integer was divided by zero.
    pub const FPE_DIVISION: i32 = general::FPE_INTDIV as i32;
    /// SIGTRAP: a breakpoint.
    pub const TRAP_BREAKPOINT: i32 = general::TRAP_BRKPT as i32;
    /// SIGTRAP: one instruction was done.
    pub const TRAP_STEP: i32 = general::TRAP_TRACE as i32;
    /// SIGCHLD: the child has ended by itself.
    pub const CHILD_EXITED: i32 = general::CLD_EXITED as i32;
    /// SIGCHLD: a signal has ended the child.
    pub const CHILD_KILLED: i32 = general::CLD_KILLED as i32;
    /// SIGCHLD: a signal has ended the child, which left a core dump.
    pub const CHILD_DUMPED: i32 = general::CLD_DUMPED as i32;
    /// SIGCHLD: the child has stopped.
    pub const CHILD_STOPPED: i32 = general::CLD_STOPPED as i32;
    /// SIGCHLD: the child goes on.
    pub const CHILD_CONTINUED: i32 = general::CLD_CONTINUED as i32;
}

/// The fields besides signal and code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Nothing.
    Nothing,
    /// The sender.
    Kill {
        /// The process.
        pid: i32,
        /// Its real user.
        uid: u32,
    },
    /// The sender, and a word of the sender's (`sigqueue`).
    Queue {
        /// The process.
        pid: i32,
        /// Its real user.
        uid: u32,
        /// The word.
        value: u64,
    },
    /// A timer has run out.
    Timer {
        /// Which.
        id: i32,
        /// Further expirations meanwhile.
        overrun: i32,
        /// The word given with it.
        value: u64,
    },
    /// A child has changed.
    Child {
        /// Which.
        pid: i32,
        /// Its real user.
        uid: u32,
        /// Its exit status, or the signal.
        status: i32,
        /// The time it ran, in ticks of 10 ms.
        user_ticks: i64,
        /// The time the kernel ran for it, in ticks of 10 ms.
        system_ticks: i64,
    },
    /// An instruction failed.
    Fault {
        /// The address that it accessed, or its own.
        address: u64,
    },
    /// Input or output is possible.
    Poll {
        /// The events, as `poll` reports them.
        band: i64,
        /// The number of the file.
        fd: i32,
    },
}

/// A signal, and the information about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// The signal.
    pub signal: Signal,
    /// Its origin, see [`code`].
    pub code: i32,
    /// `si_errno`: 0, unless a program sent something else.
    pub errno: i32,
    /// The rest.
    pub detail: Detail,
}

impl Info {
    /// With no errno.
    pub const fn new(signal: Signal, code: i32, detail: Detail) -> Self {
        Self { signal, code, errno: 0, detail }
    }

    /// One of the kernel's own, with no more to say.
    pub const fn kernel(signal: Signal) -> Self {
        Self::new(signal, code::KERNEL, Detail::Kill { pid: 0, uid: 0 })
    }

    /// One that `kill` sends.
    pub const fn kill(signal: Signal, pid: i32, uid: u32) -> Self {
        Self::new(signal, code::USER, Detail::Kill { pid, uid })
    }

    /// A signal that an instruction caused at `address`.
    pub const fn fault(signal: Signal, code: i32, address: u64) -> Self {
        Self::new(signal, code, Detail::Fault { address })
    }

    /// Whether an instruction of the thread itself caused it, so that the thread cannot go on
    /// without an answer.
    pub const fn is_fault(&self) -> bool {
        matches!(self.detail, Detail::Fault { .. }) && self.code > 0
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; INFO_BYTES] {
        let mut out = [0; INFO_BYTES];
        put_u32(&mut out, 0, u32::from(self.signal.number()));
        put(&mut out, 4, &self.errno.to_le_bytes());
        put(&mut out, 8, &self.code.to_le_bytes());
        match self.detail {
            Detail::Nothing => {}
            Detail::Kill { pid, uid } => put_ids(&mut out, pid, uid),
            Detail::Queue { pid, uid, value } => {
                put_ids(&mut out, pid, uid);
                put_u64(&mut out, 24, value);
            }
            Detail::Timer { id, overrun, value } => {
                put(&mut out, 16, &id.to_le_bytes());
                put(&mut out, 20, &overrun.to_le_bytes());
                put_u64(&mut out, 24, value);
            }
            Detail::Child { pid, uid, status, user_ticks, system_ticks } => {
                put_ids(&mut out, pid, uid);
                put(&mut out, 24, &status.to_le_bytes());
                put(&mut out, 32, &user_ticks.to_le_bytes());
                put(&mut out, 40, &system_ticks.to_le_bytes());
            }
            Detail::Fault { address } => put_u64(&mut out, 16, address),
            Detail::Poll { band, fd } => {
                put(&mut out, 16, &band.to_le_bytes());
                put(&mut out, 24, &fd.to_le_bytes());
            }
        }
        out
    }

    /// A program's information about `signal`, by `rt_sigqueueinfo`. Only the bytes count that a
    /// queued signal, a timer or a file has.
    ///
    /// # Errors
    /// [`Errno::EPERM`] when it pretends to come from the kernel or from `tkill`, and is not for
    /// the program itself.
    pub fn decode(signal: Signal, bytes: &[u8; INFO_BYTES], is_own: bool) -> Result<Self> {
        let code = get_i32(bytes, 8);
        if (code >= 0 || code == code::THREAD) && !is_own {
            return Err(Errno::EPERM);
        }
        let (first, second, value) = (get_i32(bytes, 16), get_i32(bytes, 20), get_u64(bytes, 24));
        let detail = match code {
            code::TIMER => Detail::Timer { id: first, overrun: second, value },
            code::IO => Detail::Poll { band: get_u64(bytes, 16) as i64, fd: value as i32 },
            code::USER => Detail::Kill { pid: first, uid: get_u32(bytes, 20) },
            _ => Detail::Queue { pid: first, uid: get_u32(bytes, 20), value },
        };
        Ok(Self { signal, code, errno: get_i32(bytes, 4), detail })
    }
}

/// The bytes of `signalfd_siginfo`: what a read of a file of signals gives.
pub fn info_for_file(info: &Info) -> [u8; INFO_BYTES] {
    let mut out = [0; INFO_BYTES];
    put_u32(&mut out, 0, u32::from(info.signal.number()));
    put(&mut out, 4, &info.errno.to_le_bytes());
    put(&mut out, 8, &info.code.to_le_bytes());
    let ids = |out: &mut [u8; INFO_BYTES], pid: i32, uid: u32| {
        put(out, 12, &pid.to_le_bytes());
        put_u32(out, 16, uid);
    };
    match info.detail {
        Detail::Nothing => {}
        Detail::Kill { pid, uid } => ids(&mut out, pid, uid),
        Detail::Queue { pid, uid, value } => {
            ids(&mut out, pid, uid);
            put_u32(&mut out, 44, value as u32);
            put_u64(&mut out, 48, value);
        }
        Detail::Timer { id, overrun, value } => {
            put(&mut out, 24, &id.to_le_bytes());
            put(&mut out, 32, &overrun.to_le_bytes());
            put_u32(&mut out, 44, value as u32);
            put_u64(&mut out, 48, value);
        }
        Detail::Child { pid, uid, status, user_ticks, system_ticks } => {
            ids(&mut out, pid, uid);
            put(&mut out, 40, &status.to_le_bytes());
            put(&mut out, 56, &user_ticks.to_le_bytes());
            put(&mut out, 64, &system_ticks.to_le_bytes());
        }
        Detail::Fault { address } => put_u64(&mut out, 72, address),
        Detail::Poll { band, fd } => {
            put(&mut out, 20, &fd.to_le_bytes());
            put_u32(&mut out, 28, band as u32);
        }
    }
    out
}

fn put_ids(out: &mut [u8], pid: i32, uid: u32) {
    put(out, 16, &pid.to_le_bytes());
    put_u32(out, 20, uid);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(info: Info) {
        assert_eq!(Info::decode(info.signal, &info.encode(), true), Ok(info));
    }

    /// Offsets by `offsetof` of `siginfo_t` on both ISAs: signo 0, errno 4, code 8, pid 16,
    /// uid 20, status 24, utime 32, stime 40.
    #[test]
    fn a_child_is_told_as_linux_lays_it_out() {
        let detail =
            Detail::Child { pid: 0x0102, uid: 3, status: -4, user_ticks: 5, system_ticks: 6 };
        let info = Info { errno: 7, ..Info::new(Signal::CHLD, code::CHILD_KILLED, detail) };
        let bytes = info.encode();
        assert_eq!(bytes[..20], [17, 0, 0, 0, 7, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0]);
        assert_eq!(bytes[20..32], [3, 0, 0, 0, 0xfc, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        assert_eq!(bytes[32..48], [5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[48..], [0; 80]);
    }

    /// addr 16; tid 16, overrun 20, value 24; band 16, fd 24.
    #[test]
    fn faults_timers_and_files_are_told_as_linux_lays_them_out() {
        let fault = Info::fault(Signal::SEGV, code::SEGV_DENIED, 0x1122_3344_5566_7788).encode();
        assert_eq!((fault[0], fault[8]), (11, 2));
        assert_eq!(fault[16..24], [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
        let timer = Detail::Timer { id: 1, overrun: 2, value: 3 };
        let timer = Info::new(Signal::ALRM, code::TIMER, timer);
        assert_eq!(timer.encode()[8..12], [0xfe, 0xff, 0xff, 0xff]);
        assert_eq!(timer.encode()[16..28], [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]);
        let poll = Info::new(Signal::IO, code::IO, Detail::Poll { band: -1, fd: 9 });
        assert_eq!(poll.encode()[16..28], [255, 255, 255, 255, 255, 255, 255, 255, 9, 0, 0, 0]);
        round_trip(timer);
        round_trip(poll);
    }

    #[test]
    fn queued_information_comes_out_as_it_went_in() {
        let detail = Detail::Queue { pid: -5, uid: u32::MAX, value: u64::MAX };
        round_trip(Info { errno: -1, ..Info::new(Signal::USR1, code::QUEUE, detail) });
        round_trip(Info::new(Signal::USR1, -77, detail));
        round_trip(Info::kill(Signal::USR2, 4, 5));
    }

    #[test]
    fn no_program_pretends_to_be_the_kernel_to_others() {
        for code in [code::USER, code::KERNEL, code::SEGV_UNMAPPED, code::THREAD, i32::MAX] {
            let bytes = Info::new(Signal::SEGV, code, Detail::Nothing).encode();
            assert_eq!(Info::decode(Signal::SEGV, &bytes, false), Err(Errno::EPERM), "{code}");
            assert!(Info::decode(Signal::SEGV, &bytes, true).is_ok_and(|info| !info.is_fault()));
        }
        let bytes = Info::new(Signal::SEGV, code::QUEUE, Detail::Nothing).encode();
        assert!(Info::decode(Signal::SEGV, &bytes, false).is_ok());
    }
}
