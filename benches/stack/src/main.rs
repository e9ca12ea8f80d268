//! How much stack each call of Quire uses. It paints the stack, makes the call on every path that
//! it knows, and looks how far the paint is gone. A call that goes deeper than its bound fails.
//!
//! | module | about |
//! |---|---|
//! | `machine` | the first instructions, a console, the end |
//! | `paint` | painting and measuring |
//! | `anon`, `files` | the calls |
#![no_std]
#![no_main]

mod anon;
#[path = "../../text/src/board.rs"]
mod board;
mod files;
mod machine;
mod paint;

use core::cell::UnsafeCell;

use quire::arch::Arch;
use quire::cache::File;
use quire::hw::{Chosen, DirectMap, MemoryTypes, Profile, Ram, Transitions};
use quire::phys::{CpuCache, Slot, Zone};
use quire::stats::Counters;
use quire::swap::Swap;
use quire::units::{PageSpan, Pfn, Vpn};
use quire::{Group, Mm, Parts};

use board::Board;
use paint::Paint;

#[cfg(target_arch = "x86_64")]
pub type Format = quire::arch::X86_64;
#[cfg(target_arch = "aarch64")]
pub type Format = quire::arch::Arm4k;
#[cfg(target_arch = "riscv64")]
pub type Format = quire::arch::Sv39;

pub type Memory = Mm<'static, Format, Board<'static>>;
pub type Space = quire::space::Space<Format>;

/// The bounds, in bytes: of a fault and of calls that change one part of a space; of fork, reclaim,
/// and their like; of two rare calls on files; and of making the memory manager.
pub const FAULT: usize = 3 << 10;
pub const LONG: usize = 4 << 10;
pub const FILES_CHANGE: usize = 5 << 10;
const BEGIN: usize = 1 << 10;

/// Where areas go.
pub const WINDOW: PageSpan = PageSpan::new(Vpn::new(0x1000), Vpn::new(0x100_0000));

const RAM_BYTES: usize = 48 << 20;
const FRAMES: usize = RAM_BYTES >> Format::PAGE_SHIFT;

#[repr(C, align(4096))]
struct Once<T>(UnsafeCell<T>);

// SAFETY: one CPU, and `main` takes each of them once.
unsafe impl<T> Sync for Once<T> {}

impl<T> Once<T> {
    #[allow(clippy::mut_from_ref, reason = "the caller takes it once")]
    /// # Safety
    /// It is called once.
    unsafe fn take(&self) -> &mut T {
        // SAFETY: there is no other reference, as the caller says.
        unsafe { &mut *self.0.get() }
    }
}

static RAM: Once<[u8; RAM_BYTES]> = Once(UnsafeCell::new([0; RAM_BYTES]));
static SLOTS: Once<[Slot; FRAMES]> = Once(UnsafeCell::new([const { Slot::empty() }; FRAMES]));
static CACHES: Once<[CpuCache; 1]> = Once(UnsafeCell::new([CpuCache::new()]));
static COUNTERS: [Counters; 1] = [Counters::new()];
static FILES: Once<[File; 4]> = Once(UnsafeCell::new([const { File::new() }; 4]));
static SWAPS: Once<[Swap; 1]> = Once(UnsafeCell::new([Swap::new()]));
static GROUPS: Once<[Group; 1]> = Once(UnsafeCell::new([Group::new()]));

extern "C" fn main() -> ! {
    // SAFETY: this is the one place, and it is entered once.
    let (ram, slots, caches) = unsafe { (RAM.take(), SLOTS.take(), CACHES.take()) };
    // SAFETY: as above.
    let (files, swaps, groups) = unsafe { (FILES.take(), SWAPS.take(), GROUPS.take()) };
    let (ram, frames) = DirectMap::new(ram, Pfn::new(0x1000), Format::PAGE_SHIFT).expect("pages");
    let profile = Profile {
        transitions: Transitions::Base,
        contiguous: true,
        memory_types: MemoryTypes::ENTRIES,
        near_cache_bytes: 1 << 20,
        clear_unit_bytes: u64::MAX,
    };
    let board = Board { ram: Ram::new(ram, Chosen::default_for_cpu()), profile };
    let mut zones = [Zone::new(frames.span())];
    let mut paint = Paint::new();
    let mut mm = None;
    {
        let (board, zones) = (&raw const board, &raw mut zones);
        // SAFETY: neither ends before the machine does.
        let (board, zones) = unsafe { (&*board, &mut *zones) };
        let parts = Parts::new(frames.start(), slots, caches, &COUNTERS, zones);
        let mut parts = Some(parts.files(files).swaps(swaps).groups(groups));
        paint.measure("Mm::new", BEGIN, || mm = Mm::new(board, parts.take().expect("once")).ok());
    }
    let mm = mm.as_ref().expect("sound parts");
    let mut frames = Some(frames);
    paint.measure("add", FAULT, || mm.add(frames.take().expect("once")).expect("of the zone"));
    tell!("{}: Mm {} bytes, Space {} bytes", Format::NAME, size_of::<Memory>(), size_of::<Space>());
    anon::measure(mm, &mut paint);
    files::measure(mm, &mut paint);
    machine::end(paint.is_good())
}
