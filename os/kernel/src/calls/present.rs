//! `mincore` and `msync`: pages that are in memory, and pages that are to be on their disk.

use linux_raw_sys::general as abi;
use quire::arch::Attrs;
use quire::cache::FilePages;
use quire::space::{Area, AreaFlags, Backing};
use quire::table::Sight;
use quire::units::{PageSpan, Prot};
use quire_linux::Errno;
use quire_linux::files::Description;

use super::memory::{is_aligned, own, reach, span};
use crate::isa;
use crate::memory::{Memory, PAGE, mm, user};
use crate::task::tree::with_calls;
use crate::task::{Answer, Thread};

/// Tells of the pages before a hole, too.
pub(super) fn mincore(_: &mut Thread, [address, bytes, out, ..]: [usize; 6]) -> Answer {
    if !is_aligned(address) {
        return Err(Errno::EINVAL.into());
    }
    let span = span(address, bytes).ok_or(Errno::ENOMEM)?;
    let room = (out as u64).checked_add(span.count());
    room.filter(|end| *end <= isa::USER_END).ok_or(Errno::EFAULT)?;
    let memory = own()?;
    let hole = mm().spaces().first_hole(memory.space(), span);
    let end = hole.unwrap_or(span.end);
    let mut at = span.start;
    while at < end {
        let piece = PageSpan::new(at, at.add(256).min(end));
        let mut present = [0_u8; 256];
        mm().spaces().runs(memory.space(), piece, &mut |seen| {
            if matches!(seen.what, Sight::Leaf { .. }) {
                let from = seen.pages.start.offset_from(at) as usize;
                present[from..from + seen.pages.count() as usize].fill(1);
            }
        });
        add_cached(&memory, piece, &mut present);
        let place = out as u64 + at.offset_from(span.start);
        user::write_bytes(place, &present[..piece.count() as usize])?;
        at = piece.end;
    }
    if hole.is_some() { Err(Errno::ENOMEM.into()) } else { Ok(0) }
}

/// Marks the pages of `piece` that are in memory for another process: those of its file.
fn add_cached(memory: &Memory, piece: PageSpan, present: &mut [u8]) {
    for area in mm().spaces().areas(memory.space(), piece) {
        let part = area.span.intersect(piece);
        let Backing::File { id, page } = area.backing_of(part.start) else { continue };
        let end = page + part.count();
        let mut next = page;
        while let Ok(Some(found)) = mm().files().next_cached(id, FilePages::new(next, end)) {
            // A folio may begin before the part.
            let start = found.start.max(next);
            let from = part.start.offset_from(piece.start) as usize + (start - page) as usize;
            let count = found.end.min(end).saturating_sub(start) as usize;
            present[from..from + count].fill(1);
            next = found.end;
            if next >= end {
                break;
            }
        }
    }
}

/// There is nothing to write back: files in memory have no disk, and those of disks are only read.
/// Files that were written through an area get the time of that.
pub(super) fn msync(thread: &mut Thread, [address, bytes, flags, ..]: [usize; 6]) -> Answer {
    let known = abi::MS_ASYNC | abi::MS_INVALIDATE | abi::MS_SYNC;
    let both = (abi::MS_ASYNC | abi::MS_SYNC) as usize;
    if flags & !(known as usize) != 0 || flags & both == both || !is_aligned(address) {
        return Err(Errno::EINVAL.into());
    }
    // As on Linux, a length that wraps round when it is rounded up is none.
    let bytes = if bytes as u64 > u64::MAX - (PAGE - 1) { 0 } else { bytes };
    let span = reach(address, bytes).ok_or(Errno::ENOMEM)?;
    let memory = own()?;
    let mut next = span.start;
    let mut has_hole = false;
    for area in mm().spaces().areas(memory.space(), span) {
        has_hole |= area.span.start > next;
        if has_hole && flags == abi::MS_ASYNC as usize {
            break;
        }
        if flags & abi::MS_INVALIDATE as usize != 0 && area.flags.contains(AreaFlags::LOCKED) {
            return Err(Errno::EBUSY.into());
        }
        note_change(thread, &memory, &area, area.span.intersect(span));
        next = area.span.end;
    }
    if has_hole || next < span.end { Err(Errno::ENOMEM.into()) } else { Ok(0) }
}

/// Notes at a file that `part` of an area has written it, if so.
fn note_change(thread: &Thread, memory: &Memory, area: &Area, part: PageSpan) {
    let Backing::File { id, .. } = area.backing else { return };
    if !area.flags.contains(AreaFlags::SHARED) || !area.max_prot.contains(Prot::WRITE) {
        return;
    }
    let mut is_written = false;
    mm().spaces().runs(memory.space(), part, &mut |seen| {
        is_written |=
            matches!(seen.what, Sight::Leaf { attrs, .. } if attrs.contains(Attrs::DIRTY));
    });
    let keeper = memory.keeper(id.0).filter(|_| is_written);
    if let Some(Ok(open)) = keeper.map(|keeper| keeper.downcast::<Description>()) {
        with_calls(thread, |calls| open.note_change(calls.who));
    }
}
