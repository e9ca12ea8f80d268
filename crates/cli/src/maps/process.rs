//! One process: its areas, and the folios of their pages.

use std::fs::{self, File};
use std::io::{self, ErrorKind};

use anyhow::{Context, Result, anyhow};
use quire_linux::text::{Folding, Folios, Grain, Piece};
use rustix::io::Errno;

use super::frames::{Frames, needs_root, words};
use crate::host::Host;
use crate::host::smaps::{self, Area};

/// A word of `pagemap`: there is a page, and its frame.
const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << 55) - 1;

/// Words of `pagemap` that are read at a time.
const CHUNK: u64 = 1 << 15;

/// A process that was read.
pub(super) struct Process {
    /// The name of its program, at most 15 letters.
    pub(super) name: String,
    /// Its areas that have something resident.
    pub(super) areas: Vec<(Area, Folios)>,
}

/// The result of reading a process.
pub(super) enum Found {
    Process(Process),
    /// It has no memory.
    Nothing,
    /// There is none, or it ended meanwhile.
    Gone,
    /// The caller may not look at it.
    Hidden,
}

/// The numbers of all processes.
pub(super) fn all(host: &Host) -> Result<Vec<u32>> {
    let entries = fs::read_dir(host.path("proc")).context("/proc cannot be read")?;
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let mut all: Vec<u32> = entries.filter_map(|entry| number(entry.ok()?)).collect();
    all.sort_unstable();
    Ok(all)
}

/// Reads process `pid`.
pub(super) fn read(host: &Host, pid: u32, grain: Grain, frames: &mut Frames) -> Result<Found> {
    let path = |file: &str| host.path(format!("proc/{pid}/{file}"));
    let text = match fs::read(path("smaps")) {
        Ok(text) => String::from_utf8_lossy(&text).into_owned(),
        Err(e) => return gone(e, pid),
    };
    let all = smaps::parse(&text);
    if all.is_empty() {
        return Ok(Found::Nothing);
    }
    let pagemap = match File::open(path("pagemap")) {
        Ok(file) => file,
        Err(e) => return gone(e, pid),
    };
    let mut areas = Vec::new();
    for area in all.into_iter().filter(|area| area.resident > 0) {
        match folios(&pagemap, &area, grain, frames) {
            Ok(folios) => areas.push((area, folios)),
            Err(Stop::Read(e)) => return gone(e, pid),
            Err(Stop::Else(e)) => return Err(e),
        }
    }
    let name = host.read(format!("proc/{pid}/comm")).unwrap_or_default();
    Ok(Found::Process(Process { name, areas }))
}

/// The meaning of an error of reading a process's files.
fn gone(e: io::Error, pid: u32) -> Result<Found> {
    if e.kind() == ErrorKind::NotFound || e.raw_os_error() == Some(Errno::SRCH.raw_os_error()) {
        return Ok(Found::Gone);
    }
    if e.kind() == ErrorKind::PermissionDenied {
        return Ok(Found::Hidden);
    }
    Err(anyhow!(e).context(format!("process {pid} cannot be read")))
}

/// Why an area was not read to its end.
pub(super) enum Stop {
    /// Its `pagemap`.
    Read(io::Error),
    /// Else.
    Else(anyhow::Error),
}

/// The folios of an area.
fn folios(pagemap: &File, area: &Area, grain: Grain, frames: &mut Frames) -> Result<Folios, Stop> {
    let (first, end) = (area.line.start / grain.page, area.line.end / grain.page);
    let mut folding = Folding::new(grain);
    let mut page = first;
    while page < end {
        let words = words(pagemap, page, CHUNK.min(end - page)).map_err(Stop::Read)?;
        if words.is_empty() {
            // Its memory is gone.
            break;
        }
        add(&mut folding, page, &words, frames).map_err(Stop::Else)?;
        page += words.len() as u64;
    }
    let mut sum = folding.done();
    // These were read at another moment; bound them by the total.
    sum.anon.blocks = (area.anon_blocks / grain.page).min(sum.anon.total);
    sum.file.blocks = (area.file_blocks / grain.page).min(sum.file.total);
    Ok(sum)
}

/// Adds the pages from `page` on, whose words of `pagemap` these are, in runs that end with folios.
pub(super) fn add(
    folding: &mut Folding,
    page: u64,
    words: &[u64],
    frames: &mut Frames,
) -> Result<()> {
    let mut at = 0;
    while at < words.len() {
        let word = words[at];
        let frame = word & FRAME;
        if word & PRESENT == 0 {
            at += 1;
            continue;
        }
        if frame == 0 {
            return Err(needs_root());
        }
        let Some(folio) = frames.folio(frame)? else {
            at += 1;
            continue;
        };
        let most = (folio.head + folio.pages() - frame).min((words.len() - at) as u64);
        let goes_on = |more: &u64| {
            let next = words[at + *more as usize];
            next & PRESENT != 0 && next & FRAME == frame + more
        };
        let count = 1 + (1..most).take_while(goes_on).count() as u64;
        folding.add(Piece {
            page: page + at as u64,
            frame,
            count,
            head: folio.head,
            order: folio.order,
            anon: folio.anon,
            block: false,
            folded: false,
        });
        at += count as usize;
    }
    Ok(())
}
