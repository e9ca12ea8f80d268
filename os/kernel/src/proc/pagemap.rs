//! A program's pages: their frames, owners and flags.

use quire::FrameUse;
use quire::arch::Attrs;
use quire::cache::Store;
use quire::space::AreaFlags;
use quire::swap::SwapEntry;
use quire::table::{Seen, Sight};
use quire::units::{Order, PageSpan, Pfn, Vpn};
use quire_linux::files::Sink;
use quire_linux::{Errno, Result};
use zerocopy::IntoBytes;

use super::process::Subject;
use crate::isa;
use crate::memory::{Memory, PAGE, mm};

/// Pages of one folio that are mapped side by side.
pub(super) struct Piece {
    pub(super) pages: PageSpan,
    pub(super) frame: Pfn,
    pub(super) attrs: Attrs,
    /// The size of the leaves that map them.
    pub(super) leaf: Order,
    /// Whether these are in contiguous blocks.
    pub(super) folded: bool,
    /// How many pages its folio has, and how often these are mapped in all spaces.
    pub(super) folio: (u64, u64),
    /// They are a file's (or shared memory's, which has one behind it), and no copies of its pages.
    pub(super) is_file: bool,
}

impl Piece {
    /// How many pages.
    pub(super) fn count(&self) -> u64 {
        self.pages.count()
    }

    /// Whether others map the folio as well. The library counts mappings for a folio as a whole: so
    /// it counts as shared in all parts when it is mapped more often than it has pages.
    pub(super) fn is_shared(&self) -> bool {
        self.folio.1 > self.folio.0
    }

    /// Its bytes, divided by how often a page of the folio is mapped on average.
    pub(super) fn share_bytes(&self) -> u64 {
        let (pages, mapped) = self.folio;
        self.count() * PAGE * pages / mapped.max(pages)
    }
}

/// Visits all mapped pages in `span`, folio by folio.
pub(super) fn pieces(memory: &Memory, span: PageSpan, tell: &mut dyn FnMut(&Piece)) {
    mm().spaces().runs(memory.space(), span, &mut |seen: &Seen| pieces_of(seen, tell));
}

/// Visits the mapped pages of a run, folio by folio.
pub(super) fn pieces_of(seen: &Seen, tell: &mut dyn FnMut(&Piece)) {
    let Sight::Leaf { frame, attrs, folded } = seen.what else { return };
    let (mut page, mut frame) = (seen.pages.start, frame);
    while page < seen.pages.end {
        let left = seen.pages.end.offset_from(page);
        let At { count, folio, is_file } = folio_at(frame, left, attrs);
        let pages = PageSpan::new(page, page.add(count));
        tell(&Piece { pages, frame, attrs, leaf: seen.leaf, folded, folio, is_file });
        (page, frame) = (page.add(count), frame.add(count));
    }
}

/// The folio at a frame.
struct At {
    /// How many frames from there on belong to its folio.
    count: u64,
    /// See [`Piece`].
    folio: (u64, u64),
    is_file: bool,
}

/// The folio at `frame`, as far as `left` frames go.
fn folio_at(frame: Pfn, left: u64, attrs: Attrs) -> At {
    let unknown = |count| At { count, folio: (1, 1), is_file: false };
    let Some(info) = mm().frame_info(frame) else { return unknown(left) };
    let FrameUse::Folio(counts) = info.used else { return unknown(1) };
    // A folio with a copy on a swap device is no file's.
    let is_file = matches!(info.store, Some(store) if store != Store::Swap);
    let pages = info.order.pages();
    let count = info.head.add(pages).offset_from(frame).min(left);
    // An exclusive page needs no map count, which may lag behind the tables; a file's page may be
    // written without being exclusive.
    let is_counted = is_file || attrs.contains(Attrs::COW);
    let mapped = if is_counted { counts.mapped.into() } else { pages };
    At { count, folio: (pages, mapped), is_file }
}

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const SHARED_OR_FILE: u64 = 1 << 61;
const GUARD: u64 = 1 << 58;
const EXCLUSIVE: u64 = 1 << 56;
const WRITTEN: u64 = 1 << 55;
/// A watcher is told before it is written.
const PROTECTED: u64 = 1 << 57;
const FRAME: u64 = (1 << 55) - 1;

/// Words of one batch.
const CHUNK: usize = 256;
/// The most bytes of one read; a larger one gets fewer, and goes on.
const READ_MOST: usize = 16 << 20;

/// `pagemap`: a word for each page.
///
/// # Errors
/// `EINVAL` for a part of a word; `EFAULT`.
pub(super) fn read(of: &Subject, offset: u64, count: usize, sink: &mut dyn Sink) -> Result<usize> {
    if !offset.is_multiple_of(8) || !count.is_multiple_of(8) {
        return Err(Errno::EINVAL);
    }
    let Some(memory) = of.memory() else { return Ok(0) };
    let first = offset / 8;
    let end = (isa::USER_END / PAGE).min(first.saturating_add(count.min(READ_MOST) as u64 / 8));
    let mut at = first;
    while at < end {
        let pages = PageSpan::new(Vpn::new(at), Vpn::new(end.min(at + CHUNK as u64)));
        let words = words(&memory, pages);
        let bytes = &words.as_bytes()[..8 * pages.count() as usize];
        match sink.put(bytes) {
            Ok(()) => at = pages.end.get(),
            Err(error) if at == first => return Err(error),
            Err(_) => break,
        }
    }
    Ok(8 * at.saturating_sub(first) as usize)
}

/// The words of at most [`CHUNK`] pages.
fn words(memory: &Memory, pages: PageSpan) -> [u64; CHUNK] {
    let mut words = [0; CHUNK];
    let slots = |words: &mut [u64; CHUNK], span: PageSpan, word: &dyn Fn(u64) -> u64| {
        let start = span.start.offset_from(pages.start) as usize;
        let slots = words.iter_mut().skip(start).take(span.count() as usize);
        slots.enumerate().for_each(|(at, slot)| *slot |= word(at as u64));
    };
    pieces(memory, pages, &mut |piece| {
        let own = if piece.is_shared() { 0 } else { EXCLUSIVE };
        let frame = piece.frame.get();
        let file = if piece.is_file { SHARED_OR_FILE } else { 0 };
        slots(&mut words, piece.pages, &|at| PRESENT | own | file | (frame + at) & FRAME);
    });
    mm().spaces().runs(memory.space(), pages, &mut |seen| {
        let is_protected = quire::is_protected(seen);
        if is_protected {
            slots(&mut words, seen.pages, &|_| PROTECTED);
        }
        if let Sight::Marker(marks) = seen.what {
            // The first payload is that of the leaf's first page, which may lie before these.
            let start = seen.pages.start;
            let ahead = start.offset_from(start.align_down(seen.leaf.pages()));
            slots(&mut words, seen.pages, &|at| marked(marks.first + ahead + at, is_protected));
        }
    });
    for area in mm().spaces().areas(memory.space(), pages) {
        let part = area.span.intersect(pages);
        if !area.flags.contains(AreaFlags::TRACKED) {
            slots(&mut words, part, &|_| WRITTEN);
            continue;
        }
        mm().spaces().runs(memory.space(), part, &mut |seen| {
            let written = quire::is_written(&area, seen);
            slots(&mut words, seen.pages, &|_| if written { WRITTEN } else { 0 });
        });
    }
    words
}

/// The word of a page that has a marker. On swap: the device in bits 0 to 4, where on the disk in
/// bits 5 to 54.
fn marked(payload: u64, is_protected: bool) -> u64 {
    match SwapEntry::of(payload) {
        Some(entry) => SWAPPED | (entry.slot + 1) << 5 | u64::from(entry.device),
        // As on Linux, a page that has no more than its protection counts as swapped.
        None if is_protected => SWAPPED,
        None => GUARD,
    }
}

/// How many pages of `span` are on swap devices.
pub(super) fn swapped(memory: &Memory, span: PageSpan) -> u64 {
    let mut pages = 0;
    mm().spaces().runs(memory.space(), span, &mut |seen| {
        if let Sight::Marker(marks) = seen.what
            && SwapEntry::of(marks.first).is_some()
        {
            pages += seen.pages.count();
        }
    });
    pages
}
