//! `PAGEMAP_SCAN`: which pages of a program are in a state, by runs.

use quire::Shield;
use quire::arch::Attrs;
use quire::hw::Memory as _;
use quire::space::{Area, AreaFlags, Backing};
use quire::table::{MarkKind, Marks, Seen, Sight};
use quire::units::{PageSpan, Vpn};
use quire_linux::files::{Sink, Source};
use quire_linux::query::{Category, PageScan, Regions};
use quire_linux::{Errno, Result};
use zerocopy::IntoBytes;

use super::pagemap::{Piece, pieces_of};
use super::process::Subject;
use super::thp::BLOCK;
use crate::isa;
use crate::memory::{Memory, PAGE, PAGE_SHIFT, mm, reserved, user};

/// Regions of one batch.
const BATCH: u64 = 256;

/// Answers `PAGEMAP_SCAN`: how many regions there are.
///
/// # Errors
/// `EPERM` where an area does not allow its pages to be protected and the scan is to end then;
/// `ENOTTY` for other requests; `ENOMEM`; those of [`PageScan`].
pub(super) fn ask(
    of: &Subject,
    request: u32,
    input: &mut dyn Source,
    output: &mut dyn Sink,
) -> Result<u32> {
    if request != PageScan::REQUEST {
        return Err(Errno::ENOTTY);
    }
    let mut scan = PageScan::read(input, isa::USER_END, PAGE)?;
    let memory = of.memory().ok_or(Errno::ESRCH)?;
    let (mut at, mut told, mut pages) = (scan.start, 0, scan.most_pages());
    while at < scan.end {
        let room = if scan.vec == 0 { BATCH } else { BATCH.min(scan.vec_len - told) };
        let mut regions = Regions::new(&scan, room as usize, pages, PAGE)?;
        look(&memory, &scan, span(at, scan.end), &mut regions)?;
        for region in regions.found().iter().filter(|_| scan.protects()) {
            memory.write_protect(span(region.start, region.end), Shield::All)?;
        }
        if scan.vec != 0 {
            user::write_bytes(scan.vec + told * REGION, regions.found().as_bytes())?;
            told += regions.found().len() as u64;
        }
        (at, pages) = (regions.end().unwrap_or(scan.end), regions.pages());
        if pages == 0 || scan.vec != 0 && told == scan.vec_len {
            break;
        }
    }
    scan.walk_end = at;
    output.put(scan.as_bytes())?;
    Ok(told as u32)
}

/// Bytes of a region.
const REGION: u64 = 24;

fn span(start: u64, end: u64) -> PageSpan {
    PageSpan::new(Vpn::new(start / PAGE), Vpn::new(end / PAGE))
}

/// Adds to `regions` all runs of pages that areas have of `pages`, ascending; where matching pages
/// are to be protected, only of areas that allow it.
///
/// # Errors
/// `EPERM` for one that does not, where the scan is to end then.
fn look(
    memory: &Memory,
    scan: &PageScan,
    pages: PageSpan,
    regions: &mut Regions<'_>,
) -> Result<()> {
    for area in mm().spaces().areas(memory.space(), pages) {
        let may_protect = area.flags.contains(AreaFlags::WATCH_ASYNC);
        match may_protect {
            false if scan.must_protect() => return Err(Errno::EPERM),
            false if scan.protects() => {}
            _ => look_at(memory, scan, &area, area.span.intersect(pages), regions),
        }
    }
    Ok(())
}

/// The same for a part of one area.
fn look_at(
    memory: &Memory,
    scan: &PageScan,
    area: &Area,
    part: PageSpan,
    regions: &mut Regions<'_>,
) {
    let has = |is_so, what| if is_so { what } else { Category::empty() };
    let may_protect = area.flags.contains(AreaFlags::WATCH_ASYNC);
    let whole = reserved::of_area(area);
    regions.set_unit(whole.unwrap_or_default().bytes(PAGE_SHIFT));
    let all = has(may_protect, Category::MAY_PROTECT) | has(whole.is_some(), Category::HUGE);
    let mut add = |pages: PageSpan, what| {
        regions.add(pages.start.get() * PAGE, pages.end.get() * PAGE, all | what);
    };
    // In an area that is not tracked yet, all counts as written. So does a page that lost its
    // content together with its protection.
    let tracked = area.flags.contains(AreaFlags::TRACKED);
    let nothing = has(!tracked, Category::SOFT_DIRTY) | has(may_protect, Category::WRITTEN);
    let looks = scan.asks(Category::ZERO) && area.backing == Backing::Anon;
    let mut at = part.start;
    mm().spaces().runs(memory.space(), part, &mut |seen: &Seen| {
        add(PageSpan::new(at, seen.pages.start.max(at)), nothing);
        at = seen.pages.end;
        let written = has(quire::is_written(area, seen), Category::SOFT_DIRTY)
            | has(!quire::is_protected(seen), Category::WRITTEN);
        match seen.what {
            Sight::Marker(marks) => {
                // As on Linux, and in `pagemap`, a page that has no more than its protection
                // counts as swapped.
                let kept = has(quire::is_protected(seen), Category::SWAPPED);
                add(seen.pages, written | kept | marked(marks));
            }
            Sight::Leaf { .. } => pieces_of(seen, &mut |piece| {
                let what = Category::PRESENT
                    | has(piece.is_file, Category::FILE)
                    | has(piece.leaf >= BLOCK, Category::HUGE)
                    | has(piece.attrs.contains(Attrs::YOUNG), Category::ACCESSED);
                let what = written | what;
                match looks && !piece.is_file {
                    true => by_zeroes(piece, &mut |pages, zero| add(pages, what | zero)),
                    false => add(piece.pages, what),
                }
            }),
        }
    });
    add(PageSpan::new(at, part.end.max(at)), nothing);
}

/// Tells the runs of pages that hold nothing but zeroes, and those between them. Linux has one page
/// of zeroes, which it shows where a program reads what no program wrote; here such a read gets a
/// page of its own. A program that saves memory (CRIU) can leave out both.
fn by_zeroes(piece: &Piece, tell: &mut impl FnMut(PageSpan, Category)) {
    const WORDS: usize = PAGE as usize / 8;
    let page = |at: u64| mm().hardware().count_run(piece.frame.add(at), 0, WORDS, 0, 0) == WORDS;
    let (start, count) = (piece.pages.start, piece.pages.count());
    let mut at = 0;
    while at < count {
        let is_zero = page(at);
        let end = (at + 1..count).find(|&next| page(next) != is_zero).unwrap_or(count);
        let what = if is_zero { Category::ZERO } else { Category::empty() };
        tell(PageSpan::new(start.add(at), start.add(end)), what);
        at = end;
    }
}

/// The category of a page with a marker.
fn marked(marks: Marks) -> Category {
    match marks.kind() {
        Some(MarkKind::Swap) => Category::SWAPPED,
        Some(MarkKind::Watched) | None => Category::empty(),
        Some(MarkKind::Guard | MarkKind::Poison) => Category::GUARD,
    }
}
