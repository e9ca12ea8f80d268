//! A small kernel that embeds Quire from scratch, on QEMU's riscv64 `virt` machine: see README.md.
//!
//! | module | about |
//! |---|---|
//! | `boot` | the first instructions of each hart |
//! | `ram` | the device tree; memory before there is a memory manager |
//! | `board` | the hardware as the library sees it |
//! | `mmu` | the kernel's half of each address space |
//! | `trap` | into user mode and back |
//! | `process` | spaces, programs that run in them, their faults |
//! | `disk` | a file and a swap device in RAM |
//! | `console` | lines of text; the machine's end |
//! | `program`, `demo` | what runs, and what is shown |
#![no_std]
#![no_main]

mod board;
mod boot;
mod console;
mod demo;
mod disk;
mod mmu;
mod process;
mod program;
mod ram;
mod trap;

use quire::arch::{Arch, Sv39};
use quire::cache::File;
use quire::hw::{Banks, Chosen};
use quire::phys::{CpuCache, Slot};
use quire::stats::Counters;
use quire::swap::Swap;
use quire::units::{Asid, Pfn};
use quire::{Mm, Parts};
use spin::Once;

use board::Board;
use boot::CPUS;
use ram::Machine;

pub type Format = Sv39;
pub type Space = quire::space::Space<Format>;
pub const PAGE_SHIFT: u32 = Format::PAGE_SHIFT;
pub const PAGE: u64 = 1 << PAGE_SHIFT;

static BOARD: Once<Board> = Once::new();
static MM: Once<Mm<'static, Format, Board>> = Once::new();
static KERNEL_ROOT: Once<Pfn> = Once::new();

// The library's records, but for the slots: their number is known at run time alone.
static COUNTERS: [Counters; CPUS] = [const { Counters::new() }; CPUS];
static FILES: [File; 2] = [const { File::new() }; 2];
static SWAPS: [Swap; 1] = [Swap::new()];

/// The memory manager.
pub fn mm() -> &'static Mm<'static, Format, Board> {
    MM.get().expect("the memory manager is set up")
}

/// The root whose upper half is in all roots.
pub fn kernel_root() -> Pfn {
    *KERNEL_ROOT.get().expect("the kernel has tables")
}

/// Entered by each CPU on its own stack, under the boot table.
extern "C" fn enter(hart: usize, tree: usize, cpu: usize) -> ! {
    if cpu == 0 {
        set_up(Machine::read(tree, hart));
    }
    mmu::set_root(kernel_root(), Asid(0));
    mmu::flush_all();
    if cpu != 0 {
        demo::work();
    }
    (1..CPUS).for_each(|number| boot::start(mm().hardware().harts[number], number));
    demo::show().unwrap_or_else(|error| panic!("{error}"));
    tell!("tiny: all is well");
    console::end(true)
}

/// From the machine's RAM to a memory manager.
fn set_up(mut machine: Machine) {
    let Machine { ram: pieces, finisher, harts, contiguous, .. } = machine;
    console::set_up(finisher);
    tell!("harts {harts:?}, {}, contiguous blocks: {contiguous}", Format::NAME);
    // First the slots, one for each frame from the first to the last: they are no RAM for programs.
    let span = machine.span();
    let slots = machine.array(span.count as usize, Slot::empty);
    let caches = machine.array(CPUS, CpuCache::new);
    let zones = machine.array(1, || span);
    // Then the board: all that is left, as banks, and with them the right to each frame.
    let mut ram = Banks::new();
    let mut runs = machine.banks().map(|(bank, run)| {
        ram.add(bank).expect("pieces of RAM that do not touch");
        run
    });
    let mut first = runs.next();
    let mut rest = [const { None }; ram::PIECES];
    rest.iter_mut().zip(runs).for_each(|(slot, run)| *slot = Some(run));
    let clears = Chosen::default_for_cpu();
    let board = BOARD.call_once(|| Board { ram, clears, harts, contiguous });
    // Then the kernel's tables, of the first bank's first frames.
    KERNEL_ROOT.call_once(|| mmu::build(board, &pieces, finisher, &mut first).start());
    // Then the library, which gets all other frames.
    let parts = Parts::new(span.start, slots, caches, &COUNTERS, zones);
    let parts = parts.files(&FILES).swaps(&SWAPS);
    MM.call_once(|| Mm::new(board, parts).expect("sound parts"));
    for run in first.into_iter().chain(rest.into_iter().flatten()) {
        mm().add(run).expect("frames of the zone");
    }
}
