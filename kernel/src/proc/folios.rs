//! Beyond Linux: which folio sizes each area got, and how they are mapped.
//!
//! A line for each area that holds something, then the sum, with the labels of Linux's `thpmaps`
//! (see [`quire_linux::text::Folios`], and the command `quire maps`, which prints the same):
//!
//! ```text
//!   7f0000200000-7f0000600000 rw-p  anon: 4096 kB  anon-thp-aligned-64kB: 1920 kB (47%)  …
//!   anon:                          4096 kB
//!   anon-thp-aligned-64kB:         1920 kB ( 47%)
//! ```
//!
//! `anon-folded` is what is in contiguous blocks, `anon-by-blocks` what larger leaves map.

use quire::engine::FrameUse;
use quire::space::{Area, AreaFlags};
use quire::table::{Seen, Sight};
use quire::units::{Order, Prot};
use quire_linux::Result;
use quire_linux::exec::Rights;
use quire_linux::files::{Caller, Text};
use quire_linux::text::{AreaLine, Folding, Folios, Grain, Piece};

use super::process::Subject;
use crate::memory::{Memory, PAGE, mm};

/// The label `cont-aligned` counts blocks of 64 KiB: what arm64 folds, and what other CPUs' TLBs
/// join by themselves.
const GRAIN: Grain = Grain { page: PAGE, cont: 64 << 10 };

/// `folios`.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn show(of: &Subject, _: &Caller<'_>, out: &mut Text) -> Result<()> {
    let Some(memory) = of.memory() else { return Ok(()) };
    let mut sum = Folios::default();
    for area in mm().areas(memory.space(), super::maps::all()) {
        let folios = folios(&memory, &area);
        if folios != Folios::default() {
            place(&area).print_short(out)?;
            folios.print_line(out, GRAIN)?;
            out.push(b"\n")?;
        }
        sum.add(&folios);
    }
    sum.print_table(out, GRAIN)
}

fn place(area: &Area) -> AreaLine<'static> {
    let has = |right| area.prot.contains(right);
    AreaLine {
        start: area.span.start.get() * PAGE,
        end: area.span.end.get() * PAGE,
        rights: Rights { read: has(Prot::READ), write: has(Prot::WRITE), execute: has(Prot::EXEC) },
        shared: area.flags.contains(AreaFlags::SHARED),
        offset: 0,
        device: (0, 0),
        inode: 0,
        name: b"",
    }
}

/// What an area has.
fn folios(memory: &Memory, area: &Area) -> Folios {
    let anon = !area.flags.contains(AreaFlags::SHARED);
    let mut folding = Folding::new(GRAIN);
    mm().runs(memory.space(), area.span, &mut |seen| add(&mut folding, seen, anon));
    folding.done()
}

/// Adds what is mapped alike, folio by folio.
fn add(folding: &mut Folding, seen: &Seen, anon: bool) {
    let Sight::Leaf { frame, folded, .. } = seen.what else { return };
    let mut done = 0;
    while done < seen.pages.count() {
        let (page, frame) = (seen.pages.start.add(done), frame.add(done));
        let left = seen.pages.count() - done;
        let (head, order) = match mm().frame_info(frame) {
            Some(info) if matches!(info.used, FrameUse::Folio(_)) => (info.head, info.order),
            _ => (frame, Order::new(0)),
        };
        let count = head.add(order.pages()).offset_from(frame).min(left);
        folding.add(Piece {
            page: page.get(),
            frame: frame.get(),
            count,
            head: head.get(),
            order: order.get(),
            anon,
            block: seen.leaf > Order::new(0),
            folded,
        });
        done += count;
    }
}
