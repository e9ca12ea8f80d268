//! System calls that change memory and need nothing else of the kernel.

use ax_memory_addr::{MemoryAddr, PAGE_SIZE_4K, VirtAddr};
use ax_runtime::hal::paging::MappingFlags;
use linux_raw_sys::general::*;

use super::advice::is_advice;
use super::policy::{MemlockLimit, VmaLockMode};
use crate::{StarryError, StarryResult};

/// Whole pages.
fn whole(bytes: usize) -> StarryResult<usize> {
    bytes.checked_next_multiple_of(PAGE_SIZE_4K).ok_or(StarryError::InvalidInput)
}

pub fn sys_mprotect(
    current: &crate::task::UserTaskRef,
    addr: usize,
    length: usize,
    prot: u32,
) -> StarryResult<isize> {
    let (grows, all) = (PROT_GROWSDOWN | PROT_GROWSUP, PROT_READ | PROT_WRITE | PROT_EXEC);
    if prot & !(grows | all) != 0 || prot & grows == grows || !addr.is_multiple_of(PAGE_SIZE_4K) {
        return Err(StarryError::InvalidInput);
    }
    let length = whole(length)?;
    if length == 0 {
        return Ok(0);
    }
    let mut rights = MappingFlags::empty();
    rights.set(MappingFlags::READ, prot & PROT_READ != 0);
    rights.set(MappingFlags::WRITE, prot & PROT_WRITE != 0);
    rights.set(MappingFlags::EXECUTE, prot & PROT_EXEC != 0);
    let aspace = current.as_thread().proc_data.pin_aspace()?;
    let mut aspace = aspace.lock();
    if prot & PROT_WRITE != 0 {
        aspace.check_seals(addr, length)?;
    }
    aspace.protect(VirtAddr::from(addr), length, rights)?;
    Ok(0)
}

pub fn sys_mremap(
    current: &crate::task::UserTaskRef,
    addr: usize,
    old_size: usize,
    new_size: usize,
    flags: usize,
    new_addr: usize,
) -> StarryResult<isize> {
    let (may_move, fixed, keeps) = (MREMAP_MAYMOVE, MREMAP_FIXED, MREMAP_DONTUNMAP);
    let flags = u32::try_from(flags).map_err(|_| StarryError::InvalidInput)?;
    let needs_move = flags & (fixed | keeps) != 0 && flags & may_move == 0;
    let is_aligned = addr.is_multiple_of(PAGE_SIZE_4K);
    if flags & !(may_move | fixed | keeps) != 0 || needs_move || !is_aligned || new_size == 0 {
        return Err(StarryError::InvalidInput);
    }
    if flags & fixed != 0 && !new_addr.is_multiple_of(PAGE_SIZE_4K) {
        return Err(StarryError::InvalidInput);
    }
    let old_size = whole(old_size)?;
    let pages = (whole(new_size)? / PAGE_SIZE_4K) as u64;
    let aspace = current.as_thread().proc_data.pin_aspace()?;
    let placed = aspace.lock().move_pages((addr, old_size), pages, flags, new_addr)?;
    Ok(placed.as_usize() as isize)
}

pub fn sys_madvise(
    current: &crate::task::UserTaskRef,
    addr: usize,
    length: usize,
    advice: i32,
) -> StarryResult<isize> {
    if !is_advice(advice as u32) || !addr.is_multiple_of(PAGE_SIZE_4K) {
        return Err(StarryError::InvalidInput);
    }
    let length = whole(length)?;
    if length == 0 {
        return Ok(0);
    }
    let aspace = current.as_thread().proc_data.pin_aspace()?;
    aspace.lock().advise(addr, length, advice as u32)?;
    Ok(0)
}

pub fn sys_msync(
    current: &crate::task::UserTaskRef,
    addr: usize,
    length: usize,
    flags: u32,
) -> StarryResult<isize> {
    let both = MS_SYNC | MS_ASYNC;
    if flags & !(both | MS_INVALIDATE) != 0 || flags & both == both {
        return Err(StarryError::InvalidInput);
    }
    if !addr.is_multiple_of(PAGE_SIZE_4K) {
        return Err(StarryError::InvalidInput);
    }
    let length = whole(length)?;
    if length == 0 {
        return Ok(0);
    }
    let aspace = current.as_thread().proc_data.pin_aspace()?;
    let (writes, invalidates) = (flags & MS_SYNC != 0, flags & MS_INVALIDATE != 0);
    aspace.lock().sync(addr, length, writes, invalidates)?;
    Ok(0)
}

pub fn sys_mlock(
    current: &crate::task::UserTaskRef,
    addr: usize,
    length: usize,
) -> StarryResult<isize> {
    sys_mlock2(current, addr, length, 0)
}

pub fn sys_mlock2(
    current: &crate::task::UserTaskRef,
    addr: usize,
    length: usize,
    flags: u32,
) -> StarryResult<isize> {
    let mode = match flags {
        0 => VmaLockMode::Locked,
        MLOCK_ONFAULT => VmaLockMode::LockOnFault,
        _ => return Err(StarryError::InvalidInput),
    };
    let thread = current.as_thread();
    let limit = MemlockLimit::for_mlock(
        thread.proc_data.rlimit_current(RLIMIT_MEMLOCK),
        thread.cred().has_cap_ipc_lock(),
    );
    if !limit.can_lock() {
        return Err(StarryError::OperationNotPermitted);
    }
    lock_range(current, addr, length, mode, limit)
}

pub fn sys_munlock(
    current: &crate::task::UserTaskRef,
    addr: usize,
    length: usize,
) -> StarryResult<isize> {
    let limit = MemlockLimit::for_mlock(0, true);
    lock_range(current, addr, length, VmaLockMode::Unlocked, limit)
}

/// Gives the pages with these bytes a mode.
fn lock_range(
    current: &crate::task::UserTaskRef,
    addr: usize,
    length: usize,
    mode: VmaLockMode,
    limit: MemlockLimit,
) -> StarryResult<isize> {
    let start = addr.align_down(PAGE_SIZE_4K);
    let end = addr.checked_add(length).ok_or(StarryError::InvalidInput)?;
    let end = whole(end)?;
    if end > start && length > 0 {
        let aspace = current.as_thread().proc_data.pin_aspace()?;
        aspace.lock().lock_vma_range(start, end - start, mode, limit)?;
    }
    Ok(0)
}
