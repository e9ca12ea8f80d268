//! Which ELF files a program maps, and how they are to be mapped.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use elf::ElfBytes;
use elf::abi::{PF_R, PF_W, PF_X, PT_INTERP, PT_LOAD};
use elf::endian::AnyEndian;

use super::program::Program;
use crate::recording::{Segment, Source};

/// A file that will be recorded.
pub(super) struct Image {
    /// Where it is.
    pub(super) path: PathBuf,
    pub(super) source: Source,
}

/// The first moments, in which libraries come one after the other: no pause meanwhile.
const BUSY: Duration = Duration::from_millis(200);
/// The pause between two looks afterwards.
const PAUSE: Duration = Duration::from_millis(2);

/// Runs the program without output, and watches which files it and its children map. The loader
/// lists its libraries before, for programs that end too soon to be watched.
pub(super) fn discover(program: &Program<'_>) -> Result<Vec<Image>> {
    let mut paths = needed(&program.path);
    paths.insert(program.path.clone());
    let mut child = program.start(false)?;
    let start = Instant::now();
    while child.is_running()? {
        for pid in tree(child.id()) {
            let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
            paths.extend(maps.lines().filter_map(mapped));
        }
        if start.elapsed() > BUSY {
            sleep(PAUSE);
        }
    }
    Ok(paths.into_iter().filter_map(image).collect())
}

/// The libraries of a program and its loader, as the loader of glibc prints them in lines of
/// `libc.so.6 => /lib/libc.so.6 (0x7f…)`. Other loaders print nothing, or run the program.
fn needed(path: &Path) -> BTreeSet<PathBuf> {
    let bytes = fs::read(path).unwrap_or_default();
    let is_dynamic = |file: ElfBytes<'_, AnyEndian>| {
        file.segments().is_some_and(|all| all.iter().any(|header| header.p_type == PT_INTERP))
    };
    if !ElfBytes::<AnyEndian>::minimal_parse(&bytes).is_ok_and(is_dynamic) {
        return BTreeSet::new();
    }
    let mut command = Command::new(path);
    command.env("LD_TRACE_LOADED_OBJECTS", "1").stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&output).into_owned();
    let paths = text.split_whitespace().filter(|word| word.starts_with('/'));
    paths.filter_map(|path| fs::canonicalize(path).ok()).collect()
}

/// The file of a line of `maps`.
fn mapped(line: &str) -> Option<PathBuf> {
    let path = &line[line.find(" /")? + 1..];
    (!path.ends_with(" (deleted)")).then(|| PathBuf::from(path))
}

/// A process and its descendants. A kernel without `children` (`CONFIG_PROC_CHILDREN`) lists none.
fn tree(root: u32) -> Vec<u32> {
    let mut all = vec![root];
    let mut at = 0;
    while let Some(pid) = all.get(at) {
        for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            all.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
        at += 1;
    }
    all
}

/// The file at `path`, if it is an ELF file.
fn image(path: PathBuf) -> Option<Image> {
    let bytes = fs::read(&path).ok()?;
    let name = path.file_name()?.to_str()?.to_owned();
    let segments = segments(&bytes)?;
    Some(Image { path, source: Source { name, bytes: bytes.len() as u64, segments } })
}

/// The mapped parts of an ELF file; `None` for other files.
pub(super) fn segments(bytes: &[u8]) -> Option<Vec<Segment>> {
    let file = ElfBytes::<AnyEndian>::minimal_parse(bytes).ok()?;
    let loads = file.segments()?.iter().filter(|header| header.p_type == PT_LOAD);
    let segment = |header: elf::segment::ProgramHeader| Segment {
        rights: [PF_R, PF_W, PF_X].map(|bit| header.p_flags & bit != 0),
        offset: header.p_offset,
        bytes: header.p_filesz,
        address: header.p_vaddr,
    };
    let all: Vec<Segment> = loads.map(segment).filter(|segment| segment.bytes > 0).collect();
    // Addresses are told from where the file begins, as for a file that may be anywhere.
    let base =
        all.iter().map(|segment| segment.address - segment.address.min(segment.offset)).min();
    let down =
        |segment: Segment| Segment { address: segment.address - base.unwrap_or(0), ..segment };
    let all: Vec<Segment> = all.into_iter().map(down).collect();
    let fits = |segment: &Segment| {
        let end = segment.offset.checked_add(segment.bytes);
        end.is_some_and(|end| end <= bytes.len() as u64)
    };
    all.iter().all(fits).then_some(all)
}

/// The name of a file, without folders.
pub(super) fn name_of(path: &Path) -> Result<String> {
    let name = path.file_name().and_then(|name| name.to_str());
    Ok(name.context("the program's name is no text")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_those_that_an_elf_file_says() {
        let own = std::env::current_exe().unwrap();
        let bytes = fs::read(&own).unwrap();
        let segments = segments(&bytes).unwrap();
        assert_eq!(segments[0].offset, 0);
        assert_eq!(segments.iter().filter(|segment| segment.rights[2]).count(), 1);
        assert!(segments.iter().all(|segment| segment.offset % 4096 == segment.address % 4096));
        // A truncated file, and one that is no ELF file, have none.
        assert_eq!(super::segments(&bytes[..bytes.len() / 2]), None);
        assert_eq!(super::segments(b"#!/bin/sh\n"), None);
    }

    #[test]
    fn addresses_are_told_from_where_a_file_begins() {
        // One segment of 100 bytes at 0x400040, as linkers make programs that may not be moved.
        let mut bytes = vec![0; 228];
        bytes[..16].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(16, &[2, 0, 62, 0, 1]);
        put(32, &[64]);
        put(52, &[64, 0, 56, 0, 1]);
        put(64, &[1, 0, 0, 0, 5]);
        put(72, &[64]);
        put(80, &0x40_0040_u64.to_le_bytes());
        put(96, &[100]);
        let segment = Segment { rights: [true, false, true], offset: 64, bytes: 100, address: 64 };
        assert_eq!(segments(&bytes), Some(vec![segment]));
    }

    #[test]
    fn mapped_files_have_paths_and_are_not_deleted() {
        let line = "7f0-7f1 r-xp 0000 fe:00 77    /usr/lib/a b.so";
        assert_eq!(mapped(line), Some("/usr/lib/a b.so".into()));
        for line in ["7f0-7f1 rw-p 0 0:0 0", "7-8 rw-p 0 0:0 0 [heap]", "7-8 r 0 0 1  /x (deleted)"]
        {
            assert_eq!(mapped(line), None, "{line}");
        }
    }
}
