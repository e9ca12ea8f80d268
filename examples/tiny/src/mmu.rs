//! The kernel's half of each address space, and this CPU's root.
//!
//! ```text
//!   0              256 GiB                  DIRECT
//!   ├── a program ──┤ … no addresses … ├── physical 0 … RAM, the image in it ──┤
//! ```
//!
//! Every root has its entries, 256 to 511 of Sv39, so that traps and the kernel's own data work
//! in each space. They are written once and never change: no flush is due for them.

use riscv::register::satp::{self, Mode};

use crate::*;

/// Puts this CPU under a root, whose upper half is the kernel's.
pub fn set_root(root: Pfn, asid: Asid) {
    // SAFETY: the kernel's code, data and stacks stay where they are.
    unsafe { satp::set(Mode::Sv39, asid.0.into(), root.get() as usize) };
}

/// Drops this CPU's translations of a space.
pub fn flush(asid: Asid) {
    let asid = u64::from(asid.0);
    // SAFETY: losing translations costs time alone.
    unsafe { asm!("sfence.vma zero, {}", in(reg) asid, options(nostack, preserves_flags)) };
}

/// Makes the kernel's half. It shows the image, each part with its rights, and all behind it up to
/// `end` of RAM; holes, too, but no code reads there, since the banks end before.
pub fn build(early: &mut Early<PIECES>, end: Pfn) -> KernelHalf {
    let [code, constants, data, _] = PARTS;
    let regions = [
        (code..constants, Attrs::READ | Attrs::EXEC),
        (constants..data, Attrs::READ),
        (data..end.get() * PAGE, Attrs::READ | Attrs::WRITE),
    ];
    let direct = |(bytes, attrs)| Region::direct::<Format>(DIRECT as u64, bytes, attrs);
    let most = Format::block_order();
    KernelHalf::new::<Format, PIECES>(early, &regions.map(direct), most).expect("RAM for tables")
}
