//! The timed parts of fork, zap and protect: by the library, and page at a time.

use anyhow::Result;
use clap::ValueEnum;
use quire::Error;
use quire::stats::Event;
use quire_arch::Arch;
use quire_machine::Counts;
use quire_units::{Asid, Prot};

use super::folded;
use super::pages::{Pages, Words};
use super::scene::{Scene, Work};
use crate::bench::thread_ns;

/// What is measured.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Task {
    /// A space is copied, twice, and the first copy ends.
    Fork,
    /// All of an area is unmapped and freed.
    Zap,
    /// All of an area loses the right to write, and gets it back.
    Protect,
}

/// The first fork: every page is exclusive and writable.
pub(crate) const FIRST: &str = "first fork";
/// The end of its child, which has done nothing.
pub(crate) const EXIT: &str = "child exit";
/// A later fork: nobody may write to the pages any more.
pub(crate) const LATER: &str = "later fork";
/// All pages are unmapped and freed.
pub(crate) const UNMAP: &str = "unmap";
/// From read and write to read only.
pub(crate) const TO_READ: &str = "to read-only";
/// Back again.
pub(crate) const TO_WRITE: &str = "to writable";

const WRITABLE: Prot = Prot::READ.union(Prot::WRITE);
const CHILD: Asid = Asid(2);

impl Task {
    /// The bench's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Task::Fork => "fork",
            Task::Zap => "zap",
            Task::Protect => "protect",
        }
    }

    /// The parts that are measured, in the order in which they are done.
    pub(crate) fn parts(self) -> &'static [&'static str] {
        match self {
            Task::Fork => &[FIRST, EXIT, LATER],
            Task::Zap => &[UNMAP],
            Task::Protect => &[TO_READ, TO_WRITE],
        }
    }
}

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

    fn run<A: Arch>(self, scene: Scene<'_, '_, '_, A>) -> Result<Vec<f64>> {
        let mut times = Vec::new();
        by_runs(self.0, &scene, |part| {
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

    fn run<A: Arch>(self, scene: Scene<'_, '_, '_, A>) -> Result<Vec<f64>> {
        let pages = Pages::new(&scene, self.remembers);
        let mut words = Words::of(&scene)?;
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

/// What one part did, by the name of what is counted.
pub(crate) type Tally = Vec<(&'static str, u64)>;

/// Words written in tables, and in the nodes of area trees.
pub(crate) const WORDS: &str = "words written";
/// Calls of the hardware that write words: each writes one, or a run of them.
pub(crate) const WRITES: &str = "calls that write";
/// Flushes.
pub(crate) const FLUSHES: &str = "flushes";
/// Invalidations of one block each, for each CPU.
pub(crate) const INVALIDATIONS: &str = "invalidations";
/// Invalidations of a whole space, for each CPU.
pub(crate) const WHOLE: &str = "whole-space invalidations";
/// Contiguous blocks written as such where nothing was.
pub(crate) const FOLDS: &str = "blocks written folded";
/// Contiguous blocks that were broken up.
pub(crate) const UNFOLDS: &str = "unfolds";
/// Live entries that became a contiguous block.
pub(crate) const REFOLDS: &str = "refolds";
/// Entries zeroed and flushed before they were written.
pub(crate) const BREAKS: &str = "breaks before make";

/// The library on a machine that counts; what each part did.
pub(super) struct Counted(pub(super) Task);

impl Work for Counted {
    type Out = Vec<Tally>;

    fn run<A: Arch>(self, scene: Scene<'_, '_, '_, A>) -> Result<Vec<Tally>> {
        let mut tallies = Vec::new();
        by_runs(self.0, &scene, |part| {
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

/// What a first fork does page at a time where every block that can be is folded.
pub(super) struct PagesOfBlocks;

impl Work for PagesOfBlocks {
    type Out = Option<folded::Work>;

    fn run<A: Arch>(self, scene: Scene<'_, '_, '_, A>) -> Result<Option<folded::Work>> {
        Ok(folded::fork::<A>(scene.span.count()))
    }
}
