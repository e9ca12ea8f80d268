//! RAM under Quire's management, and what the kernel itself needs of it.
//!
//! **Owns** the one [`Mm`], the kernel's own page tables and heap, and each program's address
//! space. **Key types**: [`Memory`] (an address space), [`Board`] (the hardware, as Quire sees
//! it). **Never** knows who a space belongs to. **Next room**: `disk`.
//!
//! ```text
//!   physical memory
//!   ├ first MiB ┼ kernel image ┼ early: slots, tables ┼ free: Quire's ………… ┼ initramfs ┤
//!                 kept           kept                   programs, heap        kept
//! ```

mod board;
mod early;
mod files;
mod heap;
mod map;
mod shared;
mod space;
mod tags;
pub(crate) mod user;

use quire::cache::File;
use quire::engine::{Mm, Parts};
use quire::hw::FrameRun;
use quire::phys::{CpuCache, Slot};
use quire::stats::Counters;
use quire::units::{FrameSpan, Pfn};
use spin::Once;
use spin::mutex::SpinMutex;

pub(crate) use board::Board;
pub(crate) use files::{make_pages, set_close_idle};
use heap::shrink;
pub(crate) use heap::{admit, set_shrink, taken_bytes};
pub(crate) use space::{Break, Memory, Own, current, errno, fault, switch, trampoline};

use crate::isa::{self, Boot, Format, MAX_CPUS};

/// The memory manager of this system.
pub(crate) type System = Mm<'static, Format, Board>;

/// Base-two logarithm of the base page in bytes.
pub(crate) const PAGE_SHIFT: u32 = 12;
/// Bytes of a base page.
pub(crate) const PAGE: u64 = 1 << PAGE_SHIFT;

/// How many files may have pages in memory at once: one for so many frames, within bounds.
const FRAMES_A_FILE: u64 = 8;
const FILES_LEAST: u64 = 8192;
const FILES_MOST: u64 = 65_536;

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
    let mut early = early::Early::new(boot);
    map::switch(boot, &mut early);
    let span = early.span();
    let slots = early.array(span.count as usize, Slot::empty);
    let caches = early.array(MAX_CPUS, CpuCache::new);
    let counters = early.array(MAX_CPUS, Counters::new);
    let zones = early.array(1, || span);
    let files = (span.count / FRAMES_A_FILE).clamp(FILES_LEAST, FILES_MOST);
    files::init(files as usize);
    let files = early.array(files as usize, File::new);
    heap::init(&mut early);
    let (board, all) = board::take(span);
    let board = early.one(board);
    let parts = Parts { first: span.start, slots, caches, counters, zones, files };
    let mm = Mm::new(board, parts).unwrap_or_else(|error| panic!("{error}"));
    let mm = MM.call_once(|| mm);
    let archive = give(mm, all, &early, frames_within(boot.initrd));
    *ARCHIVE.lock() = Some(Archive { place: boot.initrd, frames: archive });
    log!("{} MiB of {} free", mm.phys().free_frames() >> 8, span.count >> 8);
}

/// The frames that lie wholly within a piece of memory: its address, and its length in bytes.
fn frames_within((start, bytes): (u64, u64)) -> FrameSpan {
    let (first, end) = (start.div_ceil(PAGE), (start + bytes) / PAGE);
    FrameSpan::new(Pfn::new(first), end.saturating_sub(first))
}

/// Gives the library what is left of `all`; the right to `kept`, which is not, for later.
fn give(mm: &System, mut all: FrameRun, early: &early::Early, kept: FrameSpan) -> Option<FrameRun> {
    let mut found = None;
    for (start, bytes) in early.left() {
        let piece = FrameSpan::new(Pfn::new(start >> PAGE_SHIFT), bytes >> PAGE_SHIFT);
        let before = piece.start.offset_from(all.start());
        // What lies between is not ours to give now: but for `kept`, it stays taken for ever.
        let (between, rest) = all.split_at(before);
        found = found.or_else(|| cut(between, kept));
        let (run, rest) = rest.split_at(piece.count);
        mm.add(run).unwrap_or_else(|error| panic!("{error}"));
        all = rest;
    }
    found.or_else(|| cut(all, kept))
}

/// The frames of `span`, if `run` has them all; the others stay taken for ever.
fn cut(run: FrameRun, span: FrameSpan) -> Option<FrameRun> {
    let is_in = run.span().start <= span.start && span.end() <= run.span().end();
    if span.count == 0 || !is_in {
        return None;
    }
    let before = span.start.offset_from(run.start());
    let (_, rest) = run.split_at(before);
    Some(rest.split_at(span.count).0)
}

/// The initramfs, until it is unpacked.
struct Archive {
    /// Its address, and its length in bytes.
    place: (u64, u64),
    /// Those of its frames that have nothing else.
    frames: Option<FrameRun>,
}

static ARCHIVE: SpinMutex<Option<Archive>> = SpinMutex::new(None);

/// Shows `unpack` the bytes of the initramfs, and gives their memory to the library then. There are
/// no bytes the second time.
pub(crate) fn with_archive<T>(unpack: impl FnOnce(&[u8]) -> T) -> T {
    let archive = ARCHIVE.lock().take();
    let Some(Archive { place: (start, bytes @ 1..), frames }) = archive else {
        return unpack(&[]);
    };
    // SAFETY: `early` keeps these bytes out of use, nobody writes them, and they are mapped. They
    // are no longer referred to when their frames are given away below, which happens once.
    let all =
        unsafe { core::slice::from_raw_parts((isa::DIRECT + start) as *const u8, bytes as usize) };
    let done = unpack(all);
    if let Some(run) = frames {
        mm().add(run).unwrap_or_else(|error| panic!("{error}"));
    }
    done
}
