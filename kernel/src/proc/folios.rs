//! Beyond Linux: which folio sizes each area got, and how they are mapped.
//!
//! ```text
//!   7f0000200000-7f0000600000 rw-p resident=4096 blocks=2048 folded=64 4kB=12/0/0 64kB=1920/64/52
//!                                  in kB         │           │         size=whole and aligned
//!                                                │           │          / whole, not aligned
//!                                                │           │          / in part
//!                                                │           in contiguous blocks
//!                                                by leaves larger than a base page
//! ```

use quire::engine::FolioMap;
use quire::units::Prot;
use quire_linux::Result;
use quire_linux::files::{Caller, Text};

use super::pagemap::pieces;
use super::process::Subject;
use crate::memory::{Memory, PAGE, PAGE_SHIFT, mm};

/// Units of 1024 bytes in a base page.
const KIB: u64 = PAGE >> 10;

/// `folios`.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn show(of: &Subject, _: &Caller<'_>, out: &mut Text) -> Result<()> {
    let Some(memory) = of.memory() else { return Ok(()) };
    let mut result = Ok(());
    mm().folio_map(memory.space(), |map| {
        if result.is_ok() {
            result = line(&memory, map, out);
        }
    });
    result
}

fn line(memory: &Memory, map: &FolioMap, out: &mut Text) -> Result<()> {
    let area = &map.area;
    let flag = |right, letter| if area.prot.contains(right) { letter } else { '-' };
    let mut folded = 0;
    pieces(memory, area.span, &mut |piece| {
        folded += if piece.folded { piece.count() } else { 0 };
    });
    out.print(format_args!(
        "{:08x}-{:08x} {}{}{}{} resident={} blocks={} folded={}",
        area.span.start.get() * PAGE,
        area.span.end.get() * PAGE,
        flag(Prot::READ, 'r'),
        flag(Prot::WRITE, 'w'),
        flag(Prot::EXEC, 'x'),
        if area.flags.contains(quire::space::AreaFlags::SHARED) { 's' } else { 'p' },
        map.resident() * KIB,
        map.by_blocks * KIB,
        folded * KIB,
    ))?;
    for (order, size) in map.sizes.iter().enumerate().filter(|(_, size)| size.pages() > 0) {
        out.print(format_args!(
            " {}kB={}/{}/{}",
            1_u64 << (order + PAGE_SHIFT as usize - 10),
            size.aligned * KIB,
            size.unaligned * KIB,
            size.partial * KIB,
        ))?;
    }
    if map.foreign > 0 {
        out.print(format_args!(" foreign={}", map.foreign * KIB))?;
    }
    out.push(b"\n")
}
