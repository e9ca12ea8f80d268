//! `cargo xtask run`: one program, one kernel, one machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Isa;
use super::console::Event;
use super::disk::Disk;
use super::image;
use super::kernel::Kernel;
use super::machine::{Accel, Ending, Machine, files};
use super::{modules, request, starry};
use crate::setup;
use crate::steps::Missing;

/// The exit status when a kernel panicked.
const PANICKED: u8 = 101;
/// The exit status when time was over.
const TIMED_OUT: u8 = 124;
/// The exit status when the machine ended without the program's status.
const NO_WORD: u8 = 125;
/// The exit status after Ctrl-C.
const INTERRUPTED: u8 = 130;

/// How long init waits for a kernel's own work after boot, by the guest's clock, which runs ahead
/// when the guest is idle.
const SETTLE: &str = "settle=3";

/// A program to run, and the machine for it.
#[derive(Clone, Debug)]
pub struct Order {
    /// The machine's ISA.
    pub isa: Isa,
    /// How many CPUs it has.
    pub cpus: u32,
    /// Which CPUs, as QEMU names them, such as `rv64,svnapot=on`.
    pub cpu: Option<String>,
    /// The board, as QEMU names it, such as `virt,gic-version=2`.
    pub board: Option<String>,
    /// How much memory, in QEMU's notation.
    pub memory: String,
    /// THP settings for init, such as `64K=always,2M=inherit`.
    pub thp: Option<String>,
    /// The accelerator.
    pub accel: Accel,
    /// `quire`, `linux`, `starry` (on Quire), `starry-stock`, or a file.
    pub kernel: String,
    /// Seconds after which the machine is ended.
    pub timeout_seconds: u64,
    /// The guest's clock counts instructions, one nanosecond each.
    pub counts_instructions: bool,
    /// The kernel itself checks that programs see no stale memory; only ours can.
    pub looks_at_frames: bool,
    /// More words for the kernel's command line; init finds `KEY=VALUE` in its environment.
    pub settings: Vec<String>,
    /// Devices that init swaps to, such as `zram0=192M`.
    pub swaps: Vec<String>,
    /// Settings under `/proc/sys`, such as `vm.swappiness=10`.
    pub sysctls: Vec<String>,
    /// Settings of the program's control group, such as `memory.max=64M`.
    pub group: Vec<String>,
    /// A directory of the host: it becomes the root, on a disk.
    pub root: Option<PathBuf>,
    /// The program and its arguments, which it gets byte for byte; none: a shell.
    pub words: Vec<OsString>,
}

impl Order {
    /// The program `words` on Quire's kernel, in a machine with one CPU and 1 GiB.
    pub fn new(isa: Isa, words: impl IntoIterator<Item: Into<OsString>>) -> Self {
        Self {
            isa,
            cpus: 1,
            cpu: None,
            board: None,
            memory: "1G".to_owned(),
            thp: None,
            accel: Accel::Tcg,
            kernel: "quire".to_owned(),
            timeout_seconds: 300,
            counts_instructions: false,
            looks_at_frames: false,
            settings: Vec::new(),
            swaps: Vec::new(),
            sysctls: Vec::new(),
            group: Vec::new(),
            root: None,
            words: words.into_iter().map(Into::into).collect(),
        }
    }

    /// The program's name.
    pub(super) fn program(&self) -> Option<&str> {
        self.words.first().and_then(|word| word.to_str())
    }

    /// The command that the order runs, for messages.
    pub(super) fn name(&self) -> String {
        let is_plain = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_graphic());
        let shown = self.words.iter().map(|word| match word.to_str() {
            Some(word) if is_plain(word) => word.to_owned(),
            _ => format!("{word:?}"),
        });
        shown.collect::<Vec<_>>().join(" ")
    }
}

/// Runs the order with its console on ours; returns the exit status: the program's, or 101 after a
/// panic, 124 after the timeout, 125 if the machine ended without a word, 130 after Ctrl-C.
///
/// # Errors
/// The reason it cannot be run here.
pub fn run(root: &Path, order: &Order) -> Result<u8, Missing> {
    let (ending, _) = boot(root, order, true)?;
    match ending {
        Ending::Guest(None) => {
            eprintln!("The machine ended before init printed the program's exit status.")
        }
        Ending::Timeout => eprintln!("The machine was ended after {} s.", order.timeout_seconds),
        _ => {}
    }
    Ok(status(ending))
}

/// Runs the order by itself; returns what [`run`] returns, and the lines of its console.
///
/// # Errors
/// The reason it cannot be run here.
pub fn listen(root: &Path, order: &Order) -> Result<(u8, Vec<String>), Missing> {
    let (ending, lines) = boot(root, order, false)?;
    Ok((status(ending), lines))
}

fn status(ending: Ending) -> u8 {
    match ending {
        Ending::Guest(Some(Event::Exit(status))) => status,
        Ending::Guest(Some(Event::Panic)) => PANICKED,
        Ending::Guest(None) => NO_WORD,
        Ending::Timeout => TIMED_OUT,
        Ending::Interrupted => INTERRUPTED,
    }
}

/// Boots the order's machine; gives its ending and the lines of its console.
pub(super) fn boot(
    root: &Path,
    order: &Order,
    is_shown: bool,
) -> Result<(Ending, Vec<String>), Missing> {
    if let Some(kind) = starry::kind(&order.kernel) {
        return starry::boot(root, order, kind, is_shown);
    }
    request::check(root, order)?;
    let kernel = prepare(root, order)?;
    let Some(dir) = &order.root else {
        return boot_kernel(root, &kernel, order, is_shown);
    };
    boot_disk(root, &kernel, order, &Disk::of(dir, &files(root))?, is_shown)
}

/// Boots the order's machine with a disk, which has the program unless `os/guest/` does.
pub(super) fn boot_disk(
    root: &Path,
    kernel: &Kernel,
    order: &Order,
    disk: &Disk,
    is_shown: bool,
) -> Result<(Ending, Vec<String>), Missing> {
    let modules = modules::of(kernel, order, true)?;
    let archive = image::pack_init(root, order, &modules)?;
    start(root, kernel, order, &archive, Some(disk), is_shown)
}

/// Installs the emulator of whole machines if need be.
pub(super) fn find_emulator(isa: Isa) -> Result<(), Missing> {
    let (program, packages) = isa.emulator();
    setup::system_emulator(program, packages)
}

/// Installs the emulator if need be; gives the order's kernel.
pub(super) fn prepare(root: &Path, order: &Order) -> Result<Kernel, Missing> {
    find_emulator(order.isa)?;
    Kernel::find(root, order.isa, &order.kernel, order.looks_at_frames)
}

/// Boots the order's machine with a kernel that was found before.
pub(super) fn boot_kernel(
    root: &Path,
    kernel: &Kernel,
    order: &Order,
    is_shown: bool,
) -> Result<(Ending, Vec<String>), Missing> {
    let modules = modules::of(kernel, order, false)?;
    let archive = image::pack(root, order, &modules)?;
    start(root, kernel, order, &archive, None, is_shown)
}

fn start(
    root: &Path,
    kernel: &Kernel,
    order: &Order,
    archive: &[u8],
    disk: Option<&Disk>,
    is_shown: bool,
) -> Result<(Ending, Vec<String>), Missing> {
    let failed = |sentence| Missing { sentence, fails: true };
    request::check_memory(order, archive.len() as u64).map_err(failed)?;
    let mut settings: Vec<String> = order.thp.iter().map(|thp| format!("thp={thp}")).collect();
    settings.extend_from_slice(&order.settings);
    if order.counts_instructions {
        settings.push(SETTLE.to_owned());
    }
    if order.looks_at_frames && kernel.linux.is_none() {
        settings.push("check=frames".to_owned());
    }
    settings.extend(modules::words(kernel, order));
    if disk.is_some_and(Disk::is_root) {
        // Linux would look for an init there: ours shows the disk instead.
        let name = if kernel.linux.is_some() { "disk" } else { "root" };
        settings.push(format!("{name}=/dev/vda"));
    }
    let machine = Machine {
        isa: order.isa,
        kernel: &kernel.file,
        archive,
        disk,
        command_line: &kernel.command_line(order.isa, &settings),
        cpus: order.cpus,
        cpu: order.cpu.as_deref(),
        board: order.board.as_deref(),
        moves_words: order.counts_instructions && modules::has_swap(order),
        memory: &order.memory,
        accel: order.accel,
        counts_instructions: order.counts_instructions,
        timeout: Duration::from_secs(order.timeout_seconds),
        is_shown,
    };
    machine.run(&files(root)).map_err(failed)
}
