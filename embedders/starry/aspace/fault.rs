//! Faults, and what they wait for: pages of files, and memory.

use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};

use ax_alloc::{UsageKind, global_allocator};
use ax_memory_addr::{PhysAddr, VirtAddr};
use ax_runtime::hal::mem::{phys_to_virt, virt_to_phys};
use ax_runtime::hal::trap::PageFaultFlags;
use quire_starry::quire::units::{Access, Vpn};
use quire_starry::quire::{Error, Need, Resolved, Stop};
use quire_starry::{Home, Lent, PAGE, PIECES_MOST, System};

use super::objects;
use super::policy::{BusCode, FaultResult};
use crate::sync::PreemptGuard;

/// The kernel keeps this part of its free memory for itself, at least.
const KEEP_PART: usize = 4;
/// And this many pages.
const KEEP_LEAST: usize = (48 << 20) / PAGE;
/// The kernel's allocator gives its memory in about this many blocks.
const BLOCKS: usize = 64;
/// The least of them, in pages.
const BLOCK_LEAST: usize = (2 << 20) / PAGE;

/// The sizes of folios, unless a word of the kernel's command line says others.
const SIZES: &str = "64K:always;2M:always";
const SIZES_WORD: &str = "quire.sizes=";
/// How much of programs' memory may be compressed, such as `192M`; without this word none.
const ZRAM_WORD: &str = "quire.zram=";

/// Calls the library. Its locks are spin locks, so no other thread may run here meanwhile.
#[inline]
pub(super) fn quiet<R>(call: impl FnOnce(&'static System) -> R) -> R {
    let _off = PreemptGuard::new();
    call(quire_starry::mm().expect("the first address space starts it"))
}

/// Lends most of the free memory to the library, the first time.
pub(super) fn start() -> bool {
    static BEGUN: AtomicBool = AtomicBool::new(false);
    if quire_starry::mm().is_some() {
        return true;
    }
    if BEGUN.swap(true, Ordering::AcqRel) {
        return false;
    }
    let pieces = borrow();
    let direct = phys_to_virt(PhysAddr::from_usize(0)).as_usize();
    let cpus = ax_runtime::hal::cpu_num();
    let cpu = ax_runtime::hal::percpu::this_cpu_id;
    let lent = Lent { pieces: &pieces, direct, cpus, cpu };
    // SAFETY: the allocator has given these pages, which never go back, and the kernel sees all of
    // its RAM at one distance from its physical address.
    let started = unsafe { quire_starry::start(&lent) };
    if let Err(error) = started {
        error!("Quire did not start: {error}");
        return false;
    }
    let words = ax_runtime::hal::boot::bootargs().unwrap_or_default();
    let word = |name| words.split_whitespace().find_map(|word| word.strip_prefix(name));
    let sizes = word(SIZES_WORD).unwrap_or(SIZES);
    quiet(|mm| {
        if let Err(why) = mm.policy().set_sizes(sizes, quire_starry::PAGE_SHIFT) {
            error!("folio sizes {sizes}: {why:?}");
        }
        if let Some(size) = word(ZRAM_WORD)
            && bytes_of(size).and_then(|size| quire_starry::swap_on(size).ok()).is_none()
        {
            error!("there is no compressed memory of {size}");
        }
        info!("Quire has {} MiB in {} pieces", mm.phys().free_frames() >> 8, pieces.len());
    });
    true
}

/// The bytes of a word like `64K`, `192M` or `1G`.
fn bytes_of(word: &str) -> Option<u64> {
    let units = [('K', 10), ('M', 20), ('G', 30)];
    let (unit, shift) = units.into_iter().find(|(unit, _)| word.ends_with(*unit))?;
    word.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Most of the kernel's free memory, in as few pieces as there are, by physical address.
///
/// The allocator has blocks, and takes back only whole ones. It gives small ones that follow each
/// other, so that they are few pieces together, and what it keeps is in one place, too.
fn borrow() -> Vec<Range<u64>> {
    let free = global_allocator().available_pages();
    let mut wanted = free.saturating_sub((free / KEEP_PART).max(KEEP_LEAST));
    let mut size = (wanted / BLOCKS).next_power_of_two().max(BLOCK_LEAST);
    let mut pieces: Vec<Range<u64>> = Vec::new();
    while size >= BLOCK_LEAST && size <= wanted {
        let bytes = size * PAGE;
        let Ok(start) = global_allocator().alloc_pages(size, bytes, UsageKind::VirtMem) else {
            size /= 2;
            continue;
        };
        let start = virt_to_phys(VirtAddr::from_usize(start)).as_usize() as u64;
        wanted -= size;
        pieces.push(start..start + bytes as u64);
    }
    pieces.sort_unstable_by_key(|piece| piece.start);
    pieces.dedup_by(|next, piece| {
        let touches = piece.end == next.start;
        if touches {
            piece.end = next.end;
        }
        touches
    });
    // More pieces than the library takes are small ones. They stay unused.
    pieces.sort_unstable_by_key(|piece| piece.start.wrapping_sub(piece.end));
    pieces.truncate(PIECES_MOST);
    pieces
}

/// The access that a fault reports.
fn access(flags: PageFaultFlags) -> Access {
    if flags.contains(PageFaultFlags::WRITE) {
        Access::Write
    } else if flags.contains(PageFaultFlags::EXECUTE) {
        Access::Execute
    } else {
        Access::Read
    }
}

/// Resolves a fault. It may sleep: no lock is held.
pub(super) fn resolve(home: &Home, address: VirtAddr, flags: PageFaultFlags) -> FaultResult {
    let page = Vpn::new((address.as_usize() / PAGE) as u64);
    if !home.covers(page) {
        return FaultResult::Unmapped;
    }
    let access = access(flags);
    let mut tries = 0;
    loop {
        let stop = match quiet(|_| home.fault(page, access)) {
            Ok(Resolved::Paged { ahead: Some(reads), .. }) => {
                objects::fetch(reads);
                return FaultResult::Handled;
            }
            Ok(_) => return FaultResult::Handled,
            Err(stop) => stop,
        };
        match stop {
            Stop::Need(need) => wait(need),
            Stop::Refuse(Error::NoMemory(_)) if tries < 16 && shrink() => tries += 1,
            Stop::Refuse(Error::Missing(_)) if tries < 16 && objects::grow(home, page) => {
                tries += 1;
            }
            Stop::Refuse(error) => return refused(error),
        }
    }
}

fn refused(error: Error) -> FaultResult {
    match error {
        Error::NoArea(_) => FaultResult::Unmapped,
        Error::NoMemory(_) | Error::OverLimit(_) => FaultResult::NoMemory,
        Error::Missing(_) => FaultResult::Sigbus(BusCode::AdrErr),
        Error::Failed(..) | Error::Poisoned(_) => FaultResult::Sigbus(BusCode::ObjErr),
        _ => FaultResult::PermissionDenied,
    }
}

/// Brings what a call needs, or lets another thread bring it.
pub(super) fn wait(need: Need) {
    match need {
        Need::Read(reads) => objects::fetch(reads),
        _ => crate::task::yield_now(),
    }
}

/// Frees memory, if there is any to free: that of ended processes, then clean pages of files, and
/// what can be compressed.
pub(super) fn shrink() -> bool {
    let (ended, _) = super::reap_retired(16);
    ended > 0 || quiet(|_| quire_starry::relieve())
}
