//! The same in the host's kernel, by userfaultfd: a thread writes, another one is the watcher.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};

use super::bench::{RUN, STRIDE};
use crate::host::memory::Area;
use crate::host::uffd::Uffd;
use crate::size::Size;
use crate::stats::timed;
use crate::threads::{host_cpus, pin};

/// Nanoseconds to arm, for all writes of a storm, and to release; arming and releasing by CPU time.
pub(super) fn sample(size: Size, region: u64) -> Result<Vec<f64>> {
    let mut area = Area::new(size, region)?;
    area.touch();
    let uffd = Uffd::of(&mut area).context("userfaultfd is refused")?;
    let all = 0..region;
    let arm = timed(|| protect(&uffd, all.clone(), true))?;
    let (uffd, storm) = storm(uffd, &mut area)?;
    protect(&uffd, all.clone(), true)?;
    let release = timed(|| protect(&uffd, all.clone(), false))?;
    Ok(vec![arm, storm, release])
}

fn protect(uffd: &Uffd, bytes: Range<u64>, on: bool) -> Result<()> {
    uffd.protect(bytes, on).context("UFFDIO_WRITEPROTECT is refused")
}

/// Writes a byte of each run while another thread releases the runs: nanoseconds by the clock. A
/// watcher that fails drops its end, and with it all protection: the writer does not wait for it.
fn storm(uffd: Uffd, area: &mut Area) -> Result<(Uffd, f64)> {
    let (done, cpus) = (&AtomicBool::new(false), &host_cpus());
    let watcher = move || -> Result<Uffd> {
        cpus.last().copied().into_iter().for_each(pin);
        while !done.load(Ordering::Acquire) {
            if let Some(at) = uffd.next()? {
                let start = at - at % RUN;
                protect(&uffd, start..start + RUN, false)?;
            }
        }
        Ok(uffd)
    };
    thread::scope(|scope| {
        let watcher = scope.spawn(watcher);
        let writer = scope.spawn(|| {
            cpus.first().copied().into_iter().for_each(pin);
            let start = Instant::now();
            area.bytes().chunks_mut(STRIDE as usize).for_each(|run| run[0] = 2);
            start.elapsed().as_nanos() as f64
        });
        let ns = writer.join().map_err(|_| anyhow!("the writer panicked"));
        done.store(true, Ordering::Release);
        let uffd = watcher.join().map_err(|_| anyhow!("the watcher panicked"))??;
        Ok((uffd, ns?))
    })
}
