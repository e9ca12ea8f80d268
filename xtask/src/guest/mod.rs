//! Linux programs in an emulated machine, on Linux's kernel or on Quire's.
//!
//! ```text
//!   os/guest/*.c ─programs─► static ELF ──image──► initramfs ─┐
//!   os/kernel/ ───kernel───► ELF or Image ────────────────────┼──machine──► QEMU ─console─► lines
//!   Debian ───────setup────► vmlinuz, busybox ────────────────┤
//!   a directory ──disk─────► ext4 image ──────────────────────┘
//! ```
//!
//! * `programs` compiles the C programs; `kernel` builds Quire's kernel or finds Linux.
//! * `cpio` writes archives, `image` decides what is in them.
//! * `disk` makes an image of a directory, and can spoil it.
//! * `machine` starts QEMU and ends it; `console` understands what it prints.
//! * `modules` are the drivers that Linux needs for a disk, and for swap.
//! * `request` refuses what cannot be carried out before anything is built; `elf` reads programs.
//! * `run` is one program on one kernel; `compare` is the same programs on both, and `figures`
//!   reads what they print; `checks` and `disk_checks` are what `make test` runs on Quire's kernel.
//!
//! Nothing that is built here is taken from an earlier run but packages of Debian.

mod checks;
mod compare;
mod console;
mod cpio;
mod disk;
mod disk_checks;
mod elf;
mod figures;
mod image;
mod isa;
mod kernel;
mod machine;
mod modules;
mod programs;
mod request;
mod run;

pub use checks::check;
pub use compare::{Comparison, compare};
pub use figures::Figure;
pub use isa::Isa;
pub use machine::Accel;
pub use programs::Programs;
pub use run::{Order, listen, run};
