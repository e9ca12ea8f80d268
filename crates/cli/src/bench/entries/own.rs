//! The timed parts of fork, zap and protect: by the library, and page-at-a-time.

use anyhow::Result;
use quire::Error;
use quire::stats::Event;
use quire_arch::Arch;
use quire_machine::Counts;
use quire_units::Prot;

use super::folded;
use super::pages::{Pages, Words};
use super::task::{
    BREAKS, CHILD, FLUSHES, FOLDS, INVALIDATIONS, REFOLDS, Tally, Task, UNFOLDS, WHOLE, WORDS,
    WRITABLE, WRITES,
};
use crate::bench::scene::{Scene, Work};
use crate::stats::thread_ns;

/// One part, to be done once.
type Part<'p> = &'p mut dyn FnMut() -> Result<(), Error>;

/// Does each part of `task` by the library, through `probe`.
fn by_runs<A: Arch>(
    task: Task,
    scene: &Scene<'_, '_, '_, A>,
    mut probe: impl FnMut(Part<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
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
            child.take().into_iter().for_each(|child| mm.destroy(child));
            Ok(())
        }
        Task::Zap => probe(&mut || mm.unmap(space, *span)),
        Task::Protect => {
            probe(&mut || mm.protect(space, *span, Prot::READ))?;
            probe(&mut || mm.protect(space, *span, WRITABLE))
        }
    }
}

/// The library; nanoseconds of CPU time for each part.
pub(super) struct ByRuns(pub(super) Task);

impl Work for ByRuns {
    type Out = Vec<f64>;

    fn run<A: Arch>(self, scene: &Scene<'_, '_, '_, A>) -> Result<Vec<f64>> {
        let mut times = Vec::new();
        by_runs(self.0, scene, |part| {
            let start = thread_ns();
            part()?;
            times.push(thread_ns() - start);
            Ok(())
        })?;
        Ok(times)
    }
}

/// The baseline; nanoseconds of CPU time for each part.
pub(super) struct AtATime {
    pub(super) task: Task,
    /// The folio of the page before is tried first.
    pub(super) remembers: bool,
}

impl Work for AtATime {
    type Out = Vec<f64>;

    fn run<A: Arch>(self, scene: &Scene<'_, '_, '_, A>) -> Result<Vec<f64>> {
        let pages = Pages::new(scene, self.remembers);
        let mut words = Words::of(scene)?;
        let mut times = Vec::new();
        let mut timed = |part: &mut dyn FnMut() -> Result<()>| {
            let start = thread_ns();
            part()?;
            times.push(thread_ns() - start);
            anyhow::Ok(())
        };
        match self.task {
            Task::Fork => {
                let mut child = words.unmade();
                timed(&mut || pages.fork(&words, &mut child))?;
                timed(&mut || {
                    pages.zap(&mut child);
                    Ok(())
                })?;
                timed(&mut || pages.fork(&words, &mut child))?;
                pages.zap(&mut child);
            }
            Task::Zap => {
                pages.hold(&words);
                scene.mm.unmap(&scene.space, scene.span)?;
                timed(&mut || {
                    pages.zap(&mut words);
                    Ok(())
                })?;
            }
            Task::Protect => {
                for prot in [Prot::READ, WRITABLE] {
                    timed(&mut || {
                        pages.protect(&words, prot);
                        Ok(())
                    })?;
                }
            }
        }
        Ok(times)
    }
}

/// The library on a machine that counts; what each part did.
pub(super) struct Counted(pub(super) Task);

impl Work for Counted {
    type Out = Vec<Tally>;

    fn run<A: Arch>(self, scene: &Scene<'_, '_, '_, A>) -> Result<Vec<Tally>> {
        let mut tallies = Vec::new();
        by_runs(self.0, scene, |part| {
            let (counts, totals) = (scene.machine.counts(), scene.mm.totals());
            part()?;
            let (now, after) = (scene.machine.counts() - counts, scene.mm.totals());
            let event = |event: Event| after.event(event) - totals.event(event);
            tallies.push(tally(&now, event));
            Ok(())
        })?;
        Ok(tallies)
    }
}

fn tally(counts: &Counts, event: impl Fn(Event) -> u64) -> Tally {
    vec![
        (WORDS, counts.words_filled + counts.exchanges),
        (WRITES, counts.fills + counts.exchanges),
        (FLUSHES, counts.flushes),
        (INVALIDATIONS, counts.invalidations),
        (WHOLE, counts.full_flushes),
        (FOLDS, event(Event::Fold)),
        (UNFOLDS, event(Event::Unfold)),
        (REFOLDS, event(Event::Refold)),
        (BREAKS, event(Event::Break)),
    ]
}

/// A first fork page-at-a-time where every block is folded that can be: counted.
pub(super) struct PagesOfBlocks;

impl Work for PagesOfBlocks {
    type Out = Option<folded::Work>;

    fn run<A: Arch>(self, scene: &Scene<'_, '_, '_, A>) -> Result<Option<folded::Work>> {
        Ok(folded::fork::<A>(scene.span.count()))
    }
}
