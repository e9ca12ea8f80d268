//! The library's side, on the hosted machine.

use anyhow::{Result, bail};
use quire::space::{Watch, WatchFor, Watcher};
use quire::{Need, Shield, Stop};
use quire_arch::Arch;
use quire_units::{Access, PageSpan};

use super::bench::{RUN, STRIDE};
use crate::bench::scene::{Backing, Scene, with_fresh};
use crate::isa::{Isa, with_isa};
use crate::stats::timed;

/// Nanoseconds of CPU time to arm, for all writes of a storm, and to release.
pub(super) fn sample(isa: Isa, backing: Backing, region: u64) -> Result<Vec<f64>> {
    with_isa!(isa, A => with_fresh::<A, _>((isa, backing, region), false, |scene| {
        scene.warmed(|small| parts(small).map(|_| ()))?;
        parts(scene)
    }))
}

fn parts<A: Arch>(scene: &Scene<'_, '_, '_, A>) -> Result<Vec<f64>> {
    let Scene { mm, space, span, .. } = scene;
    let watcher = Watcher::new(1).map(|watcher| Watch { watcher, events: WatchFor::WRITE });
    mm.spaces().watch(space, *span, watcher)?;
    let protect = |shield| anyhow::Ok(mm.spaces().write_protect(space, *span, shield)?);
    let arm = timed(|| protect(Shield::All))?;
    let storm = timed(|| storm(scene))?;
    protect(Shield::All)?;
    let release = timed(|| protect(Shield::Off))?;
    mm.spaces().watch(space, *span, None)?;
    Ok(vec![arm, storm, release])
}

/// Writes a page of each run. A write is told of once: its run is released then.
fn storm<A: Arch>(scene: &Scene<'_, '_, '_, A>) -> Result<()> {
    let Scene { mm, space, span, .. } = scene;
    let [run, stride] = [RUN, STRIDE].map(|bytes| (bytes >> A::PAGE_SHIFT).max(1));
    let mut at = span.start;
    while at < span.end {
        match mm.fault(space, at, Access::Write) {
            Err(Stop::Need(Need::Watcher(told))) => {
                let start = told.page.align_down(run);
                let around = PageSpan::new(start, start.add(run)).intersect(*span);
                mm.spaces().write_protect(space, around, Shield::Off)?;
            }
            Err(stop) => return Err(stop.into()),
            Ok(_) => bail!("a write to a protected page was not told of"),
        }
        at = at.add(stride);
    }
    Ok(())
}
