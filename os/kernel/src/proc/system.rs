//! The files of `/proc` about the whole system.

use core::sync::atomic::Ordering;

use quire::cache::Store;
use quire::limits::{GROUP_ORDER, ORDERS};
use quire::phys::Mobility;
use quire::stats::Event;
use quire_linux::Result;
use quire_linux::files::{self, Caller, Text};
use quire_linux::signal::status::NS_PER_TICK;
use spin::Once;

use super::frames::{self, Census};
use super::process::own;
use super::table::{Is, Row};
use super::thp::{self, BLOCK};
use super::{cpuinfo, interrupts, pools, settings};
use crate::disk::swap;
use crate::isa::{self, STACK_BYTES};
use crate::memory::{self, PAGE, commit, mm};
use crate::task::{processes, queue, tree::tree};

/// The answer of `uname -r`. Programs derive features from it.
pub(crate) const RELEASE: &str = "6.12.0-quire";
/// The answer of `uname -v`.
pub(crate) const VERSION: &str = concat!("Quire ", env!("CARGO_PKG_VERSION"));
/// The answer of `uname -n`.
pub(crate) const HOST_NAME: &str = "quire";

static COMMAND_LINE: Once<&'static str> = Once::new();

/// Stores the values that never change.
pub(super) fn init(command_line: &'static str) {
    COMMAND_LINE.call_once(|| command_line);
    commit::set_total(mm().phys().free_frames() * PAGE + memory::taken_bytes());
}

/// The files besides the processes.
pub(super) const ROWS: &[Row<()>] = &[
    Row { name: "self", is: Is::Link(|_, who, _| own(who.pid, None)) },
    Row { name: "thread-self", is: Is::Link(|_, who, _| own(who.pid, Some(who.tid))) },
    Row { name: "buddyinfo", is: Is::Text(buddies) },
    Row { name: "cmdline", is: Is::Text(command_line) },
    Row { name: "cpuinfo", is: Is::Text(|_, _, out| cpuinfo::show(out)) },
    Row { name: "filesystems", is: Is::Text(|_, _, out| out.push(FILE_SYSTEMS)) },
    Row { name: "interrupts", is: Is::Text(|_, _, out| interrupts::show(out)) },
    Row { name: "kpagecount", is: Is::Bytes(frames::counts) },
    Row { name: "kpageflags", is: Is::Bytes(frames::flags) },
    Row { name: "loadavg", is: Is::Text(load) },
    Row { name: "meminfo", is: Is::Text(memory_info) },
    Row { name: "pagetypeinfo", is: Is::Text(page_types) },
    Row { name: "mounts", is: Is::Link(|_, _, _| super::table::link(format_args!("self/mounts"))) },
    Row { name: "stat", is: Is::Text(stat) },
    Row { name: "swaps", is: Is::Text(swaps) },
    Row { name: "sys", is: Is::Table(settings::ROWS) },
    Row { name: "sysvipc", is: Is::Table(SYSV) },
    Row { name: "uptime", is: Is::Text(uptime) },
    Row { name: "version", is: Is::Text(version) },
    Row { name: "vmstat", is: Is::Text(events) },
];

const FILE_SYSTEMS: &[u8] =
    b"nodev\tsysfs\nnodev\ttmpfs\nnodev\tproc\nnodev\tcgroup2\nnodev\tpipefs\nnodev\thugetlbfs\n";
const SWAPS: &[u8] = b"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";

const SYSV: &[Row<()>] = &[Row { name: "shm", is: Is::Text(super::sysvipc::show) }];

fn command_line(_: &(), _: &Caller<'_>, out: &mut Text) -> Result<()> {
    out.print(format_args!("{}\n", COMMAND_LINE.get().copied().unwrap_or_default()))
}

fn version(_: &(), _: &Caller<'_>, out: &mut Text) -> Result<()> {
    out.print(format_args!("Linux version {RELEASE} (quire@{HOST_NAME}) (rustc) {VERSION}\n"))
}

/// The swap devices, as Linux lays the columns out.
fn swaps(_: &(), _: &Caller<'_>, out: &mut Text) -> Result<()> {
    out.push(SWAPS)?;
    for device in swap::devices() {
        let found = mm().paging().devices().find(|(id, ..)| *id == device.id);
        let Some((_, slots, used)) = found else { continue };
        out.push(&device.path)?;
        let room = 40_usize.saturating_sub(device.path.len()).max(1);
        let (size, used) = ((slots * PAGE) >> 10, (used * PAGE) >> 10);
        let tab = |kib: u64| if kib < 10_000_000 { "\t" } else { "" };
        let (after_size, after_used) = (tab(size), tab(used));
        let (kind, priority) = ("partition", device.priority);
        out.print(format_args!("{:room$}{kind}\t{size}\t{after_size}", " "))?;
        out.print(format_args!("{used}\t{after_used}{priority}\n"))?;
    }
    Ok(())
}

/// Bytes of swap: in all, free, and of pages that are in memory as well.
fn swap_bytes() -> (u64, u64, u64) {
    let (slots, used) = swap::slots();
    let cached = swap::devices().filter_map(|device| mm().files().get(device.id));
    let cached: u64 = cached.map(|file| file.cached()).sum();
    (slots * PAGE, (slots - used) * PAGE, cached * PAGE)
}

/// Free blocks by order.
fn buddies(_: &(), _: &Caller<'_>, out: &mut Text) -> Result<()> {
    out.print(format_args!("Node 0, zone {:>8} ", "Normal"))?;
    for count in mm().phys().free_by_order() {
        out.print(format_args!("{count:6} "))?;
    }
    out.push(b"\n")
}

/// Free blocks by order and by mobility, as Linux lays them out.
fn page_types(_: &(), _: &Caller<'_>, out: &mut Text) -> Result<()> {
    let (block, pages) = (GROUP_ORDER.get(), GROUP_ORDER.pages());
    out.print(format_args!("Page block order: {block}\nPages per block:  {pages}\n\n"))?;
    out.push(b"Free pages count per migrate type at order ")?;
    (0..ORDERS).try_for_each(|order| out.print(format_args!("{order:6} ")))?;
    out.push(b"\n")?;
    for (mobility, name) in [
        (Mobility::Unmovable, "Unmovable"),
        (Mobility::Movable, "Movable"),
        (Mobility::Reclaimable, "Reclaimable"),
        (Mobility::Isolated, "Isolate"),
    ] {
        out.print(format_args!("Node    0, zone {:>8}, type {name:>12} ", "Normal"))?;
        for count in mm().phys().free_by_mobility(mobility) {
            out.print(format_args!("{count:6} "))?;
        }
        out.push(b"\n")?;
    }
    Ok(())
}

/// The mounts, as `mount` prints them.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn mounts(out: &mut Text) -> Result<()> {
    each_mount(|_, _, path, kind| {
        out.print(format_args!("{kind} "))?;
        out.push(path)?;
        out.print(format_args!(" {kind} rw,relatime 0 0\n"))
    })
}

/// The mounts with their numbers and places.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn mount_info(out: &mut Text) -> Result<()> {
    each_mount(|id, volume, path, kind| {
        out.print(format_args!("{id} 1 0:{volume} / "))?;
        out.push(path)?;
        out.print(format_args!(" rw,relatime - {kind} {kind} rw\n"))
    })
}

/// Visits each mount: its number, that of its file system, its path and kind.
fn each_mount(mut tell: impl FnMut(u32, u32, &[u8], &str) -> Result<()>) -> Result<()> {
    let (mut id, mut result) = (0, Ok(()));
    tree().mounts(&mut |path, kind| {
        id += 1;
        // Pipes have a number, too, and are mounted nowhere.
        let volume = if id == 1 { files::MEMORY } else { files::PIPES + id - 1 };
        if result.is_ok() {
            result = tell(id, volume, path, kind);
        }
    });
    result
}

/// The sums over all processes.
struct Load {
    processes: u64,
    threads: u64,
    /// Threads that run or could.
    ready: u64,
    /// Nanoseconds that all ran, of those that are still there or were waited for by init.
    ran: u64,
    last: u32,
}

impl Load {
    fn take() -> Self {
        let mut load = Self { processes: 0, threads: 0, ready: 0, ran: 0, last: 0 };
        let mut next = processes(1);
        while let Some(process) = next {
            load.processes += 1;
            load.last = process.pid;
            load.ran += process.ran.load(Ordering::Relaxed);
            if process.pid == 1 {
                let below = process.family.lock().children_usage;
                load.ran += below.user_ns + below.system_ns;
            }
            for task in process.threads.lock().iter() {
                load.threads += 1;
                load.ready += u64::from(!queue::is_parked(task.tid));
            }
            next = processes(process.pid + 1);
        }
        load
    }

    /// Nanoseconds that no thread ran, over all CPUs, since boot.
    fn idle(&self) -> u64 {
        (isa::now() * isa::cpu_count() as u64).saturating_sub(self.ran)
    }
}

/// Averages are not kept: there are only the counts of now.
fn load(_: &(), _: &Caller<'_>, out: &mut Text) -> Result<()> {
    let Load { ready, threads, last, .. } = Load::take();
    out.print(format_args!("0.00 0.00 0.00 {ready}/{threads} {last}\n"))
}

fn uptime(_: &(), _: &Caller<'_>, out: &mut Text) -> Result<()> {
    let hundredths = |ns: u64| (ns / 1_000_000_000, ns / 10_000_000 % 100);
    let ((now, now_part), (idle, part)) = (hundredths(isa::now()), hundredths(Load::take().idle()));
    out.print(format_args!("{now}.{now_part:02} {idle}.{part:02}\n"))
}

/// Times are not kept by CPU: each line has an even share.
fn stat(_: &(), _: &Caller<'_>, out: &mut Text) -> Result<()> {
    let load = Load::take();
    let (ran, idle) = (load.ran / NS_PER_TICK, load.idle() / NS_PER_TICK);
    let cpus = isa::cpu_count().max(1) as u64;
    out.print(format_args!("cpu  {ran} 0 0 {idle} 0 0 0 0 0 0\n"))?;
    for cpu in 0..cpus {
        out.print(format_args!("cpu{cpu} {} 0 0 {} 0 0 0 0 0 0\n", ran / cpus, idle / cpus))?;
    }
    let boot = isa::realtime() / 1_000_000_000;
    out.print(format_args!("intr 0\nctxt 0\nbtime {boot}\nprocesses {}\n", load.last))?;
    out.print(format_args!("procs_running {}\nprocs_blocked 0\n", load.ready))
}

/// Bytes that files have in memory, of these in blocks of 2 MiB and larger.
#[derive(Clone, Copy, Default)]
struct FileBytes {
    all: u64,
    huge: u64,
}

impl FileBytes {
    /// Bytes of files with a store, and of files in memory only.
    fn take() -> [Self; 2] {
        let mut kinds = [Self::default(); 2];
        for id in mm().files().ids() {
            let Some(file) = mm().files().get(id) else { continue };
            let kind = match file.store() {
                Some(Store::Swap | Store::Reserved) | None => continue,
                Some(Store::ReadOnly | Store::ReadWrite) => &mut kinds[0],
                Some(Store::Memory) => &mut kinds[1],
            };
            kind.all += file.cached() * PAGE;
            // Closed meanwhile, it has none.
            kind.huge += mm().files().cached_from(id, BLOCK).unwrap_or(0) * PAGE;
        }
        kinds
    }
}

/// `meminfo`: fields without a counterpart here are zero.
fn memory_info(_: &(), _: &Caller<'_>, out: &mut Text) -> Result<()> {
    let census = Census::take();
    let free = mm().phys().free_frames() * PAGE;
    let heap = memory::taken_bytes() + census.nodes * PAGE;
    let mapped = (census.pages() - census.of_files) * PAGE;
    let [files, shared] = FileBytes::take();
    let total = commit::total_bytes();
    let (swap_all, swap_free, swap_cached) = swap_bytes();
    let lines = [
        ("MemTotal", total),
        ("MemFree", free),
        ("MemAvailable", free),
        ("Buffers", 0),
        ("Cached", files.all + shared.all),
        ("SwapCached", swap_cached),
        ("Active", mapped),
        ("Inactive", files.all),
        ("Active(anon)", mapped),
        ("Inactive(anon)", 0),
        ("Active(file)", 0),
        ("Inactive(file)", files.all),
        ("Unevictable", 0),
        ("Mlocked", 0),
        ("SwapTotal", swap_all),
        ("SwapFree", swap_free),
        ("Dirty", 0),
        ("Writeback", 0),
        ("AnonPages", mapped),
        ("Mapped", census.of_files * PAGE),
        ("Shmem", shared.all),
        ("KReclaimable", 0),
        ("Slab", heap),
        ("SReclaimable", 0),
        ("SUnreclaim", heap),
        ("KernelStack", (isa::cpu_count() * STACK_BYTES) as u64),
        ("PageTables", census.tables * PAGE),
        ("CommitLimit", commit::limit_bytes()),
        ("Committed_AS", commit::promised_pages() * PAGE),
        ("VmallocTotal", 0),
        ("VmallocUsed", 0),
        ("VmallocChunk", 0),
        ("Percpu", 0),
        ("AnonHugePages", census.pages_from(BLOCK.index()) * PAGE),
        ("ShmemHugePages", shared.huge),
        ("ShmemPmdMapped", 0),
        ("FileHugePages", files.huge),
        ("FilePmdMapped", 0),
    ];
    let kib = |out: &mut Text, (name, bytes): (&str, u64)| {
        let width = 23 - name.len();
        out.print(format_args!("{name}:{:width$} kB\n", bytes >> 10))
    };
    lines.into_iter().try_for_each(|line| kib(out, line))?;
    pools::lines(out)?;
    [("DirectMap4k", 0), ("DirectMap2M", 0)].into_iter().try_for_each(|line| kib(out, line))
}

/// `vmstat`: Linux's names where there is one, then the library's own.
fn events(_: &(), _: &Caller<'_>, out: &mut Text) -> Result<()> {
    let totals = mm().totals();
    let census = Census::take();
    let large = census.pages_from(BLOCK.index()) >> BLOCK.get();
    for (name, value) in [
        ("nr_free_pages", mm().phys().free_frames()),
        ("nr_anon_pages", census.pages() - census.of_files),
        ("nr_page_table_pages", census.tables),
        ("nr_anon_transparent_hugepages", large),
        ("nr_shmem_hugepages", 0),
        ("pgmajfault", crate::task::MAJOR_FAULTS.load(Ordering::Relaxed)),
        ("thp_fault_alloc", totals.alloc[BLOCK.index()]),
        ("thp_fault_fallback", thp::fallbacks(&totals, BLOCK)),
        ("thp_fault_fallback_charge", 0),
        ("thp_split_page", 0),
        ("thp_split_page_failed", 0),
        ("thp_deferred_split_page", 0),
        ("thp_zero_page_alloc", 0),
        ("thp_swpout", totals.swpout[BLOCK.index()]),
        ("thp_swpout_fallback", totals.swpout_fallback[BLOCK.index()]),
        ("tag_rollovers", memory::rollovers()),
    ] {
        out.print(format_args!("{name} {value}\n"))?;
    }
    Event::ALL.iter().try_for_each(|&event| {
        out.print(format_args!("{} {}\n", event.name(), totals.event(event)))
    })
}
