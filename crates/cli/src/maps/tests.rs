//! The command against a folder that plays `/proc`, and its runs against one page at a time.

use std::fs;

use proptest::prelude::*;
use quire_linux::text::{Folding, Folios, Grain};

use super::frames::{Frames, flag};
use super::process::{Found, add, all, read};
use super::show::{MapsArgs, run};
use crate::host::{Host, smaps};
use crate::refused::Refused;
use crate::size::Size;

const GRAIN: Grain = Grain { page: 4096, cont: 64 << 10 };
const PRESENT: u64 = 1 << 63;

struct Fake(tempfile::TempDir);

impl Fake {
    fn new() -> Fake {
        Fake(tempfile::tempdir().unwrap())
    }

    fn host(&self) -> Host {
        Host::new(self.0.path())
    }

    fn write(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let path = self.host().path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn words(&self, path: &str, words: &[u64]) {
        self.write(path, words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>());
    }

    /// Frames 16 to 31 are a folio of no file, 32 one of a file, 33 a page of zeroes.
    fn frames(&self) {
        let mut flags = vec![0; 16];
        flags.push(flag::LARGE | flag::ANON | flag::HEAD);
        flags.extend([flag::LARGE | flag::ANON | flag::TAIL; 15]);
        flags.extend([0, flag::ZERO]);
        self.words("proc/kpageflags", &flags);
    }

    /// A process with these pages from the first on.
    fn process(&self, pid: u32, pages: &[u64]) {
        let line = format!("00000000-{:08x} rw-p 00000000 00:00 0 \n", pages.len() * 4096);
        self.write(&format!("proc/{pid}/smaps"), line + "Rss:   4 kB\nVmFlags: rd wr\n");
        self.words(&format!("proc/{pid}/pagemap"), pages);
        self.write(&format!("proc/{pid}/comm"), "sleep\n");
    }
}

fn refused(host: &Host, pid: Option<u32>, cont: u64) -> String {
    let args = MapsArgs { pid, all: pid.is_none(), cont: Size(cont), areas: false };
    let error = run(&args, host).unwrap_err();
    assert!(error.is::<Refused>(), "{error:#}");
    error.to_string()
}

#[test]
fn b6_what_cannot_be_told_is_refused_in_one_sentence() {
    let fake = Fake::new();
    let host = fake.host();
    assert!(refused(&host, Some(7), 64 << 10).contains("CONFIG_PROC_PAGE_MONITOR"));
    fake.frames();
    assert!(refused(&host, Some(7), 1 << 10).contains("--cont 1K: a page has 4K"));
    assert_eq!(refused(&host, Some(7), 4096), "there is no process 7");
    fake.write("proc/7/smaps", "");
    assert!(refused(&host, Some(7), 4096).contains("process 7 has no memory"));
    // A process without the right sees that pages are present, and frame 0.
    fake.process(7, &[PRESENT]);
    assert!(refused(&host, Some(7), 4096).contains("needs root"));
    assert!(refused(&host, None, 4096).contains("needs root"));
}

#[test]
fn b6_a_process_that_ends_while_it_is_read_is_gone() {
    let fake = Fake::new();
    fake.frames();
    fake.process(7, &[PRESENT | 32]);
    fs::remove_file(fake.host().path("proc/7/pagemap")).unwrap();
    fake.process(300, &[PRESENT | 32]);
    fake.write("proc/self/comm", "");
    assert_eq!(all(&fake.host()).unwrap(), [7, 300]);
    let mut frames = Frames::open(&fake.host()).unwrap();
    for pid in [7, 8] {
        assert!(matches!(read(&fake.host(), pid, GRAIN, &mut frames), Ok(Found::Gone)));
    }
    // Its memory is given back when it ends, before its files go.
    fake.words("proc/300/pagemap", &[]);
    let Ok(Found::Process(process)) = read(&fake.host(), 300, GRAIN, &mut frames) else {
        panic!("it is there");
    };
    assert_eq!(process.sum(), Folios::default());
}

#[test]
fn b6_an_area_is_what_smaps_and_pagemap_say() {
    let fake = Fake::new();
    fake.frames();
    let mut pages: Vec<u64> = (16..32).map(|frame| PRESENT | frame).collect();
    // A file's page, one swapped out, one of zeroes, and frames that are no memory.
    pages.extend([PRESENT | 32, 1 << 62 | 5, PRESENT | 33, PRESENT | 9000]);
    fake.process(7, &pages);
    let mut frames = Frames::open(&fake.host()).unwrap();
    let Ok(Found::Process(process)) = read(&fake.host(), 7, GRAIN, &mut frames) else {
        panic!("it is there");
    };
    let sum = process.sum();
    assert_eq!((process.name.as_str(), process.areas.len()), ("sleep", 1));
    assert_eq!((sum.anon.total, sum.anon.aligned[4], sum.anon.cont), (16, 16, 16));
    assert_eq!((sum.file.total, sum.file.cont), (1, 0));
}

#[test]
fn b6_smaps_is_read_with_names_that_have_spaces_and_lines_that_are_new() {
    let text = "\
55d0a000-55d0c000 r-xs 00002000 fe:01 123                  /a b-c: d (deleted)
Rss:                   8 kB
AnonHugePages:         4 kB
ShmemPmdMapped:        2 kB
FilePmdMapped:         1 kB
SomethingNew:        abc kB
VmFlags: rd ex mr mw
7ffc0000-7ffd0000 rw-p 00000000 00:00 0
";
    let areas = smaps::parse(text);
    assert_eq!(areas.len(), 2);
    let (area, line) = (&areas[0], &areas[0].line);
    assert_eq!(area.name, "/a b-c: d (deleted)");
    assert_eq!((line.start, line.end, line.offset), (0x55d0_a000, 0x55d0_c000, 0x2000));
    assert_eq!((line.device, line.inode, line.shared), ((0xfe, 1), 123, true));
    assert_eq!((area.resident, area.anon_blocks, area.file_blocks), (8192, 4096, 3072));
    assert_eq!((areas[1].name.as_str(), areas[1].resident), ("", 0));
    for damaged in ["", "Rss: 4 kB", "1-0 rw-p 0 0:0 0", "x-y rw-p 0 0:0 0", "0-1", "0-1 r 0 0 0"] {
        assert!(smaps::parse(damaged).is_empty(), "{damaged}");
    }
}

/// Frames of folios: order, and whether of no file.
fn memory() -> impl Strategy<Value = Vec<(u8, bool)>> {
    proptest::collection::vec((0_u8..7, any::<bool>()), 4..16)
}

/// Folios one behind the other, each aligned to its size, from frame 64 on; the flags of frames.
fn flags(folios: &[(u8, bool)]) -> Vec<u64> {
    let mut flags = vec![flag::NO_PAGE; 64];
    for (order, anon) in folios {
        let size = 1 << order;
        flags.resize(flags.len().next_multiple_of(size), 0);
        let anon = if *anon { flag::ANON } else { 0 };
        match order {
            0 => flags.push(anon),
            _ => {
                flags.push(anon | flag::LARGE | flag::HEAD);
                flags.extend(std::iter::repeat_n(anon | flag::LARGE | flag::TAIL, size - 1));
            }
        }
    }
    flags
}

/// The counts of a walk page by page: total, and in whole folios, at an aligned page or not.
fn model(words: &[u64], flags: &[u64], anon: bool) -> (u64, u64, u64) {
    let is = |frame: usize, bit| flags.get(frame).is_some_and(|flags| flags & bit != 0);
    let (mut total, mut aligned, mut unaligned) = (0, 0, 0);
    for (page, word) in words.iter().enumerate() {
        let frame = (word & !PRESENT) as usize;
        if word & PRESENT == 0 || is(frame, flag::ANON) != anon {
            continue;
        }
        total += 1;
        if !is(frame, flag::LARGE) {
            continue;
        }
        let mut head = frame;
        while is(head, flag::TAIL) {
            head -= 1;
        }
        let mut size = 1;
        while is(head + size, flag::TAIL) {
            size += 1;
        }
        let Some(first) = page.checked_sub(frame - head) else { continue };
        let shows = |at: usize| words.get(first + at) == Some(&(PRESENT | (head + at) as u64));
        if (0..size).all(shows) {
            *(if first % size == 0 { &mut aligned } else { &mut unaligned }) += 1;
        }
    }
    (total, aligned, unaligned)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn b6_runs_of_pagemap_find_what_one_page_at_a_time_finds(
        memory in memory(),
        maps in proptest::collection::vec((0_u64..600, 1_u64..130, 0_usize..20), 1..8),
        cut in 1_usize..200,
    ) {
        let fake = Fake::new();
        let flags = flags(&memory);
        fake.words("proc/kpageflags", &flags);
        let mut frames = Frames::open(&fake.host()).unwrap();
        let mut words = Vec::new();
        for (start, count, gap) in maps {
            let start = 64 + start % (flags.len() as u64 - 64);
            let end = (start + count).min(flags.len() as u64);
            words.extend((start..end).map(|frame| PRESENT | frame));
            words.extend(std::iter::repeat_n(0, gap));
        }
        let mut folding = Folding::new(GRAIN);
        for (at, chunk) in words.chunks(cut).enumerate() {
            add(&mut folding, (at * cut) as u64, chunk, &mut frames).unwrap();
        }
        let sum = folding.done();
        for (share, anon) in [(sum.anon, true), (sum.file, false)] {
            let (aligned, unaligned) = (share.aligned.iter().sum(), share.unaligned.iter().sum());
            prop_assert_eq!((share.total, aligned, unaligned), model(&words, &flags, anon));
        }
    }
}
