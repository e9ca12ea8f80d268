//! Bytes that came in on the console, from the handler of its interrupt to the tree's console.
//!
//! ```text
//!   the line ──► FIFO of the device ──► interrupt ──► put ──► take
//! ```
//!
//! When the ring is full the handler masks the interrupt, until `take` has made room.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use spin::mutex::SpinMutex;

const RING_BYTES: usize = 1024;

/// Bytes received. `HEAD` counts those put in, by the handler; `TAIL` those taken.
static RING: [AtomicU8; RING_BYTES] = [const { AtomicU8::new(0) }; RING_BYTES];
static HEAD: AtomicUsize = AtomicUsize::new(0);
static TAIL: AtomicUsize = AtomicUsize::new(0);

/// Whether the interrupt is masked because the ring is full.
static STOPPED: AtomicBool = AtomicBool::new(false);

static TAKER: SpinMutex<()> = SpinMutex::new(());

/// Whether there is room for a byte. Only the boot CPU's handler asks.
pub(in crate::isa) fn has_room() -> bool {
    HEAD.load(Ordering::Relaxed).wrapping_sub(TAIL.load(Ordering::Acquire)) != RING_BYTES
}

/// Notes that the interrupt is masked now: `take` will call its `unmask`.
pub(in crate::isa) fn stop() {
    STOPPED.store(true, Ordering::Release);
}

/// Puts a byte in, after [`has_room`] has said so.
pub(in crate::isa) fn put(byte: u8) {
    let head = HEAD.load(Ordering::Relaxed);
    RING[head % RING_BYTES].store(byte, Ordering::Relaxed);
    HEAD.store(head.wrapping_add(1), Ordering::Release);
}

/// The next byte; calls `unmask` where its room was waited for.
pub(in crate::isa) fn take(unmask: impl FnOnce()) -> Option<u8> {
    let _taker = TAKER.lock();
    let tail = TAIL.load(Ordering::Relaxed);
    if tail == HEAD.load(Ordering::Acquire) {
        return None;
    }
    let byte = RING[tail % RING_BYTES].load(Ordering::Relaxed);
    TAIL.store(tail.wrapping_add(1), Ordering::Release);
    if STOPPED.swap(false, Ordering::AcqRel) {
        unmask();
    }
    Some(byte)
}
