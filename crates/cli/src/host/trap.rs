//! What it costs the host to enter its kernel and come back.
//!
//! Quire's hosted figures leave out exception entry and exit, so that a fair reader adds them.
//! No unprivileged program can time them alone. Two costs enclose them:
//!
//! * `getppid`, the cheapest system call that still enters the kernel: a *lower* bound, because
//!   an exception saves more state than a system call and returns by a slower instruction;
//! * a read fault answered with the kernel's shared zero page: exception entry, finding the area,
//!   walking the tables, writing one entry, return: an *upper* bound, because it contains page
//!   table work that Quire's figures already contain, yet no allocation and no clearing.
//!
//! A fault that ends in a signal would also be possible, but measures the signal's delivery.

use std::hint::black_box;

use anyhow::{Context, Result};
use memmap2::{Advice, MmapOptions};

use crate::bench::thread_ns;

/// Calls per sample: long against the clock's own cost.
const CALLS: u32 = 20_000;
/// Bytes read per sample; one fault for each 4 KiB.
const REGION: usize = 32 << 20;
const PAGE: usize = 4096;

/// Nanoseconds for one `getppid`.
pub(crate) fn system_call() -> f64 {
    let start = thread_ns();
    for _ in 0..CALLS {
        black_box(rustix::process::getppid());
    }
    (thread_ns() - start) / f64::from(CALLS)
}

/// Nanoseconds for one read fault on the zero page.
///
/// # Errors
/// The host does not map the memory.
pub(crate) fn read_fault() -> Result<f64> {
    let map = MmapOptions::new().len(REGION).map_anon().context("the host maps no memory")?;
    // A kernel without huge pages refuses the advice, and does what it asks for anyway.
    let _ = map.advise(Advice::NoHugePage);
    let start = thread_ns();
    for at in (0..REGION).step_by(PAGE) {
        black_box(map[at]);
    }
    Ok((thread_ns() - start) / (REGION / PAGE) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_bounds_are_times() {
        assert!(system_call() > 0.0);
        assert!(read_fault().unwrap() > 0.0);
    }
}
