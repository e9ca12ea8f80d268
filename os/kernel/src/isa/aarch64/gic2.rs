//! The GICv2: its distributor, and the interface of each CPU, as registers in memory.
//!
//! Handlers must not take a lock, and a driver object would need one. Each register here is written
//! whole, and those of an interface belong to the CPU that reads them. (Source: IHI 0048B.)

use core::ptr;
use core::sync::atomic::{AtomicU8, Ordering};

use quire::units::CpuId;

use super::{DIRECT, cpu};
use crate::isa::MAX_CPUS;

/// Registers of the distributor, as offsets in bytes (section 4.3).
const CONTROL: u64 = 0x000;
const ENABLE: u64 = 0x100;
const TARGETS: u64 = 0x800;
const SOFTWARE: u64 = 0xf00;

/// Registers of a CPU's interface (section 4.4); `CONTROL` is at the same place.
const MASK: u64 = 0x04;
const ACKNOWLEDGE: u64 = 0x0c;
const END: u64 = 0x10;

/// Below every interrupt's priority.
const ALL_PRIORITIES: u32 = 0xff;

/// The number that says that there is no interrupt, and those above it.
const NONE: u32 = 1020;
/// The bits of an acknowledged word that are the number; for one that a CPU sent, its sender is
/// above.
const NUMBER: u32 = 0x3ff;

/// Each CPU's bit in lists of targets, as the distributor numbers its interfaces.
static BITS: [AtomicU8; MAX_CPUS] = [const { AtomicU8::new(0) }; MAX_CPUS];

/// A register, by the physical address of its part and its offset.
fn register(part: u64, offset: u64) -> *mut u32 {
    ptr::with_exposed_provenance_mut((part + offset + DIRECT) as usize)
}

fn read(part: u64, offset: u64) -> u32 {
    // SAFETY: the device tree says that a GICv2 is there; mapped as device memory.
    unsafe { register(part, offset).read_volatile() }
}

fn write(part: u64, offset: u64, value: u32) {
    // SAFETY: as above; nothing that is written makes the device touch memory.
    unsafe { register(part, offset).write_volatile(value) }
}

/// Turns the distributor on.
pub(super) fn set_up() {
    write(cpu::machine().distributor, CONTROL, 1);
}

/// Sets up the interface of the CPU that runs this, at physical address `interface`, and lets these
/// interrupts reach it.
pub(super) fn set_up_cpu(interface: u64, interrupts: &[u32]) {
    let distributor = cpu::machine().distributor;
    // The targets of a CPU's own interrupts are this CPU.
    let bit = read(distributor, TARGETS) as u8;
    BITS[cpu::number()].store(bit, Ordering::Relaxed);
    interrupts.iter().for_each(|&interrupt| enable(distributor, interrupt));
    write(interface, MASK, ALL_PRIORITIES);
    write(interface, CONTROL, 1);
}

/// Lets shared interrupt number `interrupt`, counted from 0 on among all, reach the CPU that runs
/// this.
pub(super) fn listen(interrupt: u32) {
    let distributor = cpu::machine().distributor;
    let target = BITS[cpu::number()].load(Ordering::Relaxed);
    let place = register(distributor, TARGETS + u64::from(interrupt)).cast::<u8>();
    // SAFETY: one byte for each interrupt, which may be written alone (section 4.3.12).
    unsafe { place.write_volatile(target) };
    enable(distributor, interrupt);
}

fn enable(distributor: u64, interrupt: u32) {
    write(distributor, ENABLE + u64::from(interrupt / 32 * 4), 1 << (interrupt % 32));
}

/// Sends software-generated interrupt number `interrupt` to `cpu`.
pub(super) fn send(interrupt: u32, cpu: CpuId) {
    let target = u32::from(BITS[cpu.index()].load(Ordering::Relaxed));
    write(cpu::machine().distributor, SOFTWARE, target << 16 | interrupt);
}

/// Calls `serve` with the number of the interrupt that is signalled, if there is one.
pub(super) fn handle(interface: u64, serve: impl FnOnce(u32)) {
    let word = read(interface, ACKNOWLEDGE);
    if word & NUMBER < NONE {
        serve(word & NUMBER);
        write(interface, END, word);
    }
}
