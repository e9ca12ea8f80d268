//! `/sys/kernel/mm/transparent_hugepage`: the library's policy and its counters by size, where
//! Linux's tools look for them.

use alloc::sync::Arc;
use core::fmt::Display;
use core::str::FromStr;
use core::sync::atomic::Ordering;

use quire::cache::MemorySizes;
use quire::fault::Cause;
use quire::stats::Totals;
use quire::units::{Order, OrderSet};
use quire_linux::files::{Caller, Text, What};
use quire_linux::text::{choices, number, word};
use quire_linux::{Errno, Result};
use spin::mutex::SpinMutex;

use super::frames::Census;
use super::table::{Fixed, Is, Row};
use crate::memory::{PAGE_SHIFT, mm};
use crate::task::collapse::{self, SETTINGS, Value};

/// The size of a large leaf: what Linux calls PMD order.
pub(super) const BLOCK: Order = Order::new(21 - PAGE_SHIFT as u8);

const _: () = assert!(PAGE_SHIFT == 12, "the directories below are named for pages of 4 KiB");

/// The directory.
pub(super) const ROWS: &[Row<()>] = &[
    Row { name: "enabled", is: Is::Setting(enabled, set_enabled) },
    Row { name: "defrag", is: Is::Setting(defrag, set_defrag) },
    Row { name: "hpage_pmd_size", is: Is::Text(block_bytes) },
    Row { name: "shmem_enabled", is: Is::Setting(shared, set_shared) },
    value::<USE_ZERO_PAGE>("use_zero_page"),
    value::<SHRINK_UNDERUSED>("shrink_underused"),
    Row { name: "khugepaged", is: Is::Table(BACKGROUND) },
    Row { name: "hugepages-8kB", is: Is::Directory(size::<1>) },
    Row { name: "hugepages-16kB", is: Is::Directory(size::<2>) },
    Row { name: "hugepages-32kB", is: Is::Directory(size::<3>) },
    Row { name: "hugepages-64kB", is: Is::Directory(size::<4>) },
    Row { name: "hugepages-128kB", is: Is::Directory(size::<5>) },
    Row { name: "hugepages-256kB", is: Is::Directory(size::<6>) },
    Row { name: "hugepages-512kB", is: Is::Directory(size::<7>) },
    Row { name: "hugepages-1024kB", is: Is::Directory(size::<8>) },
    Row { name: "hugepages-2048kB", is: Is::Directory(size::<9>) },
];

/// Collapse in the background. The counts are of the library's scan.
const BACKGROUND: &[Row<()>] = &[
    value::<SCAN>("pages_to_scan"),
    value::<SCAN_SLEEP>("scan_sleep_millisecs"),
    value::<ALLOC_SLEEP>("alloc_sleep_millisecs"),
    value::<NONE_MOST>("max_ptes_none"),
    value::<SWAP_MOST>("max_ptes_swap"),
    value::<SHARED_MOST>("max_ptes_shared"),
    value::<DEFRAG>("defrag"),
    Row {
        name: "pages_collapsed",
        is: Is::Text(|_, _, out| line(out, &collapse::COLLAPSED.load(Ordering::Relaxed))),
    },
    Row {
        name: "full_scans",
        is: Is::Text(|_, _, out| line(out, &collapse::ROUNDS.load(Ordering::Relaxed))),
    },
];

fn enabled(_: &(), _: &Caller<'_>, out: &mut Text) -> Result<()> {
    line(out, &mm().policy().enabled())
}

fn set_enabled(_: &(), _: &Caller<'_>, bytes: &[u8]) -> Result<()> {
    mm().policy().set_enabled(parsed(bytes)?);
    collapse::hasten();
    Ok(())
}

fn defrag(_: &(), _: &Caller<'_>, out: &mut Text) -> Result<()> {
    line(out, &mm().policy().defrag())
}

fn set_defrag(_: &(), _: &Caller<'_>, bytes: &[u8]) -> Result<()> {
    mm().policy().set_defrag(parsed(bytes)?);
    Ok(())
}

fn block_bytes(_: &(), _: &Caller<'_>, out: &mut Text) -> Result<()> {
    line(out, &BLOCK.bytes(PAGE_SHIFT))
}

fn line(out: &mut Text, value: &dyn Display) -> Result<()> {
    out.print(format_args!("{value}\n"))
}

/// One of a choice's words.
fn parsed<T: FromStr>(bytes: &[u8]) -> Result<T> {
    word(bytes)?.parse().map_err(|_| Errno::EINVAL)
}

/// The directory of a size.
fn size<const ORDER: u8>(_: &(), _: &Caller<'_>, inode: u64) -> Result<What> {
    Ok(What::Directory(Arc::new(Fixed { rows: SIZE, of: Order::new(ORDER), inode })))
}

const SIZE: &[Row<Order>] = &[
    Row { name: "enabled", is: Is::Setting(size_enabled, set_size_enabled) },
    Row { name: "file_enabled", is: Is::Setting(size_file, set_size_file) },
    Row { name: "shmem_enabled", is: Is::Setting(size_shared, set_size_shared) },
    Row { name: "stats", is: Is::Table(STATS) },
];

fn size_enabled(of: &Order, _: &Caller<'_>, out: &mut Text) -> Result<()> {
    line(out, &mm().policy().size(*of))
}

fn set_size_enabled(of: &Order, _: &Caller<'_>, bytes: &[u8]) -> Result<()> {
    mm().policy().set_size(*of, parsed(bytes)?).map_err(|_| Errno::EINVAL)
}

/// Beyond Linux: the sizes for files, and the size for code. (It was proposed there.)
fn size_file(of: &Order, _: &Caller<'_>, out: &mut Text) -> Result<()> {
    line(out, &mm().files().policy().size(*of))
}

fn set_size_file(of: &Order, _: &Caller<'_>, bytes: &[u8]) -> Result<()> {
    mm().files().policy().set_size(*of, parsed(bytes)?).map_err(|_| Errno::EINVAL)
}

/// Counters that stay zero: other charges, compressed swap, shared memory, splits.
const fn none(name: &'static str) -> Row<Order> {
    Row { name, is: Is::Text(|_, _, out| out.push(b"0\n")) }
}

const STATS: &[Row<Order>] = &[
    Row {
        name: "anon_fault_alloc",
        is: Is::Text(|of, _, out| total(out, |totals| totals.alloc[of.index()])),
    },
    Row {
        name: "anon_fault_fallback",
        is: Is::Text(|of, _, out| total(out, |totals| fallbacks(totals, *of))),
    },
    Row {
        name: "anon_fault_fallback_charge",
        is: Is::Text(|of, _, out| {
            total(out, |totals| totals.fallback[of.index()][Cause::Charge as usize])
        }),
    },
    none("zswpout"),
    Row { name: "swpin", is: Is::Text(|of, _, out| total(out, |totals| totals.swpin[of.index()])) },
    none("swpin_fallback"),
    none("swpin_fallback_charge"),
    Row {
        name: "swpout",
        is: Is::Text(|of, _, out| total(out, |totals| totals.swpout[of.index()])),
    },
    Row {
        name: "swpout_fallback",
        is: Is::Text(|of, _, out| total(out, |totals| totals.swpout_fallback[of.index()])),
    },
    none("shmem_alloc"),
    none("shmem_fallback"),
    none("shmem_fallback_charge"),
    none("split"),
    none("split_failed"),
    none("split_deferred"),
    Row {
        name: "nr_anon",
        is: Is::Text(|of, _, out| line(out, &Census::take().folios[of.index()])),
    },
    Row {
        name: "nr_anon_partially_mapped",
        is: Is::Text(|of, _, out| line(out, &Census::take().partial[of.index()])),
    },
];

fn total(out: &mut Text, pick: impl Fn(&Totals) -> u64) -> Result<()> {
    line(out, &pick(&mm().totals()))
}

/// Faults that wanted this order and got less, whatever the cause.
pub(super) fn fallbacks(totals: &Totals, order: Order) -> u64 {
    totals.fallback[order.index()].iter().sum()
}

/// The THP settings of shared memory: for all of it, and by size. The last two of the first list
/// stand above the sizes: no large folio at all, or every size.
const SHARED: &[&str] = &["always", "within_size", "advise", "never", "deny", "force"];
const SIZE_SHARED: &[&str] = &["always", "inherit", "within_size", "advise", "never"];

/// The choice for all of it, then by order. At first each size inherits `advise`.
static SHARED_CHOICES: SpinMutex<[u8; BLOCK.index() + 1]> = SpinMutex::new({
    let mut choices = [1; BLOCK.index() + 1];
    choices[0] = 2;
    choices
});

fn shared(_: &(), _: &Caller<'_>, out: &mut Text) -> Result<()> {
    let choice = SHARED_CHOICES.lock()[0];
    choices(out, SHARED, choice.into())
}

fn set_shared(_: &(), _: &Caller<'_>, bytes: &[u8]) -> Result<()> {
    choose(0, SHARED, bytes)
}

fn size_shared(of: &Order, _: &Caller<'_>, out: &mut Text) -> Result<()> {
    let choice = SHARED_CHOICES.lock()[of.index()];
    choices(out, SIZE_SHARED, choice.into())
}

fn set_size_shared(of: &Order, _: &Caller<'_>, bytes: &[u8]) -> Result<()> {
    choose(of.index(), SIZE_SHARED, bytes)
}

fn choose(at: usize, words: &[&str], bytes: &[u8]) -> Result<()> {
    let wanted = word(bytes)?;
    let choice = words.iter().position(|word| *word == wanted).ok_or(Errno::EINVAL)?;
    let mut choices = SHARED_CHOICES.lock();
    choices[at] = choice as u8;
    // Not without the lock: of two writers, the last has seen both choices.
    mm().files().policy().set_memory_sizes(memory_sizes(&choices));
    Ok(())
}

/// The sizes that these choices allow. A folio never exceeds its file: `within_size` is `always`.
/// `advise` for all of shared memory means: as anonymous memory, for which it is the default, too.
fn memory_sizes(choices: &[u8; BLOCK.index() + 1]) -> MemorySizes {
    let none = OrderSet::EMPTY;
    let mut sizes = MemorySizes { always: none, advised: none, alike: none };
    let top = SHARED[choices[0] as usize];
    for (order, &choice) in choices.iter().enumerate().skip(1) {
        let of = OrderSet::of(Order::new(order as u8));
        match (top, SIZE_SHARED[choice as usize]) {
            ("deny", _) => {}
            ("force", _)
            | (_, "always" | "within_size")
            | ("always" | "within_size", "inherit") => sizes.always = sizes.always | of,
            ("advise", "inherit") => sizes.alike = sizes.alike | of,
            (_, "advise") => sizes.advised = sizes.advised | of,
            _ => {}
        }
    }
    sizes
}

const USE_ZERO_PAGE: usize = 0;
const SHRINK_UNDERUSED: usize = 1;
const SCAN: usize = 2;
const SCAN_SLEEP: usize = 3;
const ALLOC_SLEEP: usize = 4;
const NONE_MOST: usize = 5;
const SWAP_MOST: usize = 6;
const SHARED_MOST: usize = 7;
const DEFRAG: usize = 8;

static ZERO_PAGE: Value = Value::between(1, 0, 1);
static UNDERUSED: Value = Value::between(1, 0, 1);

/// By their numbers.
static VALUES: [&Value; 9] = [
    &ZERO_PAGE,
    &UNDERUSED,
    &SETTINGS.pages_to_scan,
    &SETTINGS.scan_sleep_millisecs,
    &SETTINGS.alloc_sleep_millisecs,
    &SETTINGS.max_ptes_none,
    &SETTINGS.max_ptes_swap,
    &SETTINGS.max_ptes_shared,
    &SETTINGS.defrag,
];

/// Lets reclaim look for pages of zeroes, or not, as the values say. With Linux's defaults it does
/// not: their threshold is more pages of zeroes than a block has.
fn look_for_zeroes() {
    let most = SETTINGS.max_ptes_none.value.load(Ordering::Relaxed) as u32;
    let looks = UNDERUSED.value.load(Ordering::Relaxed) != 0;
    let can_be_more = u64::from(most) + 1 < BLOCK.pages();
    mm().policy().set_zeroes_most((looks && can_be_more).then_some(most));
}

/// A row for number `AT`.
const fn value<const AT: usize>(name: &'static str) -> Row<()> {
    Row { name, is: Is::Setting(value_of::<AT>, set_value::<AT>) }
}

fn value_of<const AT: usize>(_: &(), _: &Caller<'_>, out: &mut Text) -> Result<()> {
    line(out, &VALUES[AT].value.load(Ordering::Relaxed))
}

fn set_value<const AT: usize>(_: &(), _: &Caller<'_>, bytes: &[u8]) -> Result<()> {
    let (value, wanted) = (VALUES[AT], number(bytes)?);
    if !(value.least..=value.most).contains(&wanted) {
        return Err(Errno::EINVAL);
    }
    value.value.store(wanted, Ordering::Relaxed);
    if AT >= SCAN {
        collapse::hasten();
    }
    look_for_zeroes();
    Ok(())
}
