//! A small kernel that embeds Quire from scratch, on QEMU's riscv64 `virt` machine: see README.md.
#![no_std]
#![no_main]

mod board;
mod boot;
mod console;
mod demo;
mod disk;
mod machine;
mod mmu;
mod process;
mod program;
mod trap;

use core::arch::asm;
use core::hint::spin_loop;
use core::ops::Range;
use core::ptr::with_exposed_provenance;
use core::sync::atomic::{AtomicU16, AtomicU64, Ordering, fence};
use core::{array, iter};

use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::{Node, Property};
use quire::arch::{Arch, Attrs, Sv39};
use quire::cache::{File, FileId, FilePages, Reads, Store};
use quire::hw::{Banks, Chosen, Early, Flush, FrameRun, Hardware, HasMemory, Memory, Profile, Ram};
use quire::phys::{CpuCache, Slot, Zone};
use quire::space::{AreaFlags, At, Backing, Request};
use quire::stats::{Counters, Event};
use quire::swap::Swap;
use quire::table::{KernelHalf, Region};
use quire::units::{Access, Asid, CpuId, FrameSpan, Order, PageSpan, Pfn, Prot, Vpn};
use quire::{AllSpaces, Error, Mm, Need, Parts, ReadFailed, Stop, WriteFailed, check};
use riscv::register::{scause, stval};
use sbi_rt::HartMask;
use spin::{Once, RwLock};

use board::Board;
use boot::{CPUS, DIRECT, PARTS, REACH};
use disk::DISKS;
use machine::PIECES;
use process::PROCESSES;
use program::{FILL, PROGRAM, SUM};

pub type Format = Sv39;
pub type Space = quire::space::Space<Format>;
pub const PAGE_SHIFT: u32 = Format::PAGE_SHIFT;
pub const PAGE: u64 = 1 << PAGE_SHIFT;

static BOARD: Once<Board> = Once::new();
static MM: Once<Mm<'static, Format, Board>> = Once::new();
/// The kernel's half, which is under every root.
static KERNEL: Once<KernelHalf> = Once::new();

// The library's records, but for those whose number is known at run time alone.
static COUNTERS: [Counters; CPUS] = [const { Counters::new() }; CPUS];

/// The memory manager.
pub fn mm() -> &'static Mm<'static, Format, Board> {
    MM.get().expect("the memory manager is set up")
}

/// Entered by each CPU on its own stack, under the boot table.
extern "C" fn enter(hart: usize, tree: usize) -> ! {
    let is_first = boot::cpu().index() == 0;
    if is_first {
        set_up(tree, hart);
    }
    mmu::set_root(KERNEL.wait().root(), Asid(0));
    mmu::flush(Asid(0));
    if !is_first {
        demo::work();
    }
    for (number, hart) in mm().hardware().harts.into_iter().enumerate().skip(1) {
        let started = sbi_rt::hart_start(hart, PARTS[0] as usize, number);
        assert!(started.is_ok(), "hart {hart} does not start: {started:?}");
    }
    demo::show().unwrap_or_else(|error| panic!("{error}"));
    tell!("tiny: all is well");
    console::end()
}

/// From the machine's RAM to a memory manager.
fn set_up(tree: usize, hart: usize) {
    let (mut early, harts, contiguous) = machine::read(tree, hart);
    tell!("harts {harts:?}, {}, contiguous blocks: {contiguous}", Format::NAME);
    let span = early.span();
    // First the slots, one for each frame from the first to the last: they are no RAM for programs.
    let slots = early.array((0..span.count as usize).map(|_| Slot::empty())).expect("RAM");
    let caches = early.array([const { CpuCache::new() }; CPUS]).expect("RAM");
    let zones = early.array([Zone::new(span)]).expect("RAM");
    let files = early.array([File::new(), File::new()]).expect("RAM");
    let swaps = early.array([Swap::new()]).expect("RAM");
    // Then the kernel's tables.
    KERNEL.call_once(|| mmu::build(&mut early, span.end()));
    // Then the board: all that is left, as banks, and with them the right to each frame.
    let (banks, rights) = early.banks().expect("whole pages");
    let board = Board { ram: Ram::new(banks, Chosen::default_for_cpu()), harts, contiguous };
    let board = BOARD.call_once(|| board);
    // Then the library, which gets these frames.
    let parts = Parts::new(span.start, slots, caches, &COUNTERS, zones).files(files).swaps(swaps);
    let mm = MM.call_once(|| Mm::new(board, parts).expect("sound parts"));
    rights.into_iter().flatten().for_each(|right| mm.add(right).expect("frames of the zone"));
}
