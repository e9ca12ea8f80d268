//! The least program on Quire: it makes a space, maps, faults, protects, unmaps and destroys it.
//! Everything else is left out by the linker, so its text is the price of these calls.
//!
//! It is never run. All arguments come from outside, so that the compiler cannot compute a result.
//! Edition 2021 lets `no_mangle` and `link_section` stand without a word about safety.
#![no_std]
#![no_main]

mod board;

use core::panic::PanicInfo;

use quire::arch::Sv39;
use quire::space::{Request, Space};
use quire::units::{Access, Asid, Order, PageSpan, Prot};
use quire::Mm;

use board::Board;

type Memory<'m> = Mm<'m, Sv39, Board<'m>>;

/// The sizes in bytes that `cargo xtask text` prints beside the text.
#[used]
#[link_section = ".sizes"]
static SIZES: [usize; 2] = [size_of::<Memory<'_>>(), size_of::<Space<Sv39>>()];

/// The calls of one program.
#[no_mangle]
#[allow(improper_ctypes_definitions)]
pub extern "C" fn _start(
    mm: &Memory<'_>,
    place: &mut Option<Space<Sv39>>,
    request: &Request,
    window: &PageSpan,
) -> u64 {
    let Some(root) = mm.phys().alloc(Order::ZERO) else { return 1 };
    let Ok(space) = mm.space_in(place, root, Asid(1), *window) else { return 1 };
    let Ok(area) = mm.map(space, request) else { return 2 };
    let write = mm.fault(space, area.start, Access::Write).is_ok();
    let protected = mm.protect(space, area, Prot::READ).is_ok();
    let unmapped = mm.unmap(space, area).is_ok();
    mm.destroy_in(place);
    u64::from(write && protected && unmapped)
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {}
}
