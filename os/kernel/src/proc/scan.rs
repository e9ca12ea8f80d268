//! `PAGEMAP_SCAN`: which pages of a program are in a state, by runs.

use quire::arch::Attrs;
use quire::space::AreaFlags;
use quire::swap::SwapEntry;
use quire::table::{Seen, Sight};
use quire::units::{PageSpan, Vpn};
use quire_linux::files::{Sink, Source};
use quire_linux::query::{Category, PageScan, Regions};
use quire_linux::{Errno, Result};
use zerocopy::IntoBytes;

use super::pagemap::pieces_of;
use super::process::Subject;
use super::thp::BLOCK;
use crate::isa;
use crate::memory::{Memory, PAGE, mm, user};

/// Regions of one batch.
const BATCH: u64 = 256;

/// Answers `PAGEMAP_SCAN`: how many regions there are.
///
/// # Errors
/// `EPERM` when pages are to be protected or the scan to end, since none can be; `ENOTTY` for other
/// requests; `ENOMEM`; those of [`PageScan`].
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
    if scan.must_protect()
        && mm().spaces().areas(memory.space(), span(at, scan.end)).next().is_some()
    {
        return Err(Errno::EPERM);
    }
    while at < scan.end {
        let room = BATCH.min(scan.vec_len - told) as usize;
        let mut regions = Regions::new(&scan, room, pages, PAGE)?;
        look(&memory, span(at, scan.end), &mut regions);
        user::write_bytes(scan.vec + told * REGION, regions.found().as_bytes())?;
        told += regions.found().len() as u64;
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

/// Adds to `regions` all runs of pages that areas have of `pages`, ascending.
fn look(memory: &Memory, pages: PageSpan, regions: &mut Regions<'_>) {
    let mut add = |pages: PageSpan, what| {
        regions.add(pages.start.get() * PAGE, pages.end.get() * PAGE, what);
    };
    for area in mm().spaces().areas(memory.space(), pages) {
        let part = area.span.intersect(pages);
        let tracked = area.flags.contains(AreaFlags::TRACKED);
        // In an area that is not tracked yet, all counts as written.
        let nothing = if tracked { Category::empty() } else { Category::SOFT_DIRTY };
        let mut at = part.start;
        mm().spaces().runs(memory.space(), part, &mut |seen: &Seen| {
            add(PageSpan::new(at, seen.pages.start.max(at)), nothing);
            at = seen.pages.end;
            let dirty = match quire::is_written(&area, seen) {
                true => Category::SOFT_DIRTY,
                false => Category::empty(),
            };
            match seen.what {
                Sight::Marker(marks) => add(seen.pages, dirty | marked(marks.first)),
                Sight::Leaf { .. } => pieces_of(seen, &mut |piece| {
                    let has = |is_so, what| if is_so { what } else { Category::empty() };
                    let what = Category::PRESENT
                        | Category::WRITTEN
                        | has(piece.is_file, Category::FILE)
                        | has(piece.leaf >= BLOCK, Category::HUGE)
                        | has(piece.attrs.contains(Attrs::YOUNG), Category::ACCESSED);
                    add(piece.pages, dirty | what);
                }),
            }
        });
        add(PageSpan::new(at, part.end.max(at)), nothing);
    }
}

/// The category of a page with a marker.
fn marked(payload: u64) -> Category {
    match SwapEntry::of(payload) {
        Some(_) => Category::SWAPPED | Category::WRITTEN,
        None => Category::GUARD,
    }
}
