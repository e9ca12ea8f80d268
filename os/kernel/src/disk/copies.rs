//! Faults that the kernel takes when it copies from or to a program.
//!
//! ```text
//!   copy_user ── fault ──► resolve ──► there: the instruction again
//!                             │ on a disk
//!            leaving ◄── yes ─┴─ may this copy fail early? ─ no ──► reads it, polls the disk
//!               │
//!               └──► want: registers, asks the disk; the call is left, and made again
//! ```
//!
//! Calls that move many bytes are ready to leave. Others would have to undo what they did: they
//! wait here, which is rare, since programs have nearly always touched the memory that they pass to
//! calls.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use quire::units::Access;
use quire::{Error, Need, Stop};
use quire_linux::files::{Caller, Time};
use quire_linux::{Errno, Result, Wake};

use super::device::reap;
use super::files::{note, start, start_ahead, without_wake};
use crate::isa::{self, MAX_CPUS};
use crate::memory;

/// The state of a CPU whose copy needs a page that is on a disk: it waits, or its copy is ready to
/// fail. Else the address that made it fail, and one of [`LOADS`] and its neighbours. Only its CPU
/// uses it, and kernel code stays on its CPU; relaxed, as the fault is on the same.
static COPIES: [[AtomicU64; 2]; MAX_CPUS] = [const { [const { AtomicU64::new(0) }; 2] }; MAX_CPUS];

/// The state of a CPU.
const WAITS: u64 = 0;
const READY: u64 = 1;
const LOADS: u64 = 2;
const STORES: u64 = 3;

fn own() -> &'static [AtomicU64; 2] {
    &COPIES[isa::cpu().index()]
}

/// Does `copy`, which fails where it would have to wait for a page of a disk; where that was, and
/// for what access.
pub(crate) fn leaving<T>(copy: impl FnOnce() -> T) -> (T, Option<(u64, Access)>) {
    let [state, address] = own();
    state.store(READY, Ordering::Relaxed);
    let done = copy();
    let left = match state.swap(WAITS, Ordering::Relaxed) {
        LOADS => Some(Access::Read),
        STORES => Some(Access::Write),
        _ => None,
    };
    (done, left.map(|access| (address.load(Ordering::Relaxed), access)))
}

/// Brings a program's page in from a disk; succeeds when it is there by now.
///
/// # Errors
/// [`Errno::BLOCKED`]: it is being read, or its watcher is told that thread `tid` waits, and `wake`
/// is noted; [`Errno::EFAULT`] when there is no such page; [`Errno::ENOMEM`].
pub(crate) fn want(wake: &Arc<dyn Wake>, tid: u32, address: u64, access: Access) -> Result<()> {
    // Register first, then look again: so no answer is missed.
    note(wake)?;
    match memory::fault(address, access) {
        Ok(ahead) => {
            ahead.into_iter().for_each(start_ahead);
            Ok(())
        }
        Err(Stop::Need(Need::Wait(_))) => Err(Errno::BLOCKED),
        Err(Stop::Need(Need::Watcher(event))) => {
            let memory = memory::current().ok_or(Errno::EFAULT)?;
            if !memory.hears_kernel(event) {
                return Err(Errno::EFAULT);
            }
            match memory.tell_watcher(event, address, tid, wake)? {
                memory::Waits::Sleeps => {}
                memory::Waits::TriesAgain => return Ok(()),
                memory::Waits::GetsSignal => return Err(Errno::EFAULT),
            }
            match memory::fault(address, access) {
                Err(Stop::Need(_)) => Err(Errno::BLOCKED),
                looked => {
                    memory.untell_watcher(event, tid);
                    looked.map(drop).map_err(|_| Errno::EFAULT)
                }
            }
        }
        Err(Stop::Need(Need::Read(reads))) => {
            let who = Caller {
                pid: 0,
                tid: 0,
                may: &quire_linux::credentials::ROOT,
                now: Time::default(),
                longest: u64::MAX,
                wake,
            };
            match start(&who, reads) {
                Ok(()) | Err(Errno::BLOCKED) => Err(Errno::BLOCKED),
                Err(Errno::ENOMEM) => Err(Errno::ENOMEM),
                Err(_) => Err(Errno::EFAULT),
            }
        }
        Err(_) => Err(Errno::EFAULT),
    }
}

/// Resolves a fault that the kernel itself took at a program's address; whether it can go on.
pub(crate) fn resolve(address: u64, access: Access) -> bool {
    loop {
        let lacks = match memory::fault(address, access) {
            Ok(ahead) => {
                ahead.into_iter().for_each(start_ahead);
                return true;
            }
            Err(Stop::Need(need)) => need,
            Err(Stop::Refuse(Error::OverLimit(group))) if memory::lend(group) => continue,
            Err(_) => {
                // The copy is over, and does not leave at its next fault: a copy that tries byte by
                // byte once more would request the same page again, without end.
                own()[0].store(WAITS, Ordering::Relaxed);
                return false;
            }
        };
        // A copy that cannot leave does not wait for a watcher, which may be this thread.
        if may_leave(address, access) || matches!(lacks, Need::Watcher(_)) {
            return false;
        }
        if !bring(lacks) {
            return false;
        }
    }
}

/// Begins what a page of a disk or of a swap device lacks, and looks for answers; whether to look
/// for the page again.
pub(super) fn bring(lacks: Need) -> bool {
    match lacks {
        Need::Read(reads) if super::swap::at_once(reads) => return true,
        Need::Read(reads) => {
            let begun = without_wake(|who| start(who, reads));
            if !matches!(begun, Ok(()) | Err(Errno::BLOCKED)) {
                return false;
            }
        }
        Need::Wait(_) => {}
        _ => return false,
    }
    reap();
    core::hint::spin_loop();
    true
}

/// Whether the copy that faulted is ready to fail; then it is noted where it did.
fn may_leave(address: u64, access: Access) -> bool {
    let [state, place] = own();
    if state.load(Ordering::Relaxed) == WAITS {
        return false;
    }
    place.store(address, Ordering::Relaxed);
    let kind = if access == Access::Write { STORES } else { LOADS };
    state.store(kind, Ordering::Relaxed);
    true
}
