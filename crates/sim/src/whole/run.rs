//! Running a script: step by step, each judged, everything checked now and then.

use std::io::Write;
use std::ops::AddAssign;
use std::panic::{AssertUnwindSafe, catch_unwind};

use quire::Compacted;
use quire::stats::Event;
use quire_arch::Arch;
use quire_machine::{Config, Machine};

use super::packed::Work;
use super::script::Script;
use super::setup::{Job, Setup};
use super::violation::{Kind, Violation, Wrong};
use super::world::World;
use crate::system::{self, Stock, SystemError};
use quire_script::Step;

/// The result of a run without a violation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Steps that were carried out.
    pub steps: u64,
    /// A hash of all steps and their outcomes: the trace in eight bytes.
    pub trace: u64,
    /// How often everything was checked.
    pub checks: u64,
    /// The compactions, and the folios that moved.
    pub moves: Moves,
}

/// How much a run tells about folios that move.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moves {
    /// Compactions, of steps and of faults, and spans of frames that were taken.
    pub compactions: u64,
    /// Blocks and spans that compactions made free.
    pub made: u64,
    /// Blocks and spans that they could not empty.
    pub failed: u64,
    /// Pages that have other frames now, by compactions and migrations.
    pub pages: u64,
    /// Folios that could not move.
    pub stayed: u64,
}

impl Moves {
    /// Counts a compaction.
    pub(super) fn add(&mut self, done: Compacted) {
        self.compactions += 1;
        self.made += done.made;
        self.failed += done.failed;
    }
}

impl AddAssign for Moves {
    fn add_assign(&mut self, more: Self) {
        self.compactions += more.compactions;
        self.made += more.made;
        self.failed += more.failed;
        self.pages += more.pages;
        self.stayed += more.stayed;
    }
}

/// Why there is no report.
#[derive(Debug)]
pub enum Failure {
    /// There is no such system.
    System(SystemError),
    /// The trace could not be written.
    Trace(std::io::Error),
    /// Something is wrong.
    Violation(Violation),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::System(error) => error.fmt(f),
            Failure::Trace(error) => write!(f, "the trace cannot be written: {error}"),
            Failure::Violation(violation) => violation.fmt(f),
        }
    }
}

impl std::error::Error for Failure {}

/// How to run, besides what the script says.
#[derive(Default)]
pub struct Options<'o> {
    /// Where each step and its outcome is written, one line each.
    pub trace: Option<&'o mut dyn Write>,
    /// Disks silently give wrong data at one transfer in this many; 0 for never. No library can
    /// survive that: it is for tests that must see it.
    pub lies: u64,
}

/// Runs a script.
///
/// # Errors
/// See [`Failure`].
pub fn run(script: &Script, options: Options<'_>) -> Result<Report, Failure> {
    run_steps(script.setup, script.steps.iter().copied(), options, |_| {})
}

/// Runs steps as they come; `before` sees each before it is carried out.
///
/// # Errors
/// See [`Failure`].
pub fn run_steps(
    setup: Setup,
    mut steps: impl Iterator<Item = Step>,
    options: Options<'_>,
    mut before: impl FnMut(&Step),
) -> Result<Report, Failure> {
    play(Play { setup, steps: &mut steps, options, before: &mut before })
}

/// All formats are compiled here, once, and not with each kind of iterator.
fn play(play: Play<'_, '_>) -> Result<Report, Failure> {
    play.setup.format.with(play)
}

struct Play<'p, 'o> {
    setup: Setup,
    steps: &'p mut dyn Iterator<Item = Step>,
    options: Options<'o>,
    before: &'p mut dyn FnMut(&Step),
}

impl Job for Play<'_, '_> {
    type Out = Result<Report, Failure>;

    fn run<A: Arch>(mut self, config: Config) -> Self::Out {
        let config = self.setup.config(config);
        let frames = u64::from(self.setup.frames);
        let all = frames + self.setup.kept() + self.setup.registers();
        let mut ram = system::ram((all as usize) << A::PAGE_SHIFT).map_err(Failure::System)?;
        if self.setup.zeroed == 0 {
            soil(&mut ram, A::PAGE_SHIFT, frames);
        }
        let mut report = Report::default();
        let mut at = 0;
        // A panic is a finding as well, and shrinks like one.
        let played = catch_unwind(AssertUnwindSafe(|| {
            let built = Machine::new(config, &mut ram).map_err(SystemError::Machine);
            let (machine, run) = built.map_err(Failure::System)?;
            let (run, kept) = run.split_at(frames);
            let mut work = Work::default();
            let mut stock = Stock::new(run.count(), config.cpus);
            let low = u64::from(self.setup.low);
            let mm = stock.manage_apart::<A, _>(&machine, run, low).map_err(Failure::System)?;
            mm.phys().drain();
            let free = mm.phys().free_by_order();
            let found = |step: usize, wrong: Wrong| {
                Failure::Violation(Violation { step, kind: wrong.kind, what: wrong.what })
            };
            let packed = work.pools(self.setup.packed.count_ones() as usize, A::PAGE_SHIFT);
            let world = World::new(self.setup, &machine, &mm, kept, packed);
            let mut world = world.map_err(|wrong| found(0, wrong))?;
            world.devices.lies = self.options.lies;
            for step in &mut *self.steps {
                (self.before)(&step);
                let outcome = world.step(&step).map_err(|wrong| found(at, wrong))?;
                report.note(&step, outcome);
                if let Some(trace) = &mut self.options.trace {
                    writeln!(trace, "{step} -> {outcome:x}").map_err(Failure::Trace)?;
                }
                at += 1;
                if (at as u64).is_multiple_of(u64::from(self.setup.every)) {
                    world.check().map_err(|wrong| found(at - 1, wrong))?;
                    world.progress().map_err(|wrong| found(at - 1, wrong))?;
                    report.checks += 1;
                }
            }
            world.finish(&free).map_err(|wrong| found(at, wrong))?;
            report.checks += 1;
            let all = mm.totals();
            report.moves = Moves {
                pages: all.event(Event::MigratedPages),
                stayed: all.event(Event::MigrateFailed),
                ..world.moved
            };
            Ok(report)
        }));
        played.unwrap_or_else(|panic| Err(Failure::Violation(panicked(at, &*panic))))
    }
}

/// A panic as a finding.
fn panicked(step: usize, panic: &(dyn std::any::Any + Send)) -> Violation {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    Violation { step, kind: Kind::Panic, what: text.unwrap_or_else(|| "without a word".to_owned()) }
}

/// Leaves something in the words of the first `frames` pages that are looked at, so that none is
/// zero by luck.
fn soil(ram: &mut quire_machine::Ram, shift: u32, frames: u64) {
    for page in ram.bytes_mut().chunks_exact_mut(1 << shift).take(frames as usize) {
        let last = page.len() - 8;
        page[..8].fill(0xa5);
        page[last / 2 + 4..][..8].fill(0x5a);
        page[last..].fill(0x5a);
    }
}

impl Report {
    /// Adds a step and its outcome to the trace.
    fn note(&mut self, step: &Step, outcome: u64) {
        self.steps += 1;
        let mut mix = |word: u64| {
            self.trace = (self.trace ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        };
        mix(u64::from(step.cpu) << 32 | u64::from(step.process) << 8 | step.verb as u64);
        step.args.iter().for_each(|&arg| mix(u64::from(arg)));
        mix((step.fault as u64) << 32 | u64::from(step.nth));
        mix(outcome);
    }
}

impl<A: Arch> World<'_, '_, '_, A> {
    /// Carries out one step and judges it.
    fn step(&mut self, step: &Step) -> Result<u64, Wrong> {
        self.now += 1;
        if self.devices.has_pending() {
            self.complete(self.now);
        }
        self.take_cpu(step.cpu as usize % self.running.len());
        if self.exact.is_none() {
            self.make_room()?;
            self.end_doomed();
        }
        let process = step.process as usize % self.spaces.len();
        if !self.spawn(process) {
            self.relieve()?;
            if !self.spawn(process) {
                return Ok(0);
            }
        }
        self.arm(step);
        let outcome = self.act(step, process)?;
        self.settle_races()?;
        self.disarm();
        if self.raced {
            self.settle_late()?;
        }
        let examined = |violation| Wrong::new(Kind::Examiner, format!("{violation}"));
        self.machine.verdict().map_err(examined)?;
        Ok(outcome)
    }
}
