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

use quire::arch::Attrs;
use quire::space::{Area, AreaFlags, Backing};
use quire::units::{Order, Prot};
use quire_linux::Result;
use quire_linux::exec::Rights;
use quire_linux::files::{Caller, Text};
use quire_linux::text::{self, AreaLine, Folding, Folios, Grain};

use super::pagemap::pieces;
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
    for area in mm().spaces().areas(memory.space(), super::maps::all()) {
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

/// Whether pages of an area are its program's own. In a private area of a file the copied pages
/// are; the file's are never exclusive. Copies that a child has as well count as the file's.
fn is_anon(area: &Area, attrs: Attrs) -> bool {
    let shared = area.flags.contains(AreaFlags::SHARED);
    let of_file = area.backing != Backing::Anon && attrs.contains(Attrs::COW);
    !shared && !of_file
}

/// The folios of an area.
fn folios(memory: &Memory, area: &Area) -> Folios {
    let mut folding = Folding::new(GRAIN);
    pieces(memory, area.span, &mut |piece| {
        // A folio's frames are aligned to its size.
        let (frame, pages) = (piece.frame.get(), piece.folio.0);
        folding.add(text::Piece {
            page: piece.pages.start.get(),
            frame,
            count: piece.count(),
            head: frame - frame % pages,
            order: pages.ilog2() as u8,
            anon: is_anon(area, piece.attrs),
            block: piece.leaf > Order::ZERO,
            folded: piece.folded,
        });
    });
    folding.done()
}
