//! RAM under Quire's management, and the kernel's own share of it.
//!
//! **Owns** the one [`Mm`], the kernel's own page tables and heap, and each program's address
//! space. **Key types**: [`Memory`] (an address space), [`Board`] (the hardware, as Quire sees it).
//! **Never** knows the owner of a space. **Next room**: `disk`.
//!
//! ```text
//!   physical memory
//!   ├ first MiB ┼ kernel image ┼ early: slots, tables, vDSO ┼ free: Quire's ………… ┼ initramfs ┤
//!                 kept           kept                   programs, heap        kept
//! ```

mod archive;
mod board;
mod canary;
pub(crate) mod commit;
mod files;
mod heap;
mod limits;
mod map;
mod policy;
pub(crate) mod reserved;
mod shared;
mod space;
mod tags;
pub(crate) mod user;
pub(crate) mod vdso;
mod watchers;

use quire::cache::File;
use quire::hw::SetupError;
use quire::phys::{CpuCache, Slot, Zone};
use quire::stats::Counters;
use quire::swap::{SWAPS_MAX, Swap};
use quire::{Group, Mm, Parts};
use spin::Once;

pub(crate) use archive::with_archive;
pub(crate) use board::Board;
pub(crate) use files::{make_pages, set_bring, set_close_idle};
pub(crate) use heap::{admit, has_reserve, set_ease, set_shrink, taken_bytes};
use heap::{ease, shrink};
pub(crate) use limits::{Limits, lend, relieve, set_limits};
#[cfg(feature = "checks")]
pub(crate) use shared::spaces;
pub(crate) use shared::{Everyone, Keeper, attachments, is_there, new_segment};
pub(crate) use space::{
    ALL, Break, Memory, Own, PROGRAM_END, Reach, current, errno, fault, set_fetch, switch,
};
pub(crate) use tags::rollovers;
pub(crate) use watchers::Waits;

use crate::isa::{Boot, Format, MAX_CPUS};

/// The memory manager of this system.
pub(crate) type System = Mm<'static, Format, Board>;

/// Base-two logarithm of the base page in bytes.
pub(crate) const PAGE_SHIFT: u32 = 12;
/// Bytes of a base page.
pub(crate) const PAGE: u64 = 1 << PAGE_SHIFT;

/// RAM before there is a library, in up to 16 pieces.
type Early = quire::hw::Early<16>;

/// Frames for each file that may have pages in memory at once; the number of files has bounds.
const FRAMES_A_FILE: u64 = 8;
const FILES_LEAST: u64 = 8192;
const FILES_MOST: u64 = 65_536;
/// How many groups of processes there may be at once.
const GROUPS_MAX: usize = 64;

static BOARD: Once<Board> = Once::new();
static MM: Once<System> = Once::new();

/// The memory manager.
///
/// # Panics
/// Before [`init`] is done.
#[inline]
pub(crate) fn mm() -> &'static System {
    MM.get().expect("memory is set up first of all")
}

/// Takes over all RAM: final tables, metadata, the library, the heap.
///
/// # Panics
/// When there is too little RAM to begin at all.
pub(crate) fn init(boot: &Boot) {
    canary::init(boot.command_line);
    let (mut early, span) = map::ram(boot);
    map::switch(boot, &mut early);
    tags::init(boot.command_line);
    let slots = many(&mut early, span.count as usize, Slot::empty);
    let caches = many(&mut early, MAX_CPUS, CpuCache::new);
    let counters = many(&mut early, MAX_CPUS, Counters::new);
    let zones = many(&mut early, 1, || Zone::new(span));
    let groups = many(&mut early, GROUPS_MAX, Group::new);
    let files = (span.count / FRAMES_A_FILE).clamp(FILES_LEAST, FILES_MOST);
    files::init(files as usize);
    let files = many(&mut early, files as usize, File::new);
    let swaps = many(&mut early, SWAPS_MAX, Swap::new);
    heap::init(&mut early);
    vdso::init(&mut early);
    let (board, all) = board::take(span);
    let board = BOARD.call_once(|| board);
    let parts = Parts::new(span.start, slots, caches, counters, zones)
        .files(files)
        .swaps(swaps)
        .groups(groups);
    let mm = Mm::new(board, parts).unwrap_or_else(|error| panic!("{error}"));
    let mm = MM.call_once(|| mm);
    reserved::init();
    archive::give(mm, all, &early, boot.initrd);
    log!("{} MiB of {} free", mm.phys().free_frames() >> 8, span.count >> 8);
}

/// The result of a step before the library is there.
///
/// # Panics
/// When it failed: the machine has too little RAM to begin with, or RAM in too many pieces.
fn enough<T>(done: Result<T, SetupError>) -> T {
    done.unwrap_or_else(|error| panic!("at the beginning: {error}"))
}

/// Values for as long as the kernel runs.
fn many<T>(early: &mut Early, count: usize, make: impl Fn() -> T) -> &'static mut [T] {
    enough(early.array((0..count).map(|_| make())))
}
