//! How the figures are titled, and what a reader must know to judge them.

use super::cycle::{BY_RUNS, Device};
use super::packed;
use crate::bench::clear::PAGES;
use crate::record::{Record, Run};
use crate::size::Size;

/// The table that a record of this bench belongs to: one for each format and kind of figure.
pub(crate) fn title(record: &Record) -> String {
    let case = record.case();
    let format = case.notes.split(", ").next().unwrap_or("");
    let what = match (record.metric.as_str(), record.unit.as_str()) {
        ("per-page", _) => "ns of CPU time for each page, less is better (medians)",
        (_, "times") => "compressed memory, how many times smaller than what it holds",
        (_, "ratio") => "by-runs against page-at-a-time, times as fast, more is better (medians)",
        _ => "what was done, counted in a round of its own",
    };
    format!("{} {format}: {what}", record.bench)
}

/// What a row of such a record is called.
pub(crate) fn label(record: &Record) -> String {
    let case = record.case();
    if record.unit == "count" {
        return format!("{}, {}: {}", case.form, record.variant, record.metric);
    }
    let notes = Device::ALL.map(Device::note);
    let is_device = |note: &&str| notes.contains(note) || note.starts_with(packed::NOTE);
    let device = case.notes.split(", ").find(is_device).unwrap_or("");
    match record.unit.as_str() {
        "ratio" => format!("{}, {device}", case.form),
        _ => format!("{}, {}, {device}", case.form, record.variant),
    }
}

/// Says what a reader must know.
pub(super) fn say(run: &mut Run, size: Size) {
    run.settings.push(format!(
        "{size} of anonymous memory in one space of the hosted machine, every page written, in \
         folios of one size; a swap device with just as many slots, in use from the start and \
         empty before each circle. Out is Mm::page_out of all of it in one call; write is \
         Mm::next_write, the device and Mm::write_done; back is a fault for each folio, front to \
         back, with Mm::next_read, the device and Mm::read_done. CPU time of one thread."
    ));
    run.settings.push(format!(
        "{BY_RUNS} takes steps of up to a block, as usual; {PAGES} takes one page in a step \
         (Policy::set_evict_most). Nothing else is chosen differently, above all not the flush, \
         one at the end of each batch of folios: a kernel that flushes for each page as well loses \
         more than this. Writing and bringing back are the same code in both."
    ));
    run.settings.push(format!(
        "On arm64 {PAGES} has to take each contiguous block apart before its first page can go: 32 \
         words are written, and one flush is made in the middle of a break-before-make. The words \
         are in its time, the flushes are counted; x86_64, which has no such blocks, shows the \
         step alone."
    ));
    run.settings.push(
        "Blocks are folios that one entry above the last level maps: these are one step in either \
         way. Folios of 2M that entries map were populated as blocks, whose leaf was then split."
            .to_owned(),
    );
    run.settings.push(
        "The idle device does nothing, so that what comes back is noise; the copying device copies \
         within the machine's memory. All four pairs of way and device take turns in each round, \
         in the same memory; ratios are taken within a round. Before, not timed, each way goes \
         through the circle with every word of the memory looked at, all free memory being \
         overwritten meanwhile; the counts are from there."
            .to_owned(),
    );
    run.limits.push(
        "This is a hosted model. No trap, no system call, no walk of the tables by hardware, and \
         nothing of what a flush costs is in any figure: not the instructions, not the waiting for \
         other CPUs, not the misses afterwards. Flushes and invalidations are counted instead."
            .to_owned(),
    );
    run.limits.push(
        "Nobody else maps the folios, one CPU pages out, and the program is not running meanwhile: \
         looking for a folio in other spaces, and waiting for locks, are in no figure."
            .to_owned(),
    );
    run.limits.push(
        "To choose what goes out is not measured, either: the bench names the pages.".to_owned(),
    );
}
