//! All recordings under all policies, as records.

use anyhow::{Context, Result};
use quire_linux::text::Share;

use super::NAME;
use super::goals;
use super::library::recordings;
use super::policy::Policy;
use super::replay::{Outcome, Replay, ram_bytes};
use super::tlb;
use crate::Refused;
use crate::args::ExecArgs;
use crate::bench::{Filter, empty_run};
use crate::host::Host;
use crate::record::{Case, Record, Run};
use crate::stats::Summary;

/// The recordings' pages, and those of the formats they can be replayed in.
const PAGE_SHIFT: u32 = 12;

/// The outcomes of one recording.
pub(super) struct Measured {
    pub(super) name: String,
    /// Bytes of a page.
    pub(super) page: u64,
    pub(super) outcomes: Vec<(Policy, Outcome)>,
}

/// Replays what is asked for.
///
/// # Errors
/// [`Refused`] for unknown variants, formats with other pages, and what is no recording; else what
/// went wrong.
pub(crate) fn run(args: &ExecArgs, host: &Host) -> Result<Run> {
    let names: Vec<String> = Policy::ALL.iter().map(|policy| policy.name().to_owned()).collect();
    let filter = Filter::new(&args.variants, &names)?;
    if args.isa.page_shift() != PAGE_SHIFT {
        let why = format!("{} has other pages than the recordings, 4K", args.isa.name());
        return Err(Refused(why).into());
    }
    let mut run = empty_run(NAME, host);
    let mut all = Vec::new();
    for (name, recording) in recordings(&args.recordings)? {
        if recording.page != 1 << PAGE_SHIFT {
            return Err(
                Refused(format!("{name}: it was recorded in pages of {}", recording.page)).into()
            );
        }
        // Frames have metadata, and their content is never touched but where the program writes.
        let needed = ram_bytes(&recording) / 64;
        crate::host::memory::require(host, &format!("replaying {name}"), needed)?;
        let mut outcomes = Vec::new();
        for policy in Policy::ALL.into_iter().filter(|policy| filter.has(policy.name())) {
            let replay = Replay { recording: &recording, policy };
            let outcome = args.isa.with(replay).with_context(|| format!("replaying {name}"))?;
            outcomes.push((policy, outcome));
        }
        let touched = outcomes.first().map_or(0, |(_, outcome)| outcome.touched);
        run.settings.push(format!(
            "{name}: {}, which {}; {touched} of {} touched pages are in segments, {} of them text.",
            recording.program,
            if recording.note.is_empty() { "does something" } else { &recording.note },
            recording.pages(),
            outcomes.first().map_or(0, |(_, outcome)| outcome.text.touched),
        ));
        all.push(Measured { name, page: recording.page, outcomes });
    }
    all.iter().for_each(|measured| records(&mut run, args, measured));
    goals::judge(&mut run, &all);
    say(&mut run, args);
    Ok(run)
}

/// What is said of one outcome: metric, unit and value.
fn figures(outcome: &Outcome, page: u64) -> Vec<(String, &'static str, f64)> {
    let text = &outcome.text;
    let share = |part: u64| part as f64 / text.touched.max(1) as f64;
    let beyond = outcome.pages_read.saturating_sub(outcome.touched);
    let mut all = vec![
        ("touched text in foldable 64K blocks".to_owned(), "share", share(text.foldable)),
        ("touched text in folded blocks and leaves".to_owned(), "share", share(text.folded)),
        ("faults".to_owned(), "count", outcome.faults as f64),
        ("faults in text".to_owned(), "count", outcome.text_faults as f64),
        ("reads".to_owned(), "count", outcome.reads as f64),
        ("bytes read".to_owned(), "bytes", (outcome.pages_read * page) as f64),
        ("bytes read and not touched".to_owned(), "bytes", (beyond * page) as f64),
        ("bytes copied for writes".to_owned(), "bytes", (outcome.copied * page) as f64),
    ];
    for (geometry, [first, again]) in tlb::ALL.iter().zip(&text.misses) {
        for (misses, when) in [(first, "first touches"), (again, "all once more")] {
            let name = |what: &str| format!("iTLB {}, {when}: {what}", geometry.name);
            all.push((name("misses"), "count", misses.first as f64));
            all.push((name("walks"), "count", misses.walks as f64));
        }
    }
    all.extend(labels(&text.folios.file, page));
    all
}

/// The labels of `thpmaps` for text, in bytes.
fn labels(share: &Share, page: u64) -> Vec<(String, &'static str, f64)> {
    let mut all = vec![("text file".to_owned(), share.total)];
    for (word, sizes) in [("aligned", &share.aligned), ("unaligned", &share.unaligned)] {
        for (order, pages) in sizes.iter().enumerate().filter(|(_, pages)| **pages > 0) {
            all.push((format!("text file-thp-{word}-{}kB", (page >> 10) << order), *pages));
        }
    }
    all.push(("text file-thp-partial".to_owned(), share.partial));
    all.push(("text file-cont-aligned-64kB".to_owned(), share.cont));
    all.push(("text file-by-blocks".to_owned(), share.blocks));
    all.into_iter().map(|(name, pages)| (name, "bytes", (pages * page) as f64)).collect()
}

fn records(run: &mut Run, args: &ExecArgs, measured: &Measured) {
    let case = Case::new(&measured.name, None).with(&args.isa.name());
    for (policy, outcome) in &measured.outcomes {
        for (metric, unit, value) in figures(outcome, measured.page) {
            let Some(summary) = Summary::of(&[value]) else { continue };
            run.records.push(Record::new(NAME, &case, policy.name(), (&metric, unit), summary));
        }
    }
}

/// What a reader must know.
fn say(run: &mut Run, args: &ExecArgs) {
    run.settings.push(format!(
        "Tables of {}. Windows of 128 KiB, or, where code has a preferred size, of 256 KiB of a \
         program's file, a quarter of it before the block of the fault; what is in memory is mapped \
         64 KiB around a fault, or as far as a fault reads, folios whole. Each file begins at a \
         multiple of 2 MiB of a space that holds nothing else, and none of it is in memory at \
         first.",
        args.isa.name()
    ));
    run.settings.push(
        "read-around maps text as data, which is how Linux read it until 6.15; read-ahead is \
         Linux 7.2's way for text without a preferred size. exec-64K prefers folios of 64 KiB, as \
         Linux 7.2 does on arm64, with larger windows and for all of a program's file; and there, \
         as in tiers-2M, anonymous memory may be in folios of 16 to 64 KiB, so that a write to \
         private data copies up to 64 KiB around it."
            .to_owned(),
    );
    for geometry in tlb::ALL {
        run.settings.push(format!("iTLB {}: {}.", geometry.name, geometry.about));
    }
    run.limits.push(
        "Recordings tell first touches only. Misses \"at first touches\" are those that no TLB can \
         save; \"all once more\" fetches from each page of text once more in the same order, which \
         stands for a program that goes on using all of it, and is no trace of one."
            .to_owned(),
    );
    run.limits.push(
        "A read is a stretch of pages that are asked of the disk at once, and is there at once: \
         what reading ahead saves in waiting is in no figure."
            .to_owned(),
    );
}
