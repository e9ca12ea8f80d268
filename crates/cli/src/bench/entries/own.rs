//! The parts of fork, zap and protect: by the library, and page-at-a-time.

use anyhow::Result;
use quire::stats::Event;
use quire_arch::Arch;
use quire_units::Prot;

use super::pages::{Pages, Words};
use super::task::{
    BREAKS, CHILD, FLUSHES, FOLDS, INVALIDATIONS, REFOLDS, Task, UNFOLDS, WHOLE, WORDS, WRITABLE,
    WRITES,
};
use crate::bench::scene::Scene;
use crate::bench::sheet::Tally;
use crate::stats::timed;

/// Does a part of the task, which is to be done once, and measures it.
pub(super) type Probe<'p> = &'p mut dyn FnMut(&mut dyn FnMut() -> Result<()>) -> Result<()>;

/// Nanoseconds of CPU time for each part of `work`.
pub(super) fn times(work: impl FnOnce(Probe<'_>) -> Result<()>) -> Result<Vec<f64>> {
    let mut times = Vec::new();
    work(&mut |part| {
        times.push(timed(part)?);
        Ok(())
    })?;
    Ok(times)
}

/// The counts of each part of the library's work, on a machine that counts.
pub(super) fn counts<A: Arch>(task: Task, scene: &Scene<'_, '_, '_, A>) -> Result<Vec<Tally>> {
    let mut tallies = Vec::new();
    by_runs(task, scene, &mut |part| {
        let (before, totals) = (scene.machine.counts(), scene.mm.totals());
        part()?;
        let (counts, after) = (scene.machine.counts() - before, scene.mm.totals());
        let event = |event: Event| after.event(event) - totals.event(event);
        tallies.push(vec![
            (WORDS, counts.words_filled + counts.exchanges),
            (WRITES, counts.fills + counts.exchanges),
            (FLUSHES, counts.flushes),
            (INVALIDATIONS, counts.invalidations),
            (WHOLE, counts.full_flushes),
            (FOLDS, event(Event::Fold)),
            (UNFOLDS, event(Event::Unfold)),
            (REFOLDS, event(Event::Refold)),
            (BREAKS, event(Event::Break)),
        ]);
        Ok(())
    })?;
    Ok(tallies)
}

/// Does each part of `task` by the library.
pub(super) fn by_runs<A: Arch>(
    task: Task,
    scene: &Scene<'_, '_, '_, A>,
    probe: Probe<'_>,
) -> Result<()> {
    let Scene { mm, space, span, .. } = scene;
    match task {
        Task::Fork => {
            let mut child = None;
            probe(&mut || {
                child = Some(mm.fork(space, CHILD)?);
                Ok(())
            })?;
            probe(&mut || {
                child.take().into_iter().for_each(|child| mm.destroy(child));
                Ok(())
            })?;
            probe(&mut || {
                child = Some(mm.fork(space, CHILD)?);
                Ok(())
            })?;
            child.into_iter().for_each(|child| mm.destroy(child));
            Ok(())
        }
        Task::Zap => probe(&mut || Ok(mm.unmap(space, *span)?)),
        Task::Protect => {
            probe(&mut || Ok(mm.protect(space, *span, Prot::READ)?))?;
            probe(&mut || Ok(mm.protect(space, *span, WRITABLE)?))
        }
    }
}

/// Does each part of `task` page by page. A baseline that `remembers` tries the folio of the page
/// before first.
pub(super) fn at_a_time<A: Arch>(
    task: Task,
    remembers: bool,
    scene: &Scene<'_, '_, '_, A>,
    probe: Probe<'_>,
) -> Result<()> {
    let pages = Pages::new(scene, remembers);
    let mut words = Words::of(scene)?;
    match task {
        Task::Fork => {
            let mut child = words.unmade();
            probe(&mut || pages.fork(&words, &mut child))?;
            probe(&mut || {
                pages.zap(&mut child);
                Ok(())
            })?;
            probe(&mut || pages.fork(&words, &mut child))?;
            pages.zap(&mut child);
            Ok(())
        }
        Task::Zap => {
            pages.hold(&words);
            scene.mm.unmap(&scene.space, scene.span)?;
            probe(&mut || {
                pages.zap(&mut words);
                Ok(())
            })
        }
        Task::Protect => [Prot::READ, WRITABLE].into_iter().try_for_each(|prot| {
            probe(&mut || {
                pages.protect(&words, prot);
                Ok(())
            })
        }),
    }
}
