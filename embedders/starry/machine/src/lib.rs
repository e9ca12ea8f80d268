//! StarryOS's machine as Quire sees it.
//!
//! * `board`: RAM that the kernel's own allocator lends, and what each CPU can do.
//! * `flush`: the flushes of arm64.
//! * `home`: an address space with a place of its own, and the list of all of them.
//!
//! Nothing here knows a type of StarryOS: the module that takes the place of its `mm::aspace` does.
#![no_std]

extern crate alloc;

mod board;
mod flush;
mod home;

pub use board::{Board, Format, Lent, PAGE, PAGE_SHIFT, System, mm, start};
pub use home::{Everyone, Home};
pub use quire;
