//! `madvise` and `prctl` on the files that areas show: they make large folios of pages, or holes,
//! and set the preferred read sizes.

use linux_raw_sys::general as abi;
use quire::arch::Arch;
use quire::cache::FilePages;
use quire::space::{Area, AreaFlags, Backing, Space};
use quire::table::{MarkKind, Marks, Sight};
use quire::units::{Order, PageSpan, Prot};
use quire::{Collapsed, Error, Stop};
use quire_linux::files::{Body, Description};
use quire_linux::{Errno, Result};

use super::memory::{own, pages};
use super::swap;
use crate::isa;
use crate::memory::{Everyone, Memory, errno, mm, relieve};
use crate::task::{Answer, Thread};

/// Makes what an area shows of a file in memory a hole.
pub(super) fn remove(memory: &Memory, area: &Area, part: PageSpan) -> Result<()> {
    let Backing::File { id, page } = area.backing_of(part.start) else {
        return Err(Errno::EINVAL);
    };
    if area.flags.contains(AreaFlags::LOCKED) {
        return Err(Errno::EINVAL);
    }
    if !area.flags.contains(AreaFlags::SHARED) || !area.max_prot.contains(Prot::WRITE) {
        return Err(Errno::EACCES);
    }
    // The seals of a file that has none yet cannot be against this: it may be written.
    let keeper = memory.keeper(id.0).and_then(|keeper| keeper.downcast::<Description>().ok());
    if let Some(Body::File(data)) = keeper.as_ref().map(|open| open.node().body())
        && data.seals() & (abi::F_SEAL_WRITE | abi::F_SEAL_FUTURE_WRITE) != 0
    {
        return Err(Errno::EPERM);
    }
    let pages = FilePages::new(page, page + part.count());
    mm().files().punch(id, pages, &Everyone).map_err(|error| match error {
        Error::Invalid => Errno::EOPNOTSUPP,
        other => errno(other),
    })
}

/// Collapses each 2 MiB of `span`, and what it shows of files into the largest folios that fit,
/// smaller ones as well. Missing pages are read first.
pub(super) fn collapse(thread: &Thread, memory: &Memory, span: PageSpan) -> Answer {
    if let Some(_hole) = mm().spaces().first_hole(memory.space(), span) {
        return Err(Errno::ENOMEM.into());
    }
    let collapsed = swap::with_pages(thread, || collapse_all(memory, span))?;
    match collapsed.errno() {
        Some(why) => Err(Errno::of_number(why.0 as u16).into()),
        None => Ok(0),
    }
}

fn collapse_all(memory: &Memory, span: PageSpan) -> core::result::Result<Collapsed, Stop> {
    let (space, block) = (memory.space(), isa::Format::block_order());
    if !memory.shows_files(span) {
        return collapse_anon(space, span, block);
    }
    let mut done = Collapsed::default();
    for area in mm().spaces().areas(space, span) {
        let part = area.span.intersect(span);
        let more = match area.backing {
            Backing::Anon | Backing::Frames { .. } => collapse_anon(space, part, block),
            Backing::File { .. } => mm().reclaim().collapse_file(space, part, &Everyone),
        };
        done = done.and(more?);
    }
    Ok(done)
}

/// Collapses anonymous memory, after its pages on swap devices are back; a group without room for
/// the zero-filled pages makes some.
fn collapse_anon(
    space: &Space<isa::Format>,
    span: PageSpan,
    block: Order,
) -> core::result::Result<Collapsed, Stop> {
    let mut at = span.start;
    while at < span.end {
        let end = at.align_down(block.pages()).add(block.pages()).min(span.end);
        bring_back(space, PageSpan::new(at, end))?;
        at = end;
    }
    let done = match mm().reclaim().collapse(space, span, block) {
        Err(Error::OverLimit(group)) if relieve(group) => {
            mm().reclaim().collapse(space, span, block)
        }
        done => done,
    };
    Ok(done?)
}

/// Brings back the pages of a block that are on swap devices. A page that cannot come stays there,
/// and the block stays as it is.
///
/// # Errors
/// [`Stop::Need`] when it must be read first.
fn bring_back(space: &Space<isa::Format>, block: PageSpan) -> core::result::Result<(), Stop> {
    let mut left = block;
    while !left.is_empty() {
        let mut first = None;
        mm().spaces().runs(space, left, &mut |seen| {
            let swapped = |marks: Marks| marks.kind() == Some(MarkKind::Swap);
            if matches!(seen.what, Sight::Marker(marks) if swapped(marks)) {
                first.get_or_insert(seen.pages);
            }
        });
        let Some(pages) = first else { break };
        if let Err(why @ Stop::Need(_)) = mm().populate(space, pages) {
            return Err(why);
        }
        left = PageSpan::new(pages.end, left.end);
    }
    Ok(())
}

/// `PR_SET_VMA` with an operation of our own: the preferred folio size for reads of the files that
/// areas show, as a power of two of base pages (0: the system's choice). Beyond Linux.
pub(super) fn prefer(address: usize, bytes: usize, order: usize) -> Answer {
    let span = pages(address, bytes)?;
    let order = u8::try_from(order).map_err(|_| Errno::EINVAL)?;
    let order = (order > 0).then(|| Order::new(order));
    if !span.is_empty() {
        mm().spaces().set_read_order(own()?.space(), span, order).map_err(errno)?;
    }
    Ok(0)
}
