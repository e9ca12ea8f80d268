//! The system at large: names, limits, random bytes, and what a program says about itself.

use core::sync::atomic::Ordering;

use linux_raw_sys::general as abi;
use linux_raw_sys::prctl;
use quire_linux::signal::status::NS_PER_TICK;
use quire_linux::{Errno, Result};

use crate::disk::swap;
use crate::isa;
use crate::memory::{PAGE, mm, user};
use crate::proc::{HOST_NAME, RELEASE, VERSION, total_bytes};
use crate::task::{Answer, Process, Thread, find, processes, tree};

pub(super) fn uname(_: &mut Thread, [out, ..]: [usize; 6]) -> Answer {
    let mut bytes = [0_u8; 6 * 65];
    let words = ["Linux", HOST_NAME, RELEASE, VERSION, isa::MACHINE, "(none)"];
    for (field, word) in bytes.chunks_exact_mut(65).zip(words) {
        field[..word.len()].copy_from_slice(word.as_bytes());
    }
    user::write_bytes(out as u64, &bytes)?;
    Ok(0)
}

pub(super) fn getrandom(_: &mut Thread, [out, count, flags, ..]: [usize; 6]) -> Answer {
    if flags & !7 != 0 || flags & 6 == 6 {
        return Err(Errno::EINVAL.into());
    }
    let count = count.min(32 << 20);
    let mut done = 0;
    while done < count {
        let mut piece = [0; 256];
        let length = piece.len().min(count - done);
        tree::fill_random(&mut piece[..length]);
        match user::write_bytes((out + done) as u64, &piece[..length]) {
            Err(error) if done == 0 => return Err(error.into()),
            Err(_) => return Ok(done),
            Ok(()) => done += length,
        }
    }
    Ok(done)
}

pub(super) fn sysinfo(_: &mut Thread, [out, ..]: [usize; 6]) -> Answer {
    let mut count = 0_u16;
    let mut next = processes(1);
    while let Some(process) = next {
        count = count.saturating_add(1);
        next = processes(process.pid + 1);
    }
    let mut bytes = [0_u8; 112];
    let mut put = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    put(0, isa::now() / 1_000_000_000);
    put(32, total_bytes());
    put(40, mm().phys().free_frames() * PAGE);
    let (slots, used) = swap::slots();
    put(64, slots * PAGE);
    put(72, (slots - used) * PAGE);
    bytes[80..82].copy_from_slice(&count.to_le_bytes());
    bytes[104..108].copy_from_slice(&1_u32.to_le_bytes());
    user::write_bytes(out as u64, &bytes)?;
    Ok(0)
}

pub(super) fn prlimit64(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [pid, what, new, old, ..] = args;
    let process = match pid {
        0 => thread.process().clone(),
        _ => find(pid as u32).ok_or(Errno::ESRCH)?,
    };
    let before = limit(&process, what as u32)?;
    if new != 0 {
        let [soft, hard] = user::read::<[u64; 2]>(new as u64)?;
        if soft > hard {
            return Err(Errno::EINVAL.into());
        }
        set_limit(&process, what as u32, soft)?;
    }
    if old != 0 {
        user::write(old as u64, &before)?;
    }
    Ok(0)
}

pub(super) fn getrlimit(thread: &mut Thread, [what, out, ..]: [usize; 6]) -> Answer {
    prlimit64(thread, [0, what, 0, out, 0, 0])
}

pub(super) fn setrlimit(thread: &mut Thread, [what, new, ..]: [usize; 6]) -> Answer {
    if new == 0 {
        return Err(Errno::EFAULT.into());
    }
    prlimit64(thread, [0, what, new, 0, 0, 0])
}

/// A limit: its soft and its hard value.
///
/// # Errors
/// `EINVAL` when there is none of that number.
fn limit(process: &Process, what: u32) -> Result<[u64; 2]> {
    const FREE: u64 = u64::MAX;
    Ok(match what {
        abi::RLIMIT_STACK => [process.stack_limit.load(Ordering::Relaxed), FREE],
        abi::RLIMIT_AS => [process.space_limit.load(Ordering::Relaxed), FREE],
        abi::RLIMIT_NOFILE => {
            [process.files().limit().into(), quire_linux::files::LIMIT_MAX.into()]
        }
        abi::RLIMIT_CORE => [0, FREE],
        abi::RLIMIT_NPROC => [u64::from(crate::task::IDS_MAX), u64::from(crate::task::IDS_MAX)],
        what if what < abi::RLIM_NLIMITS => [FREE, FREE],
        _ => return Err(Errno::EINVAL),
    })
}

/// Sets a limit; limits that are not enforced are accepted when they only ask for less.
fn set_limit(process: &Process, what: u32, value: u64) -> Result<()> {
    match what {
        abi::RLIMIT_STACK => {
            process.stack_limit.store(value, Ordering::Relaxed);
            if let Some(memory) = process.memory() {
                memory.space().set_stack_pages(value / PAGE);
            }
        }
        abi::RLIMIT_AS => process.space_limit.store(value, Ordering::Relaxed),
        abi::RLIMIT_NOFILE => {
            let value = u32::try_from(value).map_err(|_| Errno::EPERM)?;
            process.files().set_limit(value)?;
        }
        _ => {}
    }
    Ok(())
}

pub(super) fn getrusage(thread: &mut Thread, [who, out, ..]: [usize; 6]) -> Answer {
    let faults = thread.process().faults.load(Ordering::Relaxed) + thread.faults;
    let family = thread.process().family.lock();
    let usage = match who as i32 {
        0 | 1 => {
            let mut usage = family.usage;
            usage.user_ns = thread.process().ran.load(Ordering::Relaxed);
            usage.minor_faults = faults;
            usage
        }
        -1 => family.children_usage,
        _ => return Err(Errno::EINVAL.into()),
    };
    drop(family);
    user::write(out as u64, &usage.encode())?;
    Ok(0)
}

pub(super) fn times(thread: &mut Thread, [out, ..]: [usize; 6]) -> Answer {
    let ran = thread.process().ran.load(Ordering::Relaxed) / NS_PER_TICK;
    let children = thread.process().family.lock().children_usage.user_ns / NS_PER_TICK;
    if out != 0 {
        user::write(out as u64, &[ran, 0, children, 0])?;
    }
    Ok((isa::now() / NS_PER_TICK) as usize)
}

/// An operation of `PR_SET_VMA` that Linux does not have: Linux's numbers are small.
const SET_VMA_READ_ORDER: usize = 0x5152_4f00;

pub(super) fn prctl(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [option, first, second, ..] = args;
    match option as u32 {
        prctl::PR_SET_NAME => {
            let mut name = [0; 16];
            for (at, place) in name.iter_mut().take(15).enumerate() {
                *place = user::read::<u8>((first + at) as u64)?;
                if *place == 0 {
                    break;
                }
            }
            *thread.task.name.lock() = name;
            Ok(0)
        }
        prctl::PR_GET_NAME => {
            let name = *thread.task.name.lock();
            user::write_bytes(first as u64, &name)?;
            Ok(0)
        }
        prctl::PR_SET_VMA if first == SET_VMA_READ_ORDER => {
            super::shown::prefer(second, args[3], args[4])
        }
        prctl::PR_SET_THP_DISABLE => super::memory::thp_disable(true, first, second),
        prctl::PR_GET_THP_DISABLE if args[1..5] != [0; 4] => Err(Errno::EINVAL.into()),
        prctl::PR_GET_THP_DISABLE => super::memory::thp_disable(false, 0, 0),
        prctl::PR_SET_MDWE if args[2..5] == [0; 3] => super::guard::set(first),
        prctl::PR_GET_MDWE if args[1..5] == [0; 4] => super::guard::get(),
        prctl::PR_GET_DUMPABLE => Ok(1),
        // Accepted, and of no effect here.
        prctl::PR_SET_DUMPABLE | prctl::PR_SET_PDEATHSIG | prctl::PR_SET_NO_NEW_PRIVS => Ok(0),
        _ => Err(Errno::EINVAL.into()),
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) fn arch_prctl(thread: &mut Thread, [code, address, ..]: [usize; 6]) -> Answer {
    const SET_FS: usize = 0x1002;
    const GET_FS: usize = 0x1003;
    match code {
        SET_FS if address as u64 >= isa::USER_END => Err(Errno::EPERM.into()),
        SET_FS => {
            thread.context.save_vectors();
            thread.context.set_thread_pointer(address as u64);
            thread.context.load_vectors();
            Ok(0)
        }
        GET_FS => {
            user::write(address as u64, &thread.context.thread_pointer())?;
            Ok(0)
        }
        _ => Err(Errno::EINVAL.into()),
    }
}

/// Makes code that the program has written visible to all of its threads.
#[cfg(target_arch = "riscv64")]
pub(super) fn flush_icache(_: &mut Thread, [_, _, flags, ..]: [usize; 6]) -> Answer {
    // Flag 1: for this thread alone, which may move meanwhile.
    if flags & !1 != 0 {
        return Err(Errno::EINVAL.into());
    }
    isa::fence_fetches();
    Ok(0)
}

/// Everyone is root.
pub(super) fn zero(_: &mut Thread, _: [usize; 6]) -> Answer {
    Ok(0)
}

pub(super) fn getresid(_: &mut Thread, [real, effective, saved, ..]: [usize; 6]) -> Answer {
    for address in [real, effective, saved] {
        user::write(address as u64, &0_u32)?;
    }
    Ok(0)
}

/// A call that programs try first and can do without.
pub(super) fn absent(_: &mut Thread, _: [usize; 6]) -> Answer {
    Err(Errno::ENOSYS.into())
}

/// Extended attributes: no file has any.
pub(super) fn no_attributes(_: &mut Thread, _: [usize; 6]) -> Answer {
    Err(Errno::EOPNOTSUPP.into())
}

pub(super) fn reboot(_: &mut Thread, [first, second, command, ..]: [usize; 6]) -> Answer {
    const MAGIC: (usize, usize) = (0xfee1_dead, 0x2812_1969);
    if (first & 0xffff_ffff, second) != MAGIC {
        return Err(Errno::EINVAL.into());
    }
    match command as u32 {
        // Halt, power off, restart: all end the machine.
        0xcdef_0123 | 0x4321_fedc | 0x0123_4567 => crate::halt(0),
        // Control-Alt-Delete on or off.
        0x89ab_cdef | 0 => Ok(0),
        _ => Err(Errno::EINVAL.into()),
    }
}
