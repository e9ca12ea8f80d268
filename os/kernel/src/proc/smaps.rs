//! Memory use of each area of a program.

use quire::arch::Attrs;
use quire::cache::{FilePages, Store};
use quire::space::{Advice, Area, AreaFlags, Backing};
use quire::units::{Order, OrderSet, Prot};
use quire_linux::Result;
use quire_linux::exec::Rights;
use quire_linux::files::{Caller, Text};
use quire_linux::text::{AreaLine, Held};

use super::maps;
use super::pagemap::{Piece, pieces};
use super::process::Subject;
use super::thp::BLOCK;
use crate::memory::{Memory, PAGE, PAGE_SHIFT, mm, reserved};

/// `smaps`.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn show(of: &Subject, _: &Caller<'_>, out: &mut Text) -> Result<()> {
    maps::each(of, |memory, names, area| {
        names.print(memory, area, out)?;
        let bytes = area.span.count() * PAGE;
        let page = reserved::of_area(area).map_or(PAGE, |order| order.bytes(PAGE_SHIFT));
        held(memory, area).print(out, bytes, page, is_eligible(memory, area), flags(memory, area))
    })
}

/// `smaps_rollup`.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn show_rollup(of: &Subject, _: &Caller<'_>, out: &mut Text) -> Result<()> {
    let mut sum = Held::default();
    let mut ends: Option<(u64, u64)> = None;
    maps::each(of, |memory, _, area| {
        sum = sum.and(&held(memory, area));
        let (start, end) = (area.span.start.get() * PAGE, area.span.end.get() * PAGE);
        ends = Some((ends.map_or(start, |(first, _)| first), end));
        Ok(())
    })?;
    let Some((start, end)) = ends else { return Ok(()) };
    let rights = Rights { read: false, write: false, execute: false };
    let (device, name) = ((0, 0), &b"[rollup]"[..]);
    AreaLine { start, end, rights, shared: false, offset: 0, device, inode: 0, name }.print(out)?;
    sum.print_rollup(out)
}

/// The memory use of an area.
fn held(memory: &Memory, area: &Area) -> Held {
    let mut sum = Held::default();
    if reserved::of_area(area).is_some() {
        pieces(memory, area.span, &mut |piece| sum = sum.and(&reserved_by(piece)));
        return sum;
    }
    let is_memory = is_of_memory(area);
    pieces(memory, area.span, &mut |piece| sum = sum.and(&held_by(piece, area, is_memory)));
    sum.swap = (super::pagemap::swapped(memory, area.span) + away(area)) * PAGE;
    sum.lazy_free = mm().spaces().lazily_free(memory.space(), area.span) * PAGE;
    sum
}

/// How many pages of the file in memory that an area shows are on swap devices.
fn away(area: &Area) -> u64 {
    let Backing::File { id, page } = area.backing else { return 0 };
    mm().paging().away(id, FilePages::new(page, page + area.span.count()))
}

/// Whether an area shows a file in memory, or shared memory.
fn is_of_memory(area: &Area) -> bool {
    match area.backing {
        Backing::File { id, .. } => {
            mm().files().get(id).is_some_and(|file| file.store() == Some(Store::Memory))
        }
        Backing::Anon | Backing::Frames { .. } => false,
    }
}

/// The memory use of one piece of an area of reserved folios, which count as nothing else.
fn reserved_by(piece: &Piece) -> Held {
    let bytes = piece.count() * PAGE;
    match piece.is_shared() {
        true => Held { shared_reserved: bytes, ..Held::default() },
        false => Held { private_reserved: bytes, ..Held::default() },
    }
}

/// The memory use of one piece of an area. `is_memory`: its file, if it has one, is in memory.
fn held_by(piece: &Piece, area: &Area, is_memory: bool) -> Held {
    let bytes = piece.count() * PAGE;
    let pss = piece.share_bytes();
    let when = |condition: bool, amount: u64| if condition { amount } else { 0 };
    let (shmem, file) = (piece.is_file && is_memory, piece.is_file && !is_memory);
    let anon = !piece.is_file;
    // Pages of a file in memory have no copy elsewhere.
    let dirty = shmem || piece.attrs.contains(Attrs::DIRTY);
    let others = piece.is_shared();
    let huge = piece.leaf >= BLOCK;
    Held {
        rss: bytes,
        pss,
        pss_dirty: when(dirty, pss),
        pss_anon: when(anon, pss),
        pss_file: when(file, pss),
        pss_shmem: when(shmem, pss),
        shared_clean: when(others && !dirty, bytes),
        shared_dirty: when(others && dirty, bytes),
        private_clean: when(!others && !dirty, bytes),
        private_dirty: when(!others && dirty, bytes),
        referenced: when(piece.attrs.contains(Attrs::YOUNG), bytes),
        anonymous: when(anon, bytes),
        anon_huge: when(huge && anon, bytes),
        shmem_huge: when(huge && shmem, bytes),
        file_huge: when(huge && file, bytes),
        locked: when(area.flags.contains(AreaFlags::LOCKED), pss),
        ..Held::default()
    }
}

/// Whether a fault in the area might get a large folio: the policy allows a size, and an aligned
/// block of it lies within.
fn is_eligible(memory: &Memory, area: &Area) -> bool {
    if reserved::of_area(area).is_some() {
        return false;
    }
    let advice = Advice::of(area.flags);
    let allowed = mm().policy().candidates(advice, memory.space().opt_out());
    let fits = |order: Order| {
        let size = order.pages();
        let start = area.span.start.align_up(size);
        start.is_some_and(|start| start.get() + size <= area.span.end.get())
    };
    (allowed & OrderSet::up_to(BLOCK)).descending(Order::new(1)).any(fits)
}

/// The words of `VmFlags`, in Linux's order.
fn flags(memory: &Memory, area: &Area) -> impl Iterator<Item = &'static str> {
    let has = |flag| area.flags.contains(flag);
    let (may, shared) = (area.max_prot, maps::is_shared(area));
    // Counted as committed memory: private and writable.
    let counted = area.prot.contains(Prot::WRITE) && !shared && !has(AreaFlags::NORESERVE);
    [
        (area.prot.contains(Prot::READ), "rd"),
        (area.prot.contains(Prot::WRITE), "wr"),
        (area.prot.contains(Prot::EXEC), "ex"),
        (shared, "sh"),
        (may.contains(Prot::READ), "mr"),
        (may.contains(Prot::WRITE), "mw"),
        (may.contains(Prot::EXEC), "me"),
        (shared, "ms"),
        (has(AreaFlags::GROWS_DOWN), "gd"),
        (has(AreaFlags::LOCKED), "lo"),
        (has(AreaFlags::SEQUENTIAL), "sr"),
        (has(AreaFlags::RANDOM), "rr"),
        (has(AreaFlags::DONTFORK), "dc"),
        (has(AreaFlags::LOCK_ON_FAULT), "lf"),
        (counted, "ac"),
        (has(AreaFlags::NORESERVE), "nr"),
        (reserved::of_area(area).is_some(), "ht"),
        (has(AreaFlags::WIPEONFORK), "wf"),
        (has(AreaFlags::DONTDUMP), "dd"),
        (!has(AreaFlags::TRACKED), "sd"),
        (has(AreaFlags::WATCH_MISSING), "um"),
        (has(AreaFlags::WATCH_MINOR), "ui"),
        (has(AreaFlags::HUGE), "hg"),
        (has(AreaFlags::NOHUGE), "nh"),
        // There is no count: an area may have some where its process has ever made any.
        (memory.has_guards(), "gu"),
    ]
    .into_iter()
    .filter(|(on, _)| *on)
    .map(|(_, word)| word)
}
