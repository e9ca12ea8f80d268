//! Promises of memory: how much programs may map beyond what there is (`vm.overcommit_memory`), and
//! how many areas a process may have (`vm.max_map_count`).
//!
//! ```text
//!   0  a mapping alone must not be larger than all memory and swap
//!   1  everything is promised
//!   2  all promises together must not be more than a part of memory, and swap
//! ```
//!
//! A promise is private memory that may be written, or shared memory without a file. The sum over
//! all processes is made when it is asked for: in mode 2, and for `/proc/meminfo`.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use quire::space::{Area, AreaFlags};
use quire::units::Prot;
use quire_linux::files::Text;
use quire_linux::text::number;
use quire_linux::{Errno, Result};
use spin::Once;

use super::space::ALL;
use super::{Memory, PAGE, mm, shared};

/// A number that programs may set. Relaxed: no other state hangs on it.
pub(crate) struct Number {
    value: AtomicU64,
    most: u64,
}

impl Number {
    pub(crate) const fn new(value: u64, most: u64) -> Self {
        Self { value: AtomicU64::new(value), most }
    }

    pub(crate) fn get(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }

    pub(crate) fn show(&self, out: &mut Text) -> Result<()> {
        out.print(format_args!("{}\n", self.get()))
    }

    pub(crate) fn set(&self, bytes: &[u8]) -> Result<()> {
        let value = number(bytes)?;
        if value > self.most {
            return Err(Errno::EINVAL);
        }
        self.value.store(value, Ordering::Relaxed);
        Ok(())
    }
}

const INT: u64 = i32::MAX as u64;

/// `overcommit_memory`: the mode.
pub(crate) static MODE: Number = Number::new(0, 2);
/// `overcommit_ratio`: percent of memory that mode 2 promises.
pub(crate) static RATIO: Number = Number::new(50, INT);
/// `overcommit_kbytes`: the same as a number, unless it is zero.
pub(crate) static KIB: Number = Number::new(0, u64::MAX >> 10);
/// `max_map_count`: the most areas of a process.
pub(crate) static AREAS: Number = Number::new(65_530, INT);

/// Bytes of RAM that programs and the heap can have.
static TOTAL: Once<u64> = Once::new();

/// Stores that value, which never changes.
pub(crate) fn set_total(bytes: u64) {
    TOTAL.call_once(|| bytes);
}

/// Bytes of RAM that programs and the heap can have.
pub(crate) fn total_bytes() -> u64 {
    TOTAL.get().copied().unwrap_or(0)
}

fn swap_bytes() -> u64 {
    mm().paging().devices().map(|(_, slots, _)| slots * PAGE).sum()
}

/// Bytes that mode 2 promises in all.
pub(crate) fn limit_bytes() -> u64 {
    let part = match KIB.get() {
        0 => (total_bytes() / 100).saturating_mul(RATIO.get()),
        kib => kib << 10,
    };
    part.saturating_add(swap_bytes())
}

/// Whether memory with these rights is a promise.
/// `has_no_file`: it is zero at first.
pub(crate) fn is_promise(prot: Prot, flags: AreaFlags, has_no_file: bool) -> bool {
    match flags.contains(AreaFlags::SHARED) {
        true => has_no_file,
        false => prot.contains(Prot::WRITE),
    }
}

/// Whether there is a limit of all promises together.
pub(crate) fn is_strict() -> bool {
    MODE.get() == 2
}

/// Pages of private memory that are promised to all processes.
pub(crate) fn promised_pages() -> u64 {
    let memories: Vec<_> = shared::spaces();
    let of = |memory: &Memory| -> u64 {
        let areas = mm().spaces().areas(memory.space(), ALL);
        let promised = areas.filter(|area: &Area| is_promise(area.prot, area.flags, false));
        promised.map(|area| area.span.count()).sum()
    };
    memories.iter().map(|memory| of(memory)).sum()
}

/// Whether `pages` more may be promised; `freely`: the program asks for no promise
/// (`MAP_NORESERVE`), which counts but in mode 2.
///
/// # Errors
/// `ENOMEM`.
pub(crate) fn promise(pages: u64, freely: bool) -> Result<()> {
    let fits = match MODE.get() {
        0 if !freely => pages <= (total_bytes() + swap_bytes()) / PAGE,
        2 => promised_pages().saturating_add(pages) <= limit_bytes() / PAGE,
        _ => true,
    };
    if fits { Ok(()) } else { Err(Errno::ENOMEM) }
}

impl Memory {
    /// Whether the space may get a new area: as on Linux, one more than the most.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn may_map(&self) -> Result<()> {
        self.may_have(AREAS.get() + 1)
    }

    /// Whether an area of the space may be divided.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn may_divide(&self) -> Result<()> {
        self.may_have(AREAS.get())
    }

    /// Whether there are fewer areas. Changes since they were counted last count as two.
    fn may_have(&self, most: u64) -> Result<()> {
        if self.areas_most.fetch_add(2, Ordering::Relaxed) < most {
            return Ok(());
        }
        let count = mm().spaces().areas(self.space(), ALL).count() as u64;
        self.areas_most.store(count + 2, Ordering::Relaxed);
        if count < most { Ok(()) } else { Err(Errno::ENOMEM) }
    }
}
