//! What a reader must know to judge the figures.

use super::backing::{BLOCK, Backing};
use super::own::Task;
use super::plan::{HOST, Plan, Who};
use crate::bench::clear::PAGES;
use crate::bench::fault::LINUX;
use crate::record::Run;
use crate::size::Size;
use crate::stats::Summary;
use crate::table::duration;

/// Says it.
pub(super) fn say(run: &mut Run, plan: &Plan, empty: &[f64]) {
    let region = Size(plan.region);
    if plan.cells.iter().any(|cell| cell.who != Who::Linux) {
        say_own(run, plan.task, region);
    }
    if plan.has_linux() {
        say_linux(run, plan.task, region, empty);
    }
}

fn say_own(run: &mut Run, task: Task, region: Size) {
    run.settings.push(format!(
        "Quire: {region} of anonymous memory, every page written by its program, on the hosted \
         machine; nothing watched or counted while time is measured, which is CPU time of one \
         thread. Each sample has a machine of its own, whose free memory has been touched."
    ));
    run.settings.push(
        "Blocks are folios that one entry above the last level maps. Folios of that size that \
         entries map were populated as blocks; then the first page of each was protected for a \
         moment, which splits the leaf and not the folio."
            .to_owned(),
    );
    run.settings.push(format!(
        "{PAGES}: the same folios, one step for each entry of tables in the host's memory, without \
         locks; words are changed by masks. {}",
        match task {
            Task::Fork =>
                "One count more or less in the folio's slot, one word written on each side; a \
                 frame is taken and a table cleared for each table of the child. A second form \
                 tries the folio of the page before first.",
            Task::Zap =>
                "One word cleared, one count less in the folio's slot; frames are flushed and \
                 freed in batches of 8192. A second form tries the folio of the page before first.",
            Task::Protect => "One word written; one flush at the end.",
        }
    ));
    run.limits.push(
        "Words are written and flushes are made in the hosted machine: that other CPUs wait for a \
         flush, and that walkers miss their caches afterwards, is in no figure of Quire's."
            .to_owned(),
    );
    if task == Task::Fork {
        run.limits.push(format!(
            "The counts of {PAGES} over contiguous blocks are no times: what breaking a live block \
             costs is the flush that all CPUs wait for, which a hosted machine has not."
        ));
    }
}

fn say_linux(run: &mut Run, task: Task, region: Size, empty: &[f64]) {
    run.settings.push(format!(
        "{LINUX}: {region} of anonymous memory in a process of its own, on one CPU; {}. Whether \
         the folios were had is read from the kernel's counts, how they are mapped from smaps; \
         2M folios that entries map were split by MADV_DONTFORK on one page, and made one area \
         again.",
        match task {
            Task::Fork =>
                "fork is the parent's CPU time; exit is the child's, which executes `true`, less \
                 that of a child without the memory",
            Task::Zap => "munmap of all of it, by CPU time",
            Task::Protect => "mprotect of all of it, by CPU time",
        }
    ));
    for record in run.records.iter().filter(|r| r.variant == LINUX && r.metric == "time") {
        let case = record.case();
        let mut notes: Vec<&str> = case.notes.split(", ").filter(|note| *note != HOST).collect();
        let block = notes.contains(&BLOCK);
        notes.retain(|note| *note != BLOCK);
        if let Some(size) = case.size.filter(|_| case.form == task.parts()[0]) {
            let backing = Backing { size, block };
            run.settings.push(format!("{LINUX} {backing}: {}.", notes.join(", ")));
        }
    }
    run.limits.push(format!(
        "{LINUX} is another thing: it enters the kernel and leaves it, keeps accounts, reverse \
         maps and memory groups, and in a virtual machine pays for nested or shadow paging."
    ));
    if let Some(fork) = Summary::of(empty) {
        run.limits.push(format!(
            "{LINUX}'s forks are made by the standard library and contain {} that a process \
             without that memory takes as well.",
            duration(fork.median)
        ));
    }
}
