//! A small kernel on Quire. It runs Linux programs, unmodified, on x86-64, arm64 and
//! riscv64.
//!
//! It shows the library at work on real hardware, and is measured beside Linux. It is small and
//! thin: well-kept crates do what they can, code that needs no machine is in `quire-linux` and
//! tested on any host, and all memory management is Quire.
//!
//! Rooms, left to right; each names only those to its left:
//!
//! ```text
//!   isa ──► memory ──► disk ──► task ──► proc ──► calls ──► run, report, scripts ──► main
//! ```
//!
//! Three doors lead to the right, where there is no caller to return to: boot enters `start`, a
//! fault of the kernel's own copy asks `disk::resolve`, the first process ends in `halt`. Beside
//! them, rooms to the right leave these callbacks with `memory`:
//!
//! | callback | from | called when |
//! |---|---|---|
//! | `set_close_idle` | `disk` | no file number is free: files that no descriptor has are closed |
//! | `set_bring` | `disk` | a page of a file in memory is on a swap device: it is read, and waited for |
//! | `set_fetch` | `disk` | a copy needs a page that is on a disk: the page is read |
//! | `set_shrink` | `task` | no frame is free: files and swap give some up |
//! | `set_ease` | `task` | a fault is about to take memory: below the watermark, reclaim comes first |
//! | `set_limits` | `task` | a control group is at its limit: its cold pages are swapped out |
//!
//! | room | owns |
//! |---|---|
//! | [`isa`] | the machine: boot, traps, interrupts, translations, the console |
//! | [`memory`] | RAM under Quire, the heap, address spaces, copies from and to programs |
//! | [`disk`] | the disk: reads in flight, pages that are kept |
//! | [`task`] | threads, processes, scheduling, waits, signals |
//! | [`proc`] | `/proc` and `/sys` |
//! | [`calls`] | Linux's system calls |
#![no_std]
#![no_main]

extern crate alloc;

#[macro_use]
mod log;
mod isa;
mod memory;
mod disk;
mod task;
mod proc;
mod calls;
mod report;
mod run;
#[cfg(feature = "checks")]
mod scripts;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use quire::units::CpuId;
use quire_linux::Errno;
use quire_linux::ext4;
use quire_linux::files::{Caller, Here, Table, Unpacked};
use quire_linux::signal::{Actions, Set};

use task::{Process, Task, Thread, tree};

/// The boot CPU, once the machine is set up.
fn start(boot: isa::Boot) -> ! {
    memory::init(&boot);
    disk::init(boot.command_line);
    task::reclaim::init();
    task::compact::init();
    tree::init();
    #[cfg(feature = "checks")]
    scripts::init(boot.command_line);
    isa::start_cpus(begin);
    memory::vdso::publish();
    log!("CPU: {}", isa::facts());
    log!("{} CPUs, {} ms", isa::cpu_count(), isa::now() / 1_000_000);
    #[cfg(feature = "checks")]
    scripts::run(boot.command_line);
    if let Err(error) = first_process(&boot) {
        panic!("the first program, /init or init=PATH, cannot be run: {error}");
    }
    run::forever(isa::cpu())
}

/// The other CPUs, once they run.
fn begin(cpu: CpuId) -> ! {
    #[cfg(feature = "checks")]
    scripts::help(cpu);
    run::forever(cpu)
}

/// The first process: `/init`, or what the command line names, with the words after `--`.
fn first_process(boot: &isa::Boot) -> quire_linux::Result<()> {
    let memory = memory::Memory::new()?;
    let files = Arc::new(Table::new());
    let here = Arc::new(Here::new(tree::tree().root().clone()));
    let process = Process::new(task::new_id(), memory, files, here, Actions::new(), None);
    let task =
        Task::new(process.pid, process.clone(), Set::EMPTY, *b"init\0\0\0\0\0\0\0\0\0\0\0\0");
    let mut thread = Thread::new(Box::new(isa::Context::start(0, 0)), task);
    fill_tree(&thread, boot)?;
    let words = Words::of(boot.command_line);
    disk::patiently(|| calls::first(&mut thread, words.init, &words.args, &words.envs))?;
    thread.context.save_vectors();
    task::start(&process, None, None, thread);
    Ok(())
}

/// Unpacks the initramfs, mounts /proc and /sys, and opens the console three times.
fn fill_tree(thread: &Thread, boot: &isa::Boot) -> quire_linux::Result<()> {
    let wake = thread.waker();
    let who = Caller {
        pid: 1,
        tid: 1,
        may: &quire_linux::credentials::ROOT,
        now: tree::time(),
        longest: u64::MAX,
        wake: &wake,
    };
    let mut length = 0;
    let unpacked = memory::with_archive(|bytes| {
        length = bytes.len();
        tree::tree().unpack(&who, bytes)
    });
    // Without an initramfs the programs may be on a disk.
    if length > 0 && (!unpacked.is_whole || unpacked.refused > 0) {
        let Unpacked { entries, refused, .. } = unpacked;
        panic!(
            "too little memory, or a broken initramfs: of its {} KiB {entries} files are unpacked, \
             {refused} found no room",
            length >> 10,
        );
    }
    tree::tree().fill_dev(&who)?;
    for (name, block) in disk::nodes() {
        tree::tree().add_block(&who, name, block)?;
    }
    proc::mount(tree::tree(), &who, boot.command_line)?;
    if let Some(name) = Words::of(boot.command_line).root
        && let Err(error) = show_disk(&who, name)
    {
        log!("{name}: {error}");
        disk::unmount();
    }
    tree::with_calls(thread, |calls| {
        let opened = calls.openat(-100, b"/dev/console", 2, 0);
        if opened.is_ok() {
            calls.dup(0)?;
            calls.dup(0)?;
        }
        Ok(())
    })
}

/// Shows the disk's entries in the root directory. The places that can be written are in memory:
/// /tmp and the like, and the root directory itself.
fn show_disk(who: &Caller<'_>, name: &str) -> Result<(), ext4::Refusal> {
    let pages = disk::mount(name).map_err(ext4::Refusal::Device)?;
    let volume = disk::patiently(|| match ext4::Volume::open(who, pages.clone()) {
        Err(ext4::Refusal::Device(Errno::BLOCKED)) => Err(Errno::BLOCKED),
        other => Ok(other),
    });
    let volume = volume.map_err(ext4::Refusal::Device)??;
    let shown = disk::patiently(|| {
        for name in [&b"/tmp"[..], b"/run"] {
            tree::tree().make_missing(who, name, 0o1777)?;
        }
        let root = volume.root(who)?;
        tree::tree().show(who, "ext4", ext4::MAGIC, &*root)
    });
    shown.map_err(ext4::Refusal::Device)
}

/// The kernel's command line, as Linux reads it: `init=PATH`, `root=/dev/vda`, words with `=` for
/// the environment, and after `--` the first program's arguments.
struct Words<'a> {
    init: &'a [u8],
    root: Option<&'a str>,
    args: Vec<&'a [u8]>,
    envs: Vec<&'a [u8]>,
}

impl<'a> Words<'a> {
    fn of(line: &'a str) -> Self {
        let mut words = Self { init: b"/init", root: None, args: Vec::new(), envs: Vec::new() };
        words.envs.extend([&b"HOME=/"[..], b"TERM=linux", b"PATH=/bin:/sbin:/usr/bin:/usr/sbin"]);
        let mut all = line.split_ascii_whitespace();
        for word in all.by_ref().take_while(|word| *word != "--") {
            match word.split_once('=') {
                Some(("init", path)) => words.init = path.as_bytes(),
                Some(("root", name)) => words.root = Some(name),
                // These are `memory`'s and `disk`'s.
                Some(("check" | "ram0" | "tags" | "zram0", _)) => {}
                Some(_) if !word.contains('.') => words.envs.push(word.as_bytes()),
                _ => {}
            }
        }
        words.args.push(words.init);
        words.args.extend(all.map(str::as_bytes));
        words
    }
}

/// Ends the machine, after the last words.
fn halt(status: u8) -> ! {
    report::print();
    log!("power off");
    isa::power_off(status)
}
