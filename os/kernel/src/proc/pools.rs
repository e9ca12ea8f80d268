//! `/sys/kernel/mm/hugepages`, and what /proc says of reserved folios.

use alloc::sync::Arc;

use quire::limits::GROUP_ORDER;
use quire::units::Order;
use quire::{Compaction, PoolCounts};
use quire_linux::files::{Caller, Text, What};
use quire_linux::text::number;
use quire_linux::{Errno, Result};

use super::table::{Fixed, Is, Row};
use crate::memory::{Everyone, PAGE_SHIFT, mm, reserved};

/// The directory of a size.
macro_rules! size {
    ($name:literal, $bits:literal) => {
        Row { name: $name, is: Is::Directory(size::<{ $bits - PAGE_SHIFT as u8 }>) }
    };
}

/// The directory: the sizes of this ISA, as `reserved::sizes` has them.
pub(super) const ROWS: &[Row<()>] = &[
    #[cfg(not(target_arch = "x86_64"))]
    size!("hugepages-64kB", 16),
    size!("hugepages-2048kB", 21),
    #[cfg(target_arch = "aarch64")]
    size!("hugepages-32768kB", 25),
    size!("hugepages-1048576kB", 30),
];

fn size<const ORDER: u8>(_: &(), _: &Caller<'_>, inode: u64) -> Result<What> {
    Ok(What::Directory(Arc::new(Fixed { rows: SIZE, of: Order::new(ORDER), inode })))
}

const SIZE: &[Row<Order>] = &[
    Row { name: "nr_hugepages", is: Is::Setting(size_of, set_size_of) },
    Row { name: "nr_hugepages_mempolicy", is: Is::Setting(size_of, set_size_of) },
    Row { name: "nr_overcommit_hugepages", is: Is::Setting(most_of, set_most_of) },
    Row { name: "free_hugepages", is: Is::Text(|of, _, out| line(out, of, |it| it.free)) },
    Row { name: "resv_hugepages", is: Is::Text(|of, _, out| line(out, of, |it| it.promised)) },
    Row { name: "surplus_hugepages", is: Is::Text(|of, _, out| line(out, of, |it| it.surplus)) },
];

fn line(out: &mut Text, of: &Order, which: fn(&PoolCounts) -> u64) -> Result<()> {
    out.print(format_args!("{}\n", which(&reserved::counts(*of))))
}

/// All folios of the pool, a surplus included, as on Linux.
fn size_of(of: &Order, _: &Caller<'_>, out: &mut Text) -> Result<()> {
    line(out, of, |counts| counts.size)
}

fn set_size_of(of: &Order, _: &Caller<'_>, bytes: &[u8]) -> Result<()> {
    reserved::resize(*of, number(bytes)?, |lacks| {
        // Larger blocks come together only if what is in all their groups can move.
        let blocks = lacks << of.get().saturating_sub(GROUP_ORDER.get());
        let goal = Compaction { order: (*of).min(GROUP_ORDER), blocks, pages: u64::MAX };
        mm().reclaim().compact(goal, &Everyone, &mut || {});
        true
    });
    Ok(())
}

fn most_of(of: &Order, _: &Caller<'_>, out: &mut Text) -> Result<()> {
    line(out, of, |counts| counts.surplus_most)
}

fn set_most_of(of: &Order, _: &Caller<'_>, bytes: &[u8]) -> Result<()> {
    // Linux has no such folios beyond what its page allocator gives.
    if *of > Order::new(GROUP_ORDER.get() + 1) {
        return Err(Errno::EINVAL);
    }
    mm().files().set_surplus_most(*of, number(bytes)?).ok_or(Errno::EINVAL)
}

/// `nr_hugepages` of /proc: the pool of the usual size.
pub(super) fn usual(_: &(), _: &Caller<'_>, out: &mut Text) -> Result<()> {
    line(out, &reserved::USUAL, |counts| counts.size - counts.surplus)
}

pub(super) fn set_usual(_: &(), who: &Caller<'_>, bytes: &[u8]) -> Result<()> {
    set_size_of(&reserved::USUAL, who, bytes)
}

/// `nr_overcommit_hugepages`.
pub(super) fn most(_: &(), who: &Caller<'_>, out: &mut Text) -> Result<()> {
    most_of(&reserved::USUAL, who, out)
}

pub(super) fn set_most(_: &(), who: &Caller<'_>, bytes: &[u8]) -> Result<()> {
    set_most_of(&reserved::USUAL, who, bytes)
}

/// The lines of `meminfo`: the usual size, and the bytes of all pools.
pub(super) fn lines(out: &mut Text) -> Result<()> {
    let PoolCounts { size, free, promised, surplus, .. } = reserved::counts(reserved::USUAL);
    for (name, count) in [("Total", size), ("Free", free), ("Rsvd", promised), ("Surp", surplus)] {
        out.print(format_args!("HugePages_{name}:{count:width$}\n", width = 17 - name.len()))?;
    }
    let kib = |order: Order| order.bytes(PAGE_SHIFT) >> 10;
    let all: u64 = reserved::sizes().map(|order| reserved::counts(order).size * kib(order)).sum();
    let usual = kib(reserved::USUAL);
    out.print(format_args!("Hugepagesize:   {usual:8} kB\nHugetlb:        {all:8} kB\n"))
}
