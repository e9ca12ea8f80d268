//! A program's areas, and their names.

use alloc::sync::Arc;
use alloc::vec::Vec;

use linux_raw_sys::general as abi;
use quire::space::{Area, AreaFlags, Backing};
use quire::units::{PageSpan, Prot, Vpn};
use quire_linux::exec::Rights;
use quire_linux::files::{Caller, Description, Sink, Source, Text};
use quire_linux::query::AreaQuery;
use quire_linux::text::AreaLine;
use quire_linux::{Errno, Result};

use super::process::Subject;
use super::table::copied;
use crate::isa;
use crate::memory::{Break, Memory, PAGE, mm, reserved, user, vdso};

/// All pages that a program may map.
pub(super) fn all() -> PageSpan {
    PageSpan::new(Vpn::new(0), Vpn::new(isa::USER_END / PAGE))
}

/// The names of a program's areas.
pub(super) struct Names {
    heap: Break,
    path: Vec<u8>,
    /// The bytes of its segments.
    image: core::ops::Range<u64>,
    /// The top of its stack.
    stack: u64,
}

impl Names {
    /// The names in the memory of `subject`.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn of(subject: &Subject, memory: &Memory) -> Result<Self> {
        let heap = *memory.heap.lock();
        let program = subject.process.program.lock();
        Ok(Self {
            heap,
            path: copied(&program.path)?,
            image: program.image.clone(),
            stack: program.stack,
        })
    }

    /// The name of an area that shows no file that has one; empty when it has none.
    fn name(&self, area: &Area) -> &[u8] {
        let (start, end) = (area.span.start.get() * PAGE, area.span.end.get() * PAGE);
        let overlaps = |range: &core::ops::Range<u64>| start < range.end && range.start < end;
        if let Some(name) = vdso::name(area) {
            name
        } else if overlaps(&self.image) {
            &self.path
        } else if overlaps(&(self.heap.start..self.heap.end)) {
            b"[heap]"
        } else if start < self.stack && self.stack <= end {
            b"[stack]"
        } else if reserved::of_area(area).is_some() {
            b"/anon_hugepage (deleted)"
        } else if area.flags.contains(AreaFlags::SHARED) {
            // As Linux calls shared memory that has no name.
            b"/dev/zero (deleted)"
        } else {
            b""
        }
    }

    /// Does something with the line of an area.
    ///
    /// # Errors
    /// `ENOMEM`, and what `action` says.
    fn line<T>(
        &self,
        memory: &Memory,
        area: &Area,
        action: impl FnOnce(&AreaLine<'_>) -> Result<T>,
    ) -> Result<T> {
        let (offset, file) = match area.backing {
            Backing::Anon => (0, None),
            Backing::File { id, page } => (page * PAGE, open_file(memory, id.0)),
            Backing::Frames { .. } if vdso::name(area).is_some() => (0, None),
            Backing::Frames { first, .. } => (first.get() * PAGE, None),
        };
        let path = file.as_ref().map(|file| file.path()).transpose()?;
        let (volume, inode) = match (&file, area.backing) {
            (Some(file), _) => (file.node().volume(), file.node().inode()),
            (None, Backing::File { id, .. }) => (0, u64::from(id.0)),
            (None, Backing::Anon | Backing::Frames { .. }) => (0, 0),
        };
        action(&AreaLine {
            start: area.span.start.get() * PAGE,
            end: area.span.end.get() * PAGE,
            rights: rights(area.prot),
            shared: is_shared(area),
            offset,
            device: (0, volume),
            inode,
            name: path.as_deref().unwrap_or_else(|| self.name(area)),
        })
    }

    /// Prints the line of an area.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn print(&self, memory: &Memory, area: &Area, out: &mut Text) -> Result<()> {
        self.line(memory, area, |line| line.print(out))
    }
}

/// Whether an area is shown as shared. All programs share the vDSO; to each it looks like its own.
pub(super) fn is_shared(area: &Area) -> bool {
    area.flags.contains(AreaFlags::SHARED) && vdso::name(area).is_none()
}

/// The file `id` as it was opened to be mapped; shared anonymous memory never was.
fn open_file(memory: &Memory, id: u32) -> Option<Arc<Description>> {
    memory.keeper(id)?.downcast().ok()
}

fn rights(prot: Prot) -> Rights {
    let has = |bit: u32| u32::from(prot.bits()) & bit != 0;
    Rights { read: has(abi::PROT_READ), write: has(abi::PROT_WRITE), execute: has(abi::PROT_EXEC) }
}

/// Does something for each area of a subject, in ascending order; nothing when it has ended.
///
/// # Errors
/// The errors of `action`, and `ENOMEM`.
pub(super) fn each(
    of: &Subject,
    mut action: impl FnMut(&Memory, &Names, &Area) -> Result<()>,
) -> Result<()> {
    let Some(memory) = of.memory() else { return Ok(()) };
    let names = Names::of(of, &memory)?;
    mm().spaces().areas(memory.space(), all()).try_for_each(|area| action(&memory, &names, &area))
}

/// `maps`.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn show(of: &Subject, _: &Caller<'_>, out: &mut Text) -> Result<()> {
    each(of, |memory, names, area| names.print(memory, area, out))
}

/// `PROCMAP_QUERY`: the facts about one area.
///
/// # Errors
/// `ENOENT` when there is none that is meant, `ESRCH` when the process has ended, `ENOTTY` for
/// other requests, and those of [`AreaQuery`].
pub(super) fn ask(
    of: &Subject,
    request: u32,
    input: &mut dyn Source,
    output: &mut dyn Sink,
) -> Result<u32> {
    if request != AreaQuery::REQUEST {
        return Err(Errno::ENOTTY);
    }
    let mut query = AreaQuery::read(input)?;
    let memory = of.memory().ok_or(Errno::ESRCH)?;
    let names = Names::of(of, &memory)?;
    let from = Vpn::new(query.address() / PAGE).min(all().end);
    for area in mm().spaces().areas(memory.space(), PageSpan::new(from, all().end)) {
        let is_it = names.line(&memory, &area, |line| {
            let is_meant = query.is_meant(line)?;
            if is_meant && let Some(address) = query.answer(line, PAGE)? {
                user::write_bytes(address, line.name)?;
                user::write_bytes(address + line.name.len() as u64, &[0])?;
            }
            Ok(is_meant)
        })?;
        if is_it {
            output.put(query.bytes())?;
            return Ok(0);
        }
    }
    Err(Errno::ENOENT)
}
