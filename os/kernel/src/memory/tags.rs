//! Tags of address spaces (ASIDs, PCIDs): each live space has one of its own.
//!
//! A space that ends is flushed as a whole before its tag is free again, so that no translation
//! outlives it. Tag 0 is the kernel's.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use quire::units::Asid;

/// How many there are: as many as x86-64 has.
const TAGS: usize = 4096;

static USED: [AtomicU64; TAGS / 64] = [const { AtomicU64::new(0) }; TAGS / 64];
/// Where to look first: behind the last one found.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// A free tag, now in use.
pub(super) fn take() -> Option<Asid> {
    let first = NEXT.load(Ordering::Relaxed);
    (0..USED.len()).find_map(|step| {
        let at = (first + step) % USED.len();
        let word = &USED[at];
        let kernel = u64::from(at == 0);
        let taken = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |bits| {
            let free = (!(bits | kernel)).trailing_zeros();
            (free < 64).then(|| bits | 1 << free)
        });
        let before = taken.ok()?;
        NEXT.store(at, Ordering::Relaxed);
        Some(Asid((at * 64) as u16 + (!(before | kernel)).trailing_zeros() as u16))
    })
}

/// Gives a tag back.
pub(super) fn free(tag: Asid) {
    let at = usize::from(tag.0);
    USED[at / 64].fetch_and(!(1 << (at % 64)), Ordering::AcqRel);
}
