//! The areas of a process, from its `smaps`.

use quire_linux::exec::Rights;
use quire_linux::text::AreaLine;

/// An area of a process.
#[derive(Clone, Debug)]
pub(crate) struct Area {
    /// Where it is; without its name.
    pub(crate) line: AreaLine<'static>,
    /// A path, or a word in brackets; empty when it has none.
    pub(crate) name: String,
    /// Resident bytes.
    pub(crate) resident: u64,
    /// Bytes of anonymous memory that larger leaves map.
    pub(crate) anon_blocks: u64,
    /// The same of files and of shared memory.
    pub(crate) file_blocks: u64,
}

/// All areas, in the order of the text. Unknown lines are skipped: new kernels add some.
pub(crate) fn parse(text: &str) -> Vec<Area> {
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

/// The area of `text` that holds `address`.
pub(crate) fn holding(text: &str, address: u64) -> Option<Area> {
    parse(text).into_iter().find(|area| (area.line.start..area.line.end).contains(&address))
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
    let (name, resident, anon_blocks, file_blocks) = (rest.trim_start().to_owned(), 0, 0, 0);
    let area = Area { line, name, resident, anon_blocks, file_blocks };
    (area.line.start < area.line.end).then_some(area)
}

/// `Rss:     8 kB`, in bytes.
fn figure(line: &str) -> Option<(&str, u64)> {
    let (key, value) = line.split_once(':')?;
    let kib: u64 = value.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some((key, kib.checked_mul(1024)?))
}
