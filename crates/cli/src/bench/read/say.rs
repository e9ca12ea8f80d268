//! How the figures are titled, and what a reader must know to judge them.

use super::measure::{BARE, CACHE, NAIVE};
use crate::record::{Record, Run};
use crate::size::Size;

/// The table that a record of this bench belongs to.
pub(crate) fn title(record: &Record) -> String {
    let form = record.case().form;
    match (form.as_str(), record.metric.as_str()) {
        ("in memory", "rate") => "read in memory by chunk: GB/s, more is better (medians)",
        ("in memory", _) => "read in memory by chunk: ratio to the bare copy's rate (medians)",
        ("first read", "read") => {
            "read first by chunk: time for each page but the device (medians)"
        }
        ("first read", _) => "read first by chunk: time to close the file, for each page (medians)",
        ("folios", _) => "read first: how many folios of each size were read",
        (_, "time") => "read lookup: CPU time of each, in each thread (medians)",
        (_, "speed-up") => "read lookup: two threads, times as fast as one by the clock (medians)",
        _ => "read lookup: two threads, times as fast as one by CPU time (medians)",
    }
    .to_owned()
}

/// What a row of such a record is called.
pub(crate) fn label(record: &Record) -> String {
    let case = record.case();
    match case.form.strip_prefix("lookup ") {
        Some(which) => format!("{which}, {}, {}", record.variant, case.notes),
        None => format!("{}, {}", record.variant, case.notes),
    }
}

/// Says what a reader must know.
pub(super) fn say(run: &mut Run, size: Size) {
    run.settings.push(format!(
        "{CACHE}: a file of {size} in the RAM of the hosted machine (x86_64, nothing watched or \
         counted), as read(2) is asked for it, front to back: for each piece of a chunk that lies \
         in one folio Mm::page, a copy into a buffer as large as the chunk, and Mm::release. The \
         file was read first in chunks of 64K, by a device that writes each page's number, and \
         every page was then looked at once."
    ));
    run.settings.push(format!(
        "{BARE}: the same copies in the same order, and nothing else; the frames come from a table \
         that was made beforehand. The two take turns within each round, a thirty-second of the \
         file at a time, half of the file apart. CPU time of one thread."
    ));
    run.settings.push(format!(
        "{NAIVE}: a BTreeMap of reference-counted folios in a Mutex. Lookups find a page, hold its \
         folio, and let it go; nothing is copied. Two threads are on CPUs of their own, in order \
         in halves of the file, at random in all of it."
    ));
    run.settings.push(
        "A first read has a device that takes no time and writes nothing: what remains is to find \
         out what is missing, to take folios, to put them into the index, and to hold them."
            .to_owned(),
    );
    run.limits.push(
        "The system call, and the program's side of the copy (faults, access checks), are in no \
         figure: they are the kernel's, and the same for both."
            .to_owned(),
    );
    run.limits.push(
        "Two threads that look up one page write one cache line, the folio's slot: there is no \
         speed to be had. By the clock other work on this host counts; by CPU time it does not."
            .to_owned(),
    );
}
