//! A small kernel on Quire. It runs static Linux programs, unmodified, on x86-64 and arm64.
//!
//! It is here to show the library at work on real hardware, and to be measured beside Linux. So it
//! is small, and thin: all that can be had from well-kept crates is, what needs no machine is in
//! `quire-linux` and tested on any host, and all memory management is Quire.
//!
//! Rooms, left to right; each names only those to its left:
//!
//! ```text
//!   isa ──► memory ──► task ──► proc ──► calls ──► main
//! ```
//!
//! | room | owns |
//! |---|---|
//! | [`isa`] | the machine: boot, traps, interrupts, translations, the console |
//! | [`memory`] | RAM under Quire, the heap, address spaces, copies from and to programs |
//! | [`task`] | threads, processes, who runs, who waits, signals |
//! | [`proc`] | what `/proc` and `/sys` say |
//! | [`calls`] | Linux's system calls |
#![no_std]
#![no_main]

extern crate alloc;

#[macro_use]
mod log;
mod isa;
mod memory;

use quire::units::CpuId;

/// The boot CPU, once the machine is set up.
fn start(boot: isa::Boot) -> ! {
    log!("booting: {}", boot.command_line);
    memory::init(&boot);
    isa::start_cpus(join);
    log!("{} CPUs, {} MiB free", isa::cpu_count(), memory::mm().phys().free_frames() >> 8);
    isa::power_off(0)
}

/// Each other CPU.
fn join(cpu: CpuId) -> ! {
    log!("CPU {} is here", cpu.index());
    loop {
        isa::idle(&|| false);
    }
}
