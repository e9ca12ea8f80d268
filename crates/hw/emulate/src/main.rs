//! Clears and copies extents with every backend of the ISA it is built for, and checks each byte.
//!
//! It is a Linux program without a standard library: it makes its three system calls itself, so it
//! can be built for the bare targets and run by `qemu-aarch64` and `qemu-riscv64`. Prints the name
//! of each backend that passed; exits with 1 on the first wrong byte.
#![no_std]
#![no_main]

#[cfg(target_arch = "aarch64")]
mod bytes;
mod linux;

use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use quire_hw::extent::{Backend, CopyBackend, GRAIN};

/// Bytes of one arena: some pages, and room to shift within.
const ARENA: usize = 40 * GRAIN;

/// Memory at a page boundary.
#[repr(C, align(4096))]
struct Arena([AtomicU64; ARENA / 8]);

static TARGET: Arena = Arena([const { AtomicU64::new(0) }; ARENA / 8]);
static SOURCE: Arena = Arena([const { AtomicU64::new(0) }; ARENA / 8]);
static FAILED: AtomicBool = AtomicBool::new(false);

/// A word that is never zero, nor the same in both arenas.
fn pattern(at: usize, seed: u64) -> u64 {
    (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed | 0x0101_0101_0101_0101
}

fn check(what: &str, name: &str, expected: impl Fn(usize) -> u64) {
    for (at, word) in TARGET.0.iter().enumerate() {
        if word.load(Relaxed) != expected(at) {
            linux::print(&["FAILED: ", what, " with ", name, "\n"]);
            FAILED.store(true, Relaxed);
            return;
        }
    }
}

fn paint(arena: &Arena, seed: u64) {
    for (at, word) in arena.0.iter().enumerate() {
        word.store(pattern(at, seed), Relaxed);
    }
}

/// Extents as first word and word count: whole pages, and ragged ones, which use the safe entry.
const EXTENTS: [(usize, usize); 8] = [
    (0, 512),
    (512, 512),
    (1024, 3 * 512),
    (512, 16 * 512),
    (2 * 512, 37 * 512),
    (0, ARENA / 8),
    (3, 5 * 512 + 77),
    (511, 2),
];

fn clears(backend: Backend) {
    for (first, count) in EXTENTS {
        paint(&TARGET, 1);
        backend.clear_words(&TARGET.0[first..first + count]);
        let inside = first..first + count;
        let expected = |at| if inside.contains(&at) { 0 } else { pattern(at, 1) };
        check("clear", backend.name(), expected);
    }
    linux::print(&["clear ", backend.name(), "\n"]);
}

fn copies(backend: CopyBackend) {
    for (first, count) in EXTENTS {
        paint(&TARGET, 1);
        // The source lies elsewhere than the target, where there is room.
        let from = if first + count + 1024 <= ARENA / 8 { first + 1024 } else { first };
        backend.copy_words(&TARGET.0[first..first + count], &SOURCE.0[from..from + count]);
        let inside = first..first + count;
        let copied = |at: usize| pattern(at - first + from, 2);
        let expected = |at| if inside.contains(&at) { copied(at) } else { pattern(at, 1) };
        check("copy", backend.name(), expected);
    }
    linux::print(&["copy ", backend.name(), "\n"]);
}

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    Backend::available().for_each(clears);
    #[cfg(target_arch = "riscv64")]
    if let Some(block) = linux::zicboz_block() {
        // SAFETY: Linux reported that every CPU has Zicboz with this block, for programs.
        unsafe { Backend::zicboz(block) }.into_iter().for_each(clears);
    }
    paint(&SOURCE, 2);
    CopyBackend::available().for_each(copies);
    #[cfg(target_arch = "aarch64")]
    if !bytes::check() {
        FAILED.store(true, Relaxed);
    }
    linux::exit(FAILED.load(Relaxed).into())
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    linux::print(&["FAILED: panic\n"]);
    linux::exit(101)
}
