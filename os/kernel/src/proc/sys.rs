//! `/sys`: memory settings, CPUs, and Quire's own files.

use alloc::sync::Arc;
use alloc::vec::Vec;

use quire::fault::{Cause, SizePolicy};
use quire::limits::ORDERS;
use quire::stats::Event;
use quire::units::Order;
use quire_linux::files::{Caller, Kind, Text, What};
use quire_linux::text::{number, word};
use quire_linux::{Errno, Result};

use super::table::{Fixed, Is, Many, Numbers, Row};
use super::{pools, thp};
use crate::isa;
use crate::memory::{Memory, PAGE_SHIFT, mm};
use crate::task::processes;

/// The root of `/sys`.
pub(super) fn root() -> Fixed<()> {
    Fixed { rows: ROWS, of: (), inode: 0 }
}

const ROWS: &[Row<()>] = &[
    Row { name: "kernel", is: Is::Table(KERNEL) },
    Row { name: "devices", is: Is::Table(DEVICES) },
    // Control groups are mounted there.
    Row { name: "fs", is: Is::Table(&[Row { name: "cgroup", is: Is::Table(&[]) }]) },
];

const KERNEL: &[Row<()>] =
    &[Row { name: "debug", is: Is::Table(DEBUG) }, Row { name: "mm", is: Is::Table(MEMORY) }];

/// The files that Linux has in debugfs there.
const DEBUG: &[Row<()>] = &[Row { name: "split_huge_pages", is: Is::Action(super::split::split) }];

const MEMORY: &[Row<()>] = &[
    Row { name: "transparent_hugepage", is: Is::Table(thp::ROWS) },
    Row { name: "hugepages", is: Is::Table(pools::ROWS) },
    Row { name: "quire", is: Is::Table(QUIRE) },
];

/// Beyond Linux.
const QUIRE: &[Row<()>] = &[
    Row { name: "check", is: Is::Text(check) },
    Row { name: "copy_most", is: Is::Setting(copy_most, set_copy_most) },
    Row { name: "counters", is: Is::Text(counters) },
    Row { name: "exec_tiers", is: Is::Setting(exec_tiers, set_exec_tiers) },
    Row { name: "behind", is: Is::Text(behind) },
    Row { name: "fallbacks", is: Is::Text(fallbacks) },
    Row { name: "read_ahead_kb", is: Is::Setting(read_ahead, set_read_ahead) },
    Row { name: "sizes", is: Is::Setting(sizes, set_sizes) },
];

/// Lets the library's walkers verify everything: tables, areas, folios, free frames. Its result
/// holds only while nothing else runs, since concurrent changes look like errors.
fn check(_: &(), _: &Caller<'_>, out: &mut Text) -> Result<()> {
    let mut memories: Vec<Arc<Memory>> = Vec::new();
    let mut next = processes(1);
    while let Some(process) = next {
        let memory = process.memory();
        let is_new = |memory: &Arc<Memory>| !memories.iter().any(|old| Arc::ptr_eq(old, memory));
        if let Some(memory) = memory.filter(is_new) {
            memories.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            memories.push(memory);
        }
        next = processes(process.pid + 1);
    }
    let mut spaces = Vec::new();
    spaces.try_reserve_exact(memories.len()).map_err(|_| Errno::ENOMEM)?;
    spaces.extend(memories.iter().map(|memory| memory.space()));
    match quire::check::system(mm(), &spaces) {
        Ok(totals) => out.print(format_args!("ok {totals:?}\n")),
        Err(violation) => out.print(format_args!("broken: {violation}\n")),
    }
}

/// The largest folio, in bytes, that a write to a shared page is copied into.
fn copy_most(_: &(), _: &Caller<'_>, out: &mut Text) -> Result<()> {
    out.print(format_args!("{}\n", mm().policy().copy_most().bytes(PAGE_SHIFT)))
}

/// Takes bytes: a power of two from a base page up.
fn set_copy_most(_: &(), _: &Caller<'_>, bytes: &[u8]) -> Result<()> {
    let order = Order::of_bytes(number(bytes)?, PAGE_SHIFT).ok_or(Errno::EINVAL)?;
    if order.index() >= ORDERS {
        return Err(Errno::EINVAL);
    }
    mm().policy().set_copy_most(order);
    Ok(())
}

/// All events, and the copies by size.
fn counters(_: &(), _: &Caller<'_>, out: &mut Text) -> Result<()> {
    let totals = mm().totals();
    for &event in Event::ALL {
        out.print(format_args!("{} {}\n", event.name(), totals.event(event)))?;
    }
    for (order, count) in totals.copy.iter().enumerate().filter(|(_, count)| **count > 0) {
        out.print(format_args!("cow_copy_{}kB {count}\n", kib(order)))?;
    }
    Ok(())
}

/// Pages of compressed memory that are on the disk behind it, that went there and came back, and
/// how often something could not go; nothing where there is none.
fn behind(_: &(), _: &Caller<'_>, out: &mut Text) -> Result<()> {
    for (name, count) in crate::disk::counts().into_iter().flatten() {
        out.print(format_args!("{name} {count}\n"))?;
    }
    Ok(())
}

/// Why faults got smaller folios than they wanted: size, cause, how often.
fn fallbacks(_: &(), _: &Caller<'_>, out: &mut Text) -> Result<()> {
    for (order, causes) in mm().totals().fallback.iter().enumerate() {
        for (cause, count) in Cause::ALL.iter().zip(causes).filter(|(_, count)| **count > 0) {
            out.print(format_args!("{}kB {} {count}\n", kib(order), cause.name()))?;
        }
    }
    Ok(())
}

/// The choices of all sizes that have one, up to the largest folio: `16K:always;2048K:inherit`.
fn sizes(_: &(), _: &Caller<'_>, out: &mut Text) -> Result<()> {
    let mut gap = "";
    for order in 1..ORDERS {
        let choice = mm().policy().size(Order::new(order as u8));
        if choice != SizePolicy::Never {
            out.print(format_args!("{gap}{}K:{}", kib(order), choice.word()))?;
            gap = ";";
        }
    }
    out.push(b"\n")
}

/// Takes the same, as Linux's boot parameter `thp_anon` does; sizes that are not named become
/// `never`.
fn set_sizes(_: &(), _: &Caller<'_>, bytes: &[u8]) -> Result<()> {
    mm().policy().set_sizes(word(bytes)?, PAGE_SHIFT).map_err(|_| Errno::EINVAL)
}

/// The sizes that are preferred for code: `64K,2048K`, or `none`.
fn exec_tiers(_: &(), _: &Caller<'_>, out: &mut Text) -> Result<()> {
    let tiers = mm().files().policy().preference().exec;
    if tiers.is_empty() {
        return out.push(b"none\n");
    }
    let mut gap = "";
    for order in (1..ORDERS).filter(|order| tiers.contains(Order::new(*order as u8))) {
        out.print(format_args!("{gap}{}K", kib(order)))?;
        gap = ",";
    }
    out.push(b"\n")
}

/// Takes the same. Linux knows one size for code; that is set by `file_enabled`.
fn set_exec_tiers(_: &(), _: &Caller<'_>, bytes: &[u8]) -> Result<()> {
    mm().files().policy().set_tiers(word(bytes)?, PAGE_SHIFT).map_err(|_| Errno::EINVAL)
}

/// The largest readahead of any file, as Linux has it for each device.
fn read_ahead(_: &(), _: &Caller<'_>, out: &mut Text) -> Result<()> {
    out.print(format_args!("{}\n", mm().files().policy().window() << (PAGE_SHIFT - 10)))
}

fn set_read_ahead(_: &(), _: &Caller<'_>, bytes: &[u8]) -> Result<()> {
    mm().files().policy().set_window(number(bytes)? >> (PAGE_SHIFT - 10));
    Ok(())
}

/// The size of an order, in units of 1024 bytes.
fn kib(order: usize) -> u64 {
    1 << (order + PAGE_SHIFT as usize - 10)
}

const DEVICES: &[Row<()>] = &[Row { name: "system", is: Is::Table(SYSTEM) }];

const SYSTEM: &[Row<()>] =
    &[Row { name: "cpu", is: Is::Directory(cpus) }, Row { name: "node", is: Is::Table(NODES) }];

const NODES: &[Row<()>] = &[
    Row { name: "online", is: Is::Text(|_, _, out| out.push(b"0\n")) },
    Row { name: "possible", is: Is::Text(|_, _, out| out.push(b"0\n")) },
    Row { name: "has_memory", is: Is::Text(|_, _, out| out.push(b"0\n")) },
    Row { name: "has_cpu", is: Is::Text(|_, _, out| out.push(b"0\n")) },
    Row { name: "node0", is: Is::Table(NODE) },
];

const NODE: &[Row<()>] = &[
    Row { name: "cpulist", is: Is::Text(|_, _, out| list(out)) },
    Row { name: "distance", is: Is::Text(|_, _, out| out.push(b"10\n")) },
];

const CPUS: &[Row<()>] = &[
    Row { name: "online", is: Is::Text(|_, _, out| list(out)) },
    Row { name: "possible", is: Is::Text(|_, _, out| list(out)) },
    Row { name: "present", is: Is::Text(|_, _, out| list(out)) },
    Row { name: "offline", is: Is::Text(|_, _, out| out.push(b"\n")) },
    Row { name: "isolated", is: Is::Text(|_, _, out| out.push(b"\n")) },
    Row {
        name: "kernel_max",
        is: Is::Text(|_, _, out| out.print(format_args!("{}\n", isa::MAX_CPUS - 1))),
    },
];

/// The CPUs, as a list.
fn list(out: &mut Text) -> Result<()> {
    match isa::cpu_count() {
        0 | 1 => out.push(b"0\n"),
        count => out.print(format_args!("0-{}\n", count - 1)),
    }
}

fn cpus(_: &(), _: &Caller<'_>, inode: u64) -> Result<What> {
    let rows = Fixed { rows: CPUS, of: (), inode };
    Ok(What::Directory(Arc::new(Many { rows, of: Cpus })))
}

/// A directory for each CPU.
struct Cpus;

impl Numbers for Cpus {
    const PREFIX: &'static str = "cpu";
    const KIND: Kind = Kind::Directory;

    fn next(&self, from: u32) -> Option<u32> {
        ((from as usize) < isa::cpu_count()).then_some(from)
    }

    fn inode(&self, number: u32) -> u64 {
        u64::from(number + 1) << 32
    }

    fn make(&self, _: &Caller<'_>, number: u32) -> Result<What> {
        Ok(What::Directory(Arc::new(Fixed { rows: CPU, of: number, inode: self.inode(number) })))
    }
}

const CPU: &[Row<u32>] = &[
    Row { name: "online", is: Is::Text(|_, _, out| out.push(b"1\n")) },
    Row { name: "topology", is: Is::Table(TOPOLOGY) },
];

const TOPOLOGY: &[Row<u32>] = &[
    Row { name: "core_id", is: Is::Text(|of, _, out| out.print(format_args!("{of}\n"))) },
    Row { name: "physical_package_id", is: Is::Text(|_, _, out| out.push(b"0\n")) },
    Row {
        name: "thread_siblings_list",
        is: Is::Text(|of, _, out| out.print(format_args!("{of}\n"))),
    },
];
