//! The files of `/proc` and `/sys`: the state of the kernel, the library and each program, in
//! Linux's formats, since tools read them; and Quire's own files.
//!
//! **Owns** no state but a few settings. Everything is made when it is read, from the rooms to the
//! left. **Key types**: [`Row`](table::Row) (an entry of a directory, with the function that writes
//! it), [`Subject`](process::Subject) (the process or thread that a directory is about). **Never**
//! keeps a lock between two entries. **Next room**: `calls`.
//!
//! ```text
//!   Tree ── lookup ──► table::Fixed ── Row ──► fn(&subject, &mut Text)
//!                      table::Many  ── number ──► process, thread, descriptor, CPU
//! ```
//!
//! | file | about |
//! |---|---|
//! | `table` | directories as tables, and as rows of numbers |
//! | `system` | the whole system: `meminfo`, `vmstat`, `stat`, `kernel` settings |
//! | `cpuinfo`, `interrupts` | the CPUs, and what has interrupted them |
//! | `frames` | `kpageflags`, `kpagecount`, and counting all folios |
//! | `process` | the directory of a process, and of a thread |
//! | `about` | `stat`, `status`, `limits` and their like |
//! | `links` | descriptors, program, working directory |
//! | `contents` | a program's memory as bytes: `mem`, `cmdline`, `environ`, `clear_refs` |
//! | `maps`, `smaps`, `pagemap`, `folios` | its areas, from four sides |
//! | `thp` | `/sys/kernel/mm/transparent_hugepage` |
//! | `split` | `/sys/kernel/debug/split_huge_pages` |
//! | `cgroup` | `/sys/fs/cgroup` |
//! | `sys` | the rest of `/sys` |

mod about;
mod cgroup;
mod contents;
mod cpuinfo;
mod folios;
mod frames;
mod interrupts;
mod links;
mod maps;
mod net;
mod pagemap;
mod pools;
mod scan;
mod settings;
mod process;
mod smaps;
mod split;
mod sys;
mod system;
mod sysvipc;
mod table;
mod thp;

use alloc::sync::Arc;

use linux_raw_sys::general as abi;
use quire_linux::Result;
use quire_linux::files::{Caller, Tree};

pub(crate) use system::{HOST_NAME, RELEASE, VERSION};

/// Lets `/proc` and `/sys` begin. `command_line` is the kernel's.
///
/// # Errors
/// As for [`Tree::mount`].
pub(crate) fn mount(tree: &Tree, who: &Caller<'_>, command_line: &'static str) -> Result<()> {
    system::init(command_line);
    tree.mount(who, b"/proc", "proc", abi::PROC_SUPER_MAGIC, Arc::new(process::root()))?;
    tree.mount(who, b"/sys", "sysfs", abi::SYSFS_MAGIC, Arc::new(sys::root()))?;
    let groups = Arc::new(cgroup::root());
    tree.mount(who, b"/sys/fs/cgroup", "cgroup2", abi::CGROUP2_SUPER_MAGIC, groups)
}
