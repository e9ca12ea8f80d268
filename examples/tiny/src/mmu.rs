//! The kernel's half of each address space, and this CPU's root.
//!
//! The kernel makes its tables by the same functions as the library makes programs' tables.
//!
//! ```text
//!   0              256 GiB                  DIRECT
//!   ├── a program ──┤ … no addresses … ├── physical 0 … a device … RAM, the image in it ──┤
//! ```
//!
//! Every root has its entries, 256 to 511 of Sv39, so that traps and the kernel's own data work
//! in each space. They are written once and never change: no flush is due for them.

use core::arch::asm;
use core::ops::Range;
use core::sync::atomic::Ordering;

use quire::arch::{Arch, Attrs, Level};
use quire::hw::FrameRun;
use quire::units::{Asid, Pfn};

use crate::board::Board;
use crate::boot;
use crate::ram::{PIECES, Pieces};
use crate::{Format, PAGE, PAGE_SHIFT};

/// Puts this CPU under a root, whose upper half is the kernel's.
pub fn set_root(root: Pfn, asid: Asid) {
    let satp = 8 << 60 | u64::from(asid.0) << 44 | root.get();
    // SAFETY: the kernel's code, data and stacks stay where they are.
    unsafe { asm!("csrw satp, {}", in(reg) satp, options(nostack, preserves_flags)) };
}

/// Drops this CPU's translations of a space.
pub fn flush(asid: Asid) {
    let asid = u64::from(asid.0);
    // SAFETY: losing translations costs time alone.
    unsafe { asm!("sfence.vma zero, {}", in(reg) asid, options(nostack, preserves_flags)) };
}

/// Drops all translations of this CPU, the kernel's too.
pub fn flush_all() {
    // SAFETY: as above.
    unsafe { asm!("sfence.vma", options(nostack, preserves_flags)) };
}

/// Physical bytes, whole pages, and the rights to them where the direct map shows them.
type Region = (Range<u64>, Attrs);

/// Makes the kernel's root out of frames of `free`, which shrinks.
pub fn build(board: &Board, ram: &Pieces, finisher: u64, free: &mut Option<FrameRun>) -> FrameRun {
    let [code, constants, data, end] = boot::image();
    let mut regions = [const { (0..0, Attrs::empty()) }; PIECES + 4];
    regions[0] = (code..constants, Attrs::READ | Attrs::EXEC);
    regions[1] = (constants..data, Attrs::READ);
    regions[2] = (data..end, Attrs::READ | Attrs::WRITE);
    // A device needs no memory type of its leaf: the machine's attributes say that it is one.
    regions[3] = (finisher..finisher + PAGE, Attrs::READ | Attrs::WRITE);
    for (region, piece) in regions[4..].iter_mut().zip(ram) {
        *region = (piece.0..piece.1, Attrs::READ | Attrs::WRITE);
    }
    // The second half of the root shows what begins at physical address 0; and "before" it, where
    // programs' pages are, no region is.
    let programs = Format::USER_PAGES << PAGE_SHIFT;
    Half { board, free, regions }.table(Format::ROOT, 0_u64.wrapping_sub(programs))
}

struct Half<'a> {
    board: &'a Board,
    free: &'a mut Option<FrameRun>,
    regions: [Region; PIECES + 4],
}

impl Half<'_> {
    /// A table of `level`, whose first entry shows physical address `start`.
    fn table(&mut self, level: Level, start: u64) -> FrameRun {
        let (table, rest) = self.free.take().expect("a bank of RAM").split_at(1);
        *self.free = Some(rest);
        let bytes = Format::order(level).bytes(PAGE_SHIFT);
        let mut at = start;
        for word in self.board.ram.words(&table) {
            word.store(self.word(level, at..at.wrapping_add(bytes)), Ordering::Relaxed);
            at = at.wrapping_add(bytes);
        }
        table
    }

    /// The entry for these bytes: absent, a leaf where one region has them all, or a lower table.
    fn word(&mut self, level: Level, bytes: Range<u64>) -> u64 {
        let meets = |region: &&Region| region.0.start < bytes.end && bytes.start < region.0.end;
        let Some((region, rights)) = self.regions.iter().find(meets) else { return 0 };
        match level.child() {
            Some(lower) if bytes.start < region.start || region.end < bytes.end => {
                Format::table(self.table(lower, bytes.start).start())
            }
            _ => {
                // No CPU has to record accesses in them; and they are the same in all spaces.
                let attrs = *rights | Attrs::GLOBAL | Attrs::YOUNG | Attrs::DIRTY;
                Format::leaf(Pfn::new(bytes.start >> PAGE_SHIFT), level, attrs)
            }
        }
    }
}
