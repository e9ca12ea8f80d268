//! Reclaim: the library's least recently used pages leave when memory is short.
//!
//! ```text
//!   free frames   0 ........ min ........ low ...................... high
//!   before a fault  wait       let an idle CPU do it, or else           nothing
//!                   for some   do a piece oneself
//!   idle CPU, tick             a piece, until `high`
//!   there is none for something: some must leave, and be written, before it is tried again
//! ```
//!
//! A piece is bounded, and so is a wait. A round that finds nothing stops further rounds for a
//! while: then `oom` ends a process.

use core::sync::atomic::{AtomicU64, Ordering};

use quire::Watermarks;
use spin::Once;
use spin::mutex::SpinMutex;

use super::queue;
use crate::disk::{self, swap};
use crate::isa;
use crate::memory::{self, Everyone, PAGE, mm};

/// Pages that leave at a time: 1 MiB.
const BATCH: u64 = 256;

/// The pause after a round that found nothing, in nanoseconds.
const REST_NS: u64 = 100_000_000;

/// Frames that are not for programs: paging out needs some, for the index of its device, and a
/// device in memory for the pages that it stores. More than the reserve of the heap.
const LAST: u64 = 256;

/// Retries of an allocation, if other CPUs take the frames that become free.
const TRIES: usize = 16;

/// Free slots below which devices count as full.
const FULL: u64 = 16;

/// How many frames programs and the heap can have.
static FRAMES: Once<u64> = Once::new();

/// The watermarks of free frames.
static MARKS: Once<Watermarks> = Once::new();

/// The end of that pause.
static RESTS_UNTIL: AtomicU64 = AtomicU64::new(0);

/// Held by the CPU that reclaims: two would take each other's time.
static AT_IT: SpinMutex<()> = SpinMutex::new(());

/// Registers this room's functions with `memory`.
pub(crate) fn init() {
    let frames = mm().phys().free_frames() + memory::taken_bytes() / PAGE;
    FRAMES.call_once(|| frames);
    MARKS.call_once(|| mm().reclaim().watermarks(frames));
    mm().policy().set_spare(LAST);
    memory::set_shrink(|| disk::shrink() || relieve());
    memory::set_ease(ease);
    super::cgroup::init();
}

/// How many frames programs and the heap can have.
pub(super) fn frames() -> u64 {
    FRAMES.get().copied().unwrap_or(0)
}

fn marks() -> Watermarks {
    MARKS.get().copied().unwrap_or(Watermarks { min: 0, low: 0, high: 0 })
}

/// Before a fault: keeps some memory free; whether there is enough for a program.
fn ease() -> bool {
    !swap::is_on() || mm().phys().has_free(marks().low) || ease_slowly()
}

#[cold]
fn ease_slowly() -> bool {
    if mm().phys().has_free(marks().min) {
        if !is_resting() && swap::is_quiet() && !queue::nudge() {
            balance();
        }
        return true;
    }
    (0..TRIES).any(|_| {
        let is_going_on = relieve();
        mm().phys().has_free(LAST) || !is_going_on
    });
    mm().phys().has_free(LAST)
}

/// Reclaims a piece if free memory is below the watermark: on idle CPUs, and now and then on busy
/// ones.
pub(crate) fn background() {
    if swap::is_on() && !mm().phys().has_free(marks().low) && !is_resting() && swap::is_quiet() {
        balance();
    }
}

/// Reclaims up to the high watermark, or one write's worth of pages.
fn balance() {
    if let Some(_at_it) = AT_IT.try_lock() {
        let lacks = marks().high.saturating_sub(mm().phys().free_frames());
        take(lacks.min(4 * BATCH));
        swap::begin_writing();
    }
}

fn is_resting() -> bool {
    isa::now() < RESTS_UNTIL.load(Ordering::Relaxed)
}

/// Frees pages, or begins to write them; how many.
fn take(pages: u64) -> u64 {
    let (slots, used) = swap::slots();
    // A caller that lacks even the last frames must decide which process ends: it looks itself.
    let rests = is_resting() && mm().phys().has_free(LAST);
    if pages == 0 || rests || used + FULL > slots {
        return 0;
    }
    let taken = mm().reclaim().reclaim(pages, &Everyone).pages();
    if taken == 0 {
        RESTS_UNTIL.store(isa::now() + REST_NS, Ordering::Relaxed);
    }
    taken
}

/// Frees pages, and waits until some are free or all are written; whether any left, or was on its
/// way. The caller holds no lock that is taken when a disk answers.
fn relieve() -> bool {
    if !swap::is_on() {
        // Then pages of files, even mapped ones.
        return mm().reclaim().reclaim(BATCH, &Everyone).pages() > 0;
    }
    let at_it = loop {
        if let Some(at_it) = AT_IT.try_lock() {
            break at_it;
        }
        // The owner of the lock reclaims: its pages may be enough. Nothing that it needs is
        // touched.
        while AT_IT.is_locked() {
            core::hint::spin_loop();
        }
        if mm().phys().has_free(LAST) {
            return true;
        }
    };
    let before = mm().phys().free_frames();
    let was_quiet = swap::is_quiet();
    let taken = take(BATCH);
    swap::begin_writing();
    while !swap::is_quiet() && mm().phys().free_frames() < before + BATCH / 4 {
        disk::reap();
        core::hint::spin_loop();
    }
    drop(at_it);
    taken > 0 || !was_quiet
}
