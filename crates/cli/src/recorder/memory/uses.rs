//! Samples of use: at each, all private memory of the programs is made to look unused, so that the
//! next use of a page shows.
//!
//! Two ways, the first that the kernel has:
//!
//! * **idle bits** (`/sys/kernel/mm/page_idle`): a page whose bit is gone at the next sample was
//!   used meanwhile. Then it is a touch of the tape, without its time and kind.
//! * **paging out** (`process_madvise`) to compressed memory: the next use is a fault, which the
//!   trace has with its time and kind. Pages that several processes share stay, and are not seen.
//!
//! Each sample ends with a mark.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::weave::Weave;
use crate::host::Host;
use crate::host::memory::meminfo;
use crate::host::swap::{Device, Swap};
use crate::tape::{Access, Event};
use crate::watch::{Figures, Line, areas, page_out, tree};

const BITMAP: &str = "sys/kernel/mm/page_idle/bitmap";
/// Bits of a word of `pagemap`: there is a page; it is of a file or shared; the number of its
/// frame.
const PRESENT: u64 = 1 << 63;
const OF_FILE: u64 = 1 << 61;
const FRAME: u64 = (1 << 55) - 1;
/// Words that are read at a time.
const CHUNK: u64 = 1 << 14;

/// Samples of use, one each `every`.
pub(super) struct Uses {
    every: Duration,
    last: Instant,
    way: Way,
}

enum Way {
    Idle(File),
    /// With the device, which goes when this ends.
    Out {
        _device: Swap,
    },
}

impl Uses {
    /// Samples each `every`, if the host can; else why not.
    pub(super) fn new(host: &Host, every: Duration) -> Result<Uses, String> {
        let bitmap = OpenOptions::new().read(true).write(true).open(host.path(BITMAP));
        let way = match bitmap {
            Ok(bitmap) => Way::Idle(bitmap),
            Err(_) => {
                let device = Swap::on(host, Device::Zram, room(host)).map_err(|why| {
                    format!(
                        "uses cannot be sampled: the kernel has no idle bits \
                         (CONFIG_IDLE_PAGE_TRACKING), and nothing can be paged out: {why}"
                    )
                })?;
                Way::Out { _device: device }
            }
        };
        Ok(Uses { every, last: Instant::now(), way })
    }

    /// Whether the kernel's own counts still are those of the program.
    pub(super) fn keeps_counts(&self) -> bool {
        matches!(self.way, Way::Idle(_))
    }

    /// A sentence about the samples.
    pub(super) fn sentence(&self) -> String {
        let seconds = self.every.as_secs_f64();
        match self.way {
            Way::Idle(_) => format!("Uses were sampled each {seconds} s, by idle bits."),
            Way::Out { .. } => format!(
                "Uses were sampled each {seconds} s, by paging out: the kernel's own counts of \
                 faults and memory are those of that, and are left out."
            ),
        }
    }

    /// Takes a sample of the program of process `pid` if it is due. All events until now are in
    /// the tape.
    pub(super) fn sample(&mut self, pid: u32, weave: &mut Weave) {
        if self.last.elapsed() < self.every {
            return;
        }
        let threads = tree(pid);
        let processes: BTreeSet<u32> =
            threads.iter().filter_map(|thread| Some(Figures::of(*thread)?.process)).collect();
        let found: Vec<(u32, Vec<Line>)> =
            processes.into_iter().map(|pid| (pid, private(areas(pid)))).collect();
        if let Way::Idle(bitmap) = &self.way {
            for (pid, areas) in &found {
                used(bitmap, *pid, areas, weave);
            }
        }
        weave.writer.push(Event::Mark);
        for (pid, areas) in &found {
            // A process may have ended since.
            let _ = match &self.way {
                Way::Idle(bitmap) => mark(bitmap, *pid, areas),
                Way::Out { .. } => out(*pid, areas),
            };
        }
        self.last = Instant::now();
    }
}

/// Bytes of the device: as much as there is memory, so that it is never full.
fn room(host: &Host) -> u64 {
    meminfo(host, "MemTotal").unwrap_or(4 << 30).next_multiple_of(2 << 20)
}

/// The areas of private memory.
fn private(mut areas: Vec<Line>) -> Vec<Line> {
    let kernels = |name: &str| name.starts_with("[v");
    areas.retain(|area| {
        let is_user = (area.start as i64) >= 0;
        is_user && area.inode == 0 && !area.shared && area.rights[1] && !kernels(&area.name)
    });
    areas
}

/// Pages the areas of a process out.
fn out(pid: u32, areas: &[Line]) -> io::Result<()> {
    let pid = Pid::from_raw(pid as i32).ok_or(io::ErrorKind::NotFound)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let all: Vec<(u64, u64)> = areas.iter().map(|area| (area.start, area.end)).collect();
    page_out(std::os::fd::AsFd::as_fd(&process), &all).map(drop)
}

/// Calls `see` with each private page that a process has, and its frame.
fn frames(pid: u32, areas: &[Line], mut see: impl FnMut(u64, u64)) -> io::Result<()> {
    let page = rustix::param::page_size() as u64;
    let pagemap = File::open(format!("/proc/{pid}/pagemap"))?;
    for area in areas {
        let (mut at, end) = (area.start / page, area.end / page);
        while at < end {
            let count = CHUNK.min(end - at);
            let mut bytes = vec![0; count as usize * 8];
            pagemap.read_exact_at(&mut bytes, at * 8)?;
            for (number, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
                let word = u64::from_le_bytes(*word);
                if word & (PRESENT | OF_FILE) == PRESENT {
                    see(at + number as u64, word & FRAME);
                }
            }
            at += count;
        }
    }
    Ok(())
}

/// Puts the pages of a process that are no longer idle into the tape.
fn used(bitmap: &File, pid: u32, areas: &[Line], weave: &mut Weave) {
    let mut cached = (u64::MAX, 0);
    let mut pages = Vec::new();
    let _ = frames(pid, areas, |page, frame| {
        if cached.0 != frame / 64 {
            cached = (frame / 64, read_word(bitmap, frame / 64));
        }
        if cached.1 >> (frame % 64) & 1 == 0 {
            pages.push(page);
        }
    });
    for page in pages {
        weave.push(pid, Event::Touch { page, access: Access::Read });
    }
}

/// Marks the pages of a process as idle.
fn mark(bitmap: &File, pid: u32, areas: &[Line]) -> io::Result<()> {
    let mut words = std::collections::BTreeMap::<u64, u64>::new();
    frames(pid, areas, |_, frame| *words.entry(frame / 64).or_default() |= 1 << (frame % 64))?;
    for (word, bits) in words {
        bitmap.write_all_at(&bits.to_ne_bytes(), word * 8)?;
    }
    Ok(())
}

/// A word of the bitmap; pages that it does not know are idle.
fn read_word(bitmap: &File, word: u64) -> u64 {
    let mut bytes = [0; 8];
    match bitmap.read_exact_at(&mut bytes, word * 8) {
        Ok(()) => u64::from_ne_bytes(bytes),
        Err(_) => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f1_only_private_memory_is_sampled() {
        let all = private(areas(std::process::id()));
        assert!(all.iter().any(|area| area.name == "[stack]"));
        assert!(all.iter().all(|area| area.inode == 0 && !area.name.starts_with("[v")));
    }

    #[test]
    fn f1_a_host_without_idle_bits_and_swap_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let why = Uses::new(&Host::new(dir.path()), Duration::from_secs(1)).err().unwrap();
        assert!(why.contains("CONFIG_IDLE_PAGE_TRACKING") && why.contains("paged out"), "{why}");
    }

    #[test]
    fn f1_a_page_whose_idle_bit_is_gone_was_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bitmap");
        std::fs::write(&path, [0xff; 16]).unwrap();
        let bitmap = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        assert_eq!((read_word(&bitmap, 1), read_word(&bitmap, 2)), (u64::MAX, u64::MAX));
        bitmap.write_all_at(&7_u64.to_ne_bytes(), 8).unwrap();
        assert_eq!(read_word(&bitmap, 1), 7);
    }
}
