//! The rounds, and the records they become.

use anyhow::{Result, bail, ensure};

use super::goals::{self, Measured};
use super::own::{AtATime, ByRuns, Counted, FIRST, PagesOfBlocks, Tally, Task};
use super::plan::{BY_RUNS, Cell, FOLDED, Plan, Who};
use super::scene::with_scene;
use super::{folded, own, say};
use crate::args::EntriesArgs;
use crate::bench::fault::LINUX;
use crate::bench::{empty_run, rounds};
use crate::host::Host;
use crate::host::helper;
use crate::host::thp::{Guard, in_force};
use crate::record::{Record, Run};
use crate::size::Size;
use crate::stats::Summary;

/// The host's huge pages, which stand behind the machine's RAM.
const HOST_BLOCK: Size = Size(2 << 20);

/// What one cell gave in one round: nanoseconds of each part.
type Parts = Vec<f64>;

/// Measures.
///
/// # Errors
/// [`Refused`](crate::Refused) for what cannot be measured; else whatever failed on the way.
pub(crate) fn run(task: Task, args: &EntriesArgs, host: &Host) -> Result<Run> {
    let mut run = empty_run(task.name(), host);
    let plan = Plan::new(task, args, host, &mut run.limits)?;
    let guard = plan.has_linux().then(|| Guard::new(host, &mut run.settings));
    if let Some(guard) = &guard {
        guard.only(HOST_BLOCK)?;
    }
    let own: Vec<Cell> = plan.cells.iter().copied().filter(|c| c.who != Who::Linux).collect();
    let mut values = rounds(task.name(), &own, plan.loops, |cell| {
        let place = (cell.backing, plan.region);
        match cell.who {
            Who::Runs(isa) => with_scene(isa, place, false, ByRuns(task)),
            Who::Pages(isa) => with_scene(isa, place, false, AtATime { task, remembers: false }),
            Who::Remembers(isa) => with_scene(isa, place, false, AtATime { task, remembers: true }),
            Who::Linux => bail!("the host's kernel has rounds of its own"),
        }
    })?;
    let mut empty = Vec::new();
    for cell in plan.cells.iter().filter(|cell| cell.who == Who::Linux) {
        let Some(guard) = &guard else { continue };
        let what = (task, cell.backing);
        let found = helper::samples(host, guard, what, (plan.region, plan.linux_loops()));
        let found = found.unwrap_or_else(|why| {
            run.limits.push(format!("{LINUX} {}: {why:#}; left out.", cell.backing));
            Vec::new()
        });
        empty.extend(found.iter().filter_map(|found| found.empty));
        values.push(found.into_iter().map(|found| found.ns).collect());
    }
    for (cell, values) in plan.cells.iter().zip(&values) {
        let mut setting = String::new();
        if let (Some(guard), Who::Linux) = (&guard, cell.who) {
            guard.only(cell.backing.size)?;
            setting = setting_of(host, cell.backing.size);
        }
        push(&mut run, &plan, (*cell, &setting), values);
    }
    drop(guard);
    let counted = count(&mut run, &plan)?;
    goals::judge(&mut run, &Measured { plan: &plan, values: &values, counted: &counted });
    say::say(&mut run, &plan, &empty);
    Ok(run)
}

/// What decided that the kernel gave folios of `size`.
fn setting_of(host: &Host, size: Size) -> String {
    if size.bytes() == 4096 { "MADV_NOHUGEPAGE".to_owned() } else { in_force(host, size) }
}

/// The times of one cell, whole and for each entry.
fn push(run: &mut Run, plan: &Plan, (cell, setting): (Cell, &str), values: &[Parts]) {
    let entries = plan.entries(cell) as f64;
    for (at, part) in plan.task.parts().iter().enumerate() {
        let times: Vec<f64> = values.iter().map(|parts| parts[at]).collect();
        let case = cell.case(part).with(setting);
        let Some(time) = Summary::of(&times) else {
            run.limits.push(format!(
                "{} {case}: the kernel did not back the memory as asked for; left out.",
                cell.variant()
            ));
            return;
        };
        let mut put = |metric: &str, summary| {
            let metric = (metric, "ns");
            let name = plan.task.name();
            run.records.push(Record::new(name, &case, cell.variant(), metric, summary));
        };
        put("time", time);
        put("per-entry", time.map(|ns| ns / entries));
    }
}

/// What the library did in a cell, part by part.
pub(super) struct Did {
    pub(super) cell: Cell,
    pub(super) parts: Vec<Tally>,
}

/// Counts what is done in each of the library's cells, and beside it what page-at-a-time does
/// where the blocks of a first fork are folded.
fn count(run: &mut Run, plan: &Plan) -> Result<Vec<Did>> {
    let mut all = Vec::new();
    for &cell in &plan.cells {
        let place = (cell.backing, plan.region);
        match cell.who {
            Who::Runs(isa) => {
                let parts = with_scene(isa, place, true, Counted(plan.task))?;
                ensure!(parts.len() == plan.task.parts().len(), "a part was not counted");
                for (part, tally) in plan.task.parts().iter().zip(&parts) {
                    tell(run, plan, (cell, part, BY_RUNS), tally);
                }
                all.push(Did { cell, parts });
            }
            Who::Pages(isa) if plan.task == Task::Fork && !cell.backing.block => {
                let work = with_scene(isa, place, true, PagesOfBlocks)?;
                if let Some(work) = work {
                    tell(run, plan, (cell, FIRST, FOLDED), &tally(work));
                }
            }
            Who::Pages(_) | Who::Remembers(_) | Who::Linux => {}
        }
    }
    Ok(all)
}

fn tally(work: folded::Work) -> Tally {
    vec![
        (own::WORDS, work.parent + work.child),
        (own::FLUSHES, work.flushes),
        (own::UNFOLDS, work.unfolds),
        (own::REFOLDS, work.folds),
        (own::BREAKS, work.breaks),
    ]
}

fn tell(run: &mut Run, plan: &Plan, (cell, part, variant): (Cell, &str, &str), tally: &Tally) {
    for (name, count) in tally {
        let count = *count as f64;
        let summary = Summary { median: count, min: count, max: count, n: 1 };
        let case = cell.case(part);
        let record = Record::new(plan.task.name(), &case, variant, (name, "count"), summary);
        run.records.push(record);
    }
}
