//! StarryOS's machine as Quire sees it.
//!
//! * `board`: RAM that the kernel's own allocator lends, and what each CPU can do.
//! * `flush`: the flushes of arm64.
//! * `home`: an address space with a place of its own, and the list of all of them.
//! * `zram`: compressed memory that pages leave for when frames are short.
//!
//! Nothing here knows a type of StarryOS: the module that takes the place of its `mm::aspace` does.
#![no_std]

extern crate alloc;

mod board;
mod flush;
mod home;
mod zram;

pub use board::{Board, Format, Lent, PAGE, PAGE_SHIFT, PIECES_MOST, System, mm, start};
pub use home::{Everyone, Home};
pub use quire;
pub use zram::{relieve, swap_in, swap_on, swap_slots};
