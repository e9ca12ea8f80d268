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
//! * `machine` starts QEMU and ends it; `console` reads its output.
//! * `modules` are the drivers that Linux needs for a disk, and for swap.
//! * `request` refuses impossible orders before anything is built; `elf` reads programs.
//! * `run` is one program on one kernel; `compare` is the same programs on both, and `figures`
//!   reads their output; `make test` runs `checks`, `disk_checks` and `tag_checks` on Quire's
//!   kernel; `cpus` boots it on a list of CPUs.
//! * `starry` builds StarryOS, as it is or on Quire, and boots it with a program.
//!
//! Each run builds everything anew, but keeps Debian's packages.

mod checks;
mod compare;
mod console;
mod cpio;
mod cpus;
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
pub mod starry;
mod tag_checks;

pub use checks::check;
pub use compare::{Comparison, compare};
pub use cpus::{Choice, cpus};
pub use figures::Figure;
pub use isa::Isa;
pub use machine::Accel;
pub use programs::Programs;
pub use run::{Order, listen, run};
