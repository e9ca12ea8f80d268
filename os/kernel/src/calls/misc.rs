//! The system at large: names, limits, random bytes, and what a program says about itself.

use core::sync::atomic::Ordering;

use quire_linux::Errno;
use quire_linux::signal::status::NS_PER_TICK;

use crate::disk::swap;
use crate::isa;
use crate::memory::{PAGE, commit, mm, user};
use crate::proc::{HOST_NAME, RELEASE, VERSION};
use crate::task::{Answer, Thread, processes, tree};

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
    put(32, commit::total_bytes());
    put(40, mm().phys().free_frames() * PAGE);
    let (slots, used) = swap::slots();
    put(64, slots * PAGE);
    put(72, (slots - used) * PAGE);
    bytes[80..82].copy_from_slice(&count.to_le_bytes());
    bytes[104..108].copy_from_slice(&1_u32.to_le_bytes());
    user::write_bytes(out as u64, &bytes)?;
    Ok(0)
}

pub(super) fn getrusage(thread: &mut Thread, [who, out, ..]: [usize; 6]) -> Answer {
    let faults = thread.process().faults.load(Ordering::Relaxed) + thread.faults;
    let pages = thread.process().memory().map_or(0, |memory| memory.resident_pages());
    let mut family = thread.process().family.lock();
    let usage = match who as i32 {
        0 | 1 => {
            let peak = &mut family.usage.resident_kib_max;
            *peak = (*peak).max((pages * PAGE) >> 10);
            let mut usage = family.usage;
            usage.user_ns = thread.process().ran.load(Ordering::Relaxed);
            usage.minor_faults = faults;
            usage.major_faults = thread.process().major_faults.load(Ordering::Relaxed);
            usage.waits = thread.process().waits.load(Ordering::Relaxed);
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

/// A call that has nothing to do.
pub(super) fn zero(_: &mut Thread, _: [usize; 6]) -> Answer {
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
