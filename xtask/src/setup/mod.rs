//! Finds the tools that tests and benches need, and installs what this machine lets us install.
//!
//! Nothing here is needed to use the library. Where a tool is missing, one sentence says
//! how to get it. `QUIRE_INSTALL=no` in the environment keeps the machine as it is.

mod apt;
mod bare;
mod compiler;
mod download;
mod emulator;
mod files;
mod rustup;
mod sanitized;
mod show;

pub use bare::{BARE_TARGETS, Compiler, KERNEL_TARGETS, bare};
pub use compiler::c_compiler;
pub use download::{busybox, debian_root, linux, linux_tests, test_libraries};
pub use emulator::{Emulators, emulators, system_emulator};
pub use files::file_system_tool;
pub use rustup::component;
pub use sanitized::{Sanitized, interpreter, sanitized};
pub use show::run;
