//! The pages that a process has when a recording attaches to it.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::tape::{Access, Event, Writer};
use crate::watch::Line;

/// Bits of a word of `pagemap`: there is a page; it is of a file or shared.
const PRESENT: u64 = 1 << 63;
const OF_FILE: u64 = 1 << 61;
/// Words that are read at a time.
const CHUNK: u64 = 1 << 14;

/// Writes the pages that process `pid` has as touches, and pages of files as a number. `page` is
/// the size of a page.
pub(super) fn write(pid: u32, areas: &[Line], page: u64, writer: &mut Writer) {
    let Ok(pagemap) = File::open(format!("/proc/{pid}/pagemap")) else { return };
    let mut held = 0;
    for area in areas.iter().filter(|area| (area.start as i64) >= 0) {
        let (mut at, end) = (area.start / page, area.end / page);
        while at < end {
            let count = CHUNK.min(end - at);
            let mut bytes = vec![0; count as usize * 8];
            if pagemap.read_exact_at(&mut bytes, at * 8).is_err() {
                break;
            }
            for (number, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
                let word = u64::from_le_bytes(*word);
                if word & PRESENT != 0 && word & OF_FILE != 0 {
                    held += 1;
                } else if word & PRESENT != 0 {
                    let page = at + number as u64;
                    writer.push(Event::Touch { page, access: Access::Write });
                }
            }
            at += count;
        }
    }
    writer.push(Event::Held(held));
}
