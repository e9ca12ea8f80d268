//! `/proc/sys`: settings of the kernel, of memory and of files. Some of them are only kept and
//! shown; programs save and restore them.

use core::sync::atomic::Ordering;

use quire::cache::{FILE_PAGES_MAX, File, FilePages, Store};
use quire_linux::files::{self, Caller, Text};
use quire_linux::text::number;
use quire_linux::{Errno, Result};

use super::net::{NET, kept};
use super::pools;
use super::system::{HOST_NAME, RELEASE, VERSION};
use super::table::{Is, Row};
use crate::memory::{PAGE, commit, mm};
use crate::task::{IDS_MAX, compact, segments, tree};

/// The directory.
pub(super) const ROWS: &[Row<()>] = &[
    Row { name: "kernel", is: Is::Table(KERNEL) },
    Row { name: "vm", is: Is::Table(MEMORY) },
    Row { name: "fs", is: Is::Table(FILES) },
    Row { name: "net", is: Is::Table(NET) },
];

/// The most that an int says.
const INT: u64 = i32::MAX as u64;

/// A line that never changes.
macro_rules! fixed {
    ($name:literal, $($line:tt)*) => {
        Row { name: $name, is: Is::Text(|_, _, out| out.print(format_args!($($line)*))) }
    };
}

/// A number that is kept elsewhere, where it counts.
macro_rules! held {
    ($name:literal, $number:expr) => {
        Row {
            name: $name,
            is: Is::Setting(|_, _, out| $number.show(out), |_, _, bytes| $number.set(bytes)),
        }
    };
}

const KERNEL: &[Row<()>] = &[
    fixed!("ostype", "Linux\n"),
    fixed!("osrelease", "{RELEASE}\n"),
    fixed!("version", "{VERSION}\n"),
    fixed!("hostname", "{HOST_NAME}\n"),
    fixed!("domainname", "(none)\n"),
    kept!("pid_max", IDS_MAX as u64, IDS_MAX as u64),
    kept!("threads-max", IDS_MAX as u64, IDS_MAX as u64),
    fixed!("cap_last_cap", "40\n"),
    fixed!("ngroups_max", "65536\n"),
    kept!("overflowuid", 65534, 65535),
    kept!("overflowgid", 65534, 65535),
    held!("shmmax", segments::BYTES),
    held!("shmall", segments::PAGES),
    held!("shmmni", segments::COUNT),
    kept!("shm_rmid_forced", 0, 1),
    Row { name: "shm_next_id", is: Is::Setting(next_id, set_next_id) },
    kept!("sched_rt_period_us", 1_000_000, INT),
    kept!("sched_rt_runtime_us", 950_000, INT),
    fixed!("core_pattern", "core\n"),
    kept!("core_uses_pid", 0, 1),
    kept!("dmesg_restrict", 0, 1),
    kept!("kptr_restrict", 0, 2),
    kept!("panic", 0, INT),
    kept!("panic_on_oops", 0, 1),
    kept!("numa_balancing", 0, 1),
    fixed!("printk", "7\t4\t1\t7\n"),
    kept!("randomize_va_space", 0, 2),
    kept!("tainted", 0, u64::MAX),
    Row { name: "random", is: Is::Table(RANDOM) },
];

fn next_id(_: &(), _: &Caller<'_>, out: &mut Text) -> Result<()> {
    out.print(format_args!("{}\n", segments::NEXT_ID.load(Ordering::Relaxed)))
}

fn set_next_id(_: &(), _: &Caller<'_>, bytes: &[u8]) -> Result<()> {
    let id = i32::try_from(number(bytes)?).map_err(|_| Errno::EINVAL)?;
    segments::NEXT_ID.store(id, Ordering::Relaxed);
    Ok(())
}

const RANDOM: &[Row<()>] = &[
    fixed!("entropy_avail", "256\n"),
    fixed!("poolsize", "256\n"),
    Row { name: "uuid", is: Is::Text(uuid) },
];

/// A random number of 128 bits, as RFC 9562 writes its version 4.
fn uuid(_: &(), _: &Caller<'_>, out: &mut Text) -> Result<()> {
    let mut bytes = [0; 16];
    tree::fill_random(&mut bytes);
    let [high, low] = [0, 8].map(|at| {
        let half = bytes[at..at + 8].iter();
        half.fold(0_u64, |word, byte| word << 8 | u64::from(*byte))
    });
    let (high, low) = (high & !0xf000 | 0x4000, low & !(3 << 62) | 2 << 62);
    out.print(format_args!(
        "{:08x}-{:04x}-{:04x}-",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xffff
    ))?;
    out.print(format_args!("{:04x}-{:012x}\n", low >> 48, low & 0xffff_ffff_ffff))
}

const MEMORY: &[Row<()>] = &[
    held!("overcommit_memory", commit::MODE),
    held!("overcommit_ratio", commit::RATIO),
    held!("overcommit_kbytes", commit::KIB),
    held!("max_map_count", commit::AREAS),
    kept!("admin_reserve_kbytes", 8192, INT),
    kept!("user_reserve_kbytes", 131_072, INT),
    kept!("min_free_kbytes", 8192, INT),
    kept!("mmap_min_addr", PAGE, u64::MAX),
    kept!("panic_on_oom", 0, 2),
    kept!("oom_kill_allocating_task", 0, 1),
    kept!("oom_dump_tasks", 1, 1),
    kept!("page-cluster", 3, 31),
    kept!("vfs_cache_pressure", 100, INT),
    kept!("zone_reclaim_mode", 0, 7),
    kept!("legacy_va_layout", 0, 1),
    kept!("memfd_noexec", 0, 2),
    kept!("unprivileged_userfaultfd", 0, 1),
    kept!("dirty_ratio", 20, 100),
    kept!("dirty_background_ratio", 10, 100),
    kept!("dirty_bytes", 0, u64::MAX),
    kept!("dirty_background_bytes", 0, u64::MAX),
    kept!("dirty_expire_centisecs", 3000, INT),
    kept!("dirty_writeback_centisecs", 500, INT),
    kept!("watermark_scale_factor", 10, 3000),
    kept!("hugetlb_shm_group", 0, INT),
    kept!("stat_interval", 1, INT),
    kept!("compact_unevictable_allowed", 1, 1),
    Row { name: "nr_hugepages", is: Is::Setting(pools::usual, pools::set_usual) },
    Row { name: "nr_hugepages_mempolicy", is: Is::Setting(pools::usual, pools::set_usual) },
    Row { name: "nr_overcommit_hugepages", is: Is::Setting(pools::most, pools::set_most) },
    Row { name: "swappiness", is: Is::Setting(swappiness, set_swappiness) },
    Row { name: "drop_caches", is: Is::Action(drop_caches) },
    Row { name: "compact_memory", is: Is::Action(compact_memory) },
    Row { name: "compaction_proactiveness", is: Is::Setting(proactiveness, set_proactiveness) },
    Row { name: "extfrag_threshold", is: Is::Setting(extfrag, set_extfrag) },
];

const FILES: &[Row<()>] = &[
    kept!("file-max", i64::MAX as u64, i64::MAX as u64),
    kept!("nr_open", files::LIMIT_MAX as u64, INT),
    kept!("pipe-max-size", files::CAPACITY as u64, INT),
    kept!("suid_dumpable", 0, 2),
    kept!("protected_hardlinks", 0, 1),
    kept!("protected_symlinks", 0, 1),
    kept!("lease-break-time", 45, INT),
    kept!("overflowuid", 65534, 65535),
    kept!("overflowgid", 65534, 65535),
];

/// Drops clean pages that can be read again from a disk and have no other reference: 1 asks for
/// pages, 2 for descriptions of files, of which none is cached, and 4 for silence.
fn drop_caches(_: &(), _: &Caller<'_>, bytes: &[u8]) -> Result<()> {
    let what = number(bytes)?;
    if !(1..=4).contains(&what) {
        return Err(Errno::EINVAL);
    }
    for id in mm().files().ids().filter(|_| what & 1 != 0) {
        let stored = mm().files().get(id).and_then(File::store);
        if matches!(stored, Some(Store::ReadOnly | Store::ReadWrite)) {
            // It may be closed meanwhile.
            let _ = mm().files().drop_clean(id, FilePages::new(0, FILE_PAGES_MAX));
        }
    }
    Ok(())
}

fn swappiness(_: &(), _: &Caller<'_>, out: &mut Text) -> Result<()> {
    out.print(format_args!("{}\n", mm().policy().swappiness()))
}

fn set_swappiness(_: &(), _: &Caller<'_>, bytes: &[u8]) -> Result<()> {
    let wanted = u32::try_from(number(bytes)?).map_err(|_| Errno::EINVAL)?;
    mm().policy().set_swappiness(wanted).map_err(|_| Errno::EINVAL)
}

/// Moves folios until no more large blocks can be had.
fn compact_memory(_: &(), _: &Caller<'_>, bytes: &[u8]) -> Result<()> {
    if number(bytes)? != 1 {
        return Err(Errno::EINVAL);
    }
    compact::all();
    Ok(())
}

fn proactiveness(_: &(), _: &Caller<'_>, out: &mut Text) -> Result<()> {
    out.print(format_args!("{}\n", compact::PROACTIVENESS.load(Ordering::Relaxed)))
}

fn set_proactiveness(_: &(), _: &Caller<'_>, bytes: &[u8]) -> Result<()> {
    let wanted = number(bytes)?;
    if wanted > 100 {
        return Err(Errno::EINVAL);
    }
    compact::PROACTIVENESS.store(wanted as u32, Ordering::Relaxed);
    Ok(())
}

fn extfrag(_: &(), _: &Caller<'_>, out: &mut Text) -> Result<()> {
    out.print(format_args!("{}\n", mm().policy().extfrag_threshold()))
}

fn set_extfrag(_: &(), _: &Caller<'_>, bytes: &[u8]) -> Result<()> {
    let wanted = u32::try_from(number(bytes)?).map_err(|_| Errno::EINVAL)?;
    mm().policy().set_extfrag_threshold(wanted).map_err(|_| Errno::EINVAL)
}
