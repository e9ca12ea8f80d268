//! The kernel's heap: talc over frames that the library gives.
//!
//! Rust's collections end the machine when an allocation fails. So sizes that a program controls
//! are reserved by fallible calls, and all other allocations are small and come out of a reserve. A
//! system call that allocates begins with [`admit`], which refuses while the reserve is not whole.

use core::alloc::Layout;
use core::sync::atomic::{AtomicU64, Ordering};

use quire::units::Order;
use spin::Once;
use talc::TalcLock;
use talc::base::Talc;
use talc::base::binning::Binning;
use talc::source::Source;

use super::{Early, MM, PAGE, PAGE_SHIFT, enough};
use crate::isa;

/// The first bytes of the heap.
const FIRST_BYTES: u64 = 1 << 20;
/// The usual growth: 256 KiB, less where memory is in smaller pieces.
const GROWTH: Order = Order::new(6);
/// Frames that must be free beside the heap for a call to be admitted: 512 KiB.
const RESERVE_FRAMES: u64 = 128;

#[global_allocator]
static HEAP: TalcLock<spin::mutex::Mutex<(), spin::Spin>, Frames> = TalcLock::new(Frames);

/// Bytes that the heap has taken, all in all.
static TAKEN: AtomicU64 = AtomicU64::new(0);

#[derive(Debug)]
struct Frames;

// SAFETY: it touches the allocator through the given reference only; frames come from the library,
// which uses no heap.
unsafe impl Source for Frames {
    fn acquire<B: Binning>(talc: &mut Talc<Self, B>, layout: Layout) -> Result<(), ()> {
        let mm = MM.get().ok_or(())?;
        // Alignment and the allocator's own words fit in as much again.
        let pages = (2 * layout.size().max(layout.align()) as u64).div_ceil(PAGE);
        let least = Order::fitting(pages.next_power_of_two()).ok_or(())?;
        let mut orders = (least.get()..=least.max(GROWTH).get()).rev().map(Order::new);
        let run = orders.find_map(|order| mm.phys().alloc(order)).ok_or(())?;
        let start = (isa::DIRECT + (run.start().get() << PAGE_SHIFT)) as *mut u8;
        let bytes = run.count() << PAGE_SHIFT;
        TAKEN.fetch_add(bytes, Ordering::Relaxed);
        // SAFETY: the frames are ours from now on (the run is never given back), and mapped.
        unsafe { talc.claim(start, bytes as usize) }.map(drop).ok_or(())
    }
}

/// Gives the heap its first memory, before there is a library.
pub(super) fn init(early: &mut Early) {
    let start = enough(early.take(FIRST_BYTES, PAGE)).get();
    // SAFETY: taken out of the free pieces for good, and mapped.
    let claimed =
        unsafe { HEAP.lock().claim((isa::DIRECT + start) as *mut u8, FIRST_BYTES as usize) };
    assert!(claimed.is_some(), "the first heap is too small for its allocator");
    TAKEN.store(FIRST_BYTES, Ordering::Relaxed);
}

/// Whether a call that makes small allocations may go on.
///
/// # Errors
/// [`ENOMEM`](quire_linux::Errno::ENOMEM): the reserve that small allocations count on is not
/// whole.
pub(crate) fn admit() -> quire_linux::Result<()> {
    while !has_reserve() {
        if !shrink() {
            return Err(quire_linux::Errno::ENOMEM);
        }
    }
    Ok(())
}

/// Whether the reserve is whole. It reclaims nothing: the caller may hold locks.
pub(crate) fn has_reserve() -> bool {
    super::mm().phys().has_free(RESERVE_FRAMES)
}

/// Reclaims memory; whether there was any.
static SHRINK: Once<fn() -> bool> = Once::new();

/// Sets the function that reclaims memory; rooms to the right have it.
pub(crate) fn set_shrink(how: fn() -> bool) {
    SHRINK.call_once(|| how);
}

/// Keeps some memory free for programs; whether they may take some.
static EASE: Once<fn() -> bool> = Once::new();

/// Sets the function that keeps memory free for programs; rooms to the right have it.
pub(crate) fn set_ease(how: fn() -> bool) {
    EASE.call_once(|| how);
}

/// Whether a program may take memory now. The last frames are not for programs, as it takes some to
/// make others free.
#[inline]
pub(super) fn ease() -> bool {
    EASE.get().is_none_or(|how| how())
}

/// Asks the rooms to the right to give up memory; whether they had any.
pub(super) fn shrink() -> bool {
    SHRINK.get().is_some_and(|how| how())
}

/// Bytes that the heap has taken from the library and before it was there.
pub(crate) fn taken_bytes() -> u64 {
    TAKEN.load(Ordering::Relaxed)
}
