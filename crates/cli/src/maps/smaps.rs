//! The areas of a process, from its `smaps`.

use quire_linux::exec::Rights;
use quire_linux::text::AreaLine;

/// An area of a process.
#[derive(Clone, Debug)]
pub(super) struct Area {
    /// Where it is; without its name.
    pub(super) line: AreaLine<'static>,
    /// A path, or a word in brackets; empty when it has none.
    pub(super) name: String,
    /// What is resident, in bytes.
    pub(super) resident: u64,
    /// Of memory of no file, what larger leaves map, in bytes.
    pub(super) anon_blocks: u64,
    /// Likewise of files and of shared memory.
    pub(super) file_blocks: u64,
}

/// All areas, in the order of the text. Lines that are not understood are skipped: kernels add
/// some.
pub(super) fn parse(text: &str) -> Vec<Area> {
    let mut areas: Vec<Area> = Vec::new();
    for line in text.lines() {
        if let Some(area) = head(line) {
            areas.push(area);
        } else if let (Some(area), Some((key, bytes))) = (areas.last_mut(), figure(line)) {
            match key {
                "Rss" => area.resident = bytes,
                "AnonHugePages" => area.anon_blocks = bytes,
                "ShmemPmdMapped" | "FilePmdMapped" => area.file_blocks += bytes,
                _ => {}
            }
        }
    }
    areas
}

/// `55d0a000-55d0c000 r-xp 00002000 fe:00 123   /usr/bin/cat`.
fn head(line: &str) -> Option<Area> {
    let mut rest = line;
    let mut word = || {
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = after;
        (!word.is_empty()).then_some(word)
    };
    let (start, end) = word()?.split_once('-')?;
    let rights = word()?;
    let (offset, device, inode) = (word()?, word()?, word()?);
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let (major, minor) = device.split_once(':')?;
    let device = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    let has = |letter| rights.contains(letter);
    let line = AreaLine {
        start: hex(start)?,
        end: hex(end)?,
        rights: Rights { read: has('r'), write: has('w'), execute: has('x') },
        shared: has('s'),
        offset: hex(offset)?,
        device,
        inode: inode.parse().ok()?,
        name: b"",
    };
    let name = rest.trim_start().to_owned();
    (line.start < line.end).then_some(Area {
        line,
        name,
        resident: 0,
        anon_blocks: 0,
        file_blocks: 0,
    })
}

/// `Rss:     8 kB`, in bytes.
fn figure(line: &str) -> Option<(&str, u64)> {
    let (key, value) = line.split_once(':')?;
    let kib: u64 = value.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some((key, kib.checked_mul(1024)?))
}
