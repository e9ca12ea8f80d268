//! The serial line: a 16550.
//!
//! Four of its registers, directly: the handler of its interrupt reads, any CPU that prints writes,
//! and one driver object for both would need a lock that handlers must not take.

use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use spin::mutex::SpinMutex;

use super::DIRECT;
use super::tree::Machine;
use crate::isa::virt::ring;

/// Registers of a byte, by number (PC16550D data sheet, table 2).
const DATA: u64 = 0;
const INTERRUPTS: u64 = 1;
const FIFOS: u64 = 2;
const STATUS: u64 = 5;

/// `STATUS`: a byte has come; a byte can be sent.
const RECEIVED: u8 = 1 << 0;
const FREE: u8 = 1 << 5;
/// `INTERRUPTS`: bytes came. `FIFOS`: on.
const ON_RECEIVED: u8 = 1 << 0;
const ON: u8 = 1 << 0;

/// Where QEMU's `virt` has it: so that even boot can say what went wrong.
static UART: AtomicU64 = AtomicU64::new(0x1000_0000);

static WRITER: SpinMutex<()> = SpinMutex::new(());

fn register(number: u64) -> *mut u8 {
    ptr::with_exposed_provenance_mut((UART.load(Ordering::Relaxed) + number + DIRECT) as usize)
}

fn read(number: u64) -> u8 {
    // SAFETY: the device tree says that a 16550 is there; mapped, and a device by its address.
    unsafe { register(number).read_volatile() }
}

fn write(number: u64, value: u8) {
    // SAFETY: as above; nothing that is written makes the device touch memory.
    unsafe { register(number).write_volatile(value) }
}

/// Lets the line interrupt. The firmware has set its speed.
pub(super) fn set_up(machine: &Machine) {
    UART.store(machine.uart, Ordering::Relaxed);
    write(FIFOS, ON);
    write(INTERRUPTS, ON_RECEIVED);
}

/// Sends `bytes`; those of one call stay together.
pub fn put(bytes: &[u8]) {
    let _writer = WRITER.lock();
    for &byte in bytes {
        while read(STATUS) & FREE == 0 {
            core::hint::spin_loop();
        }
        write(DATA, byte);
    }
}

/// The next byte that was received.
pub fn take() -> Option<u8> {
    ring::take(|| write(INTERRUPTS, ON_RECEIVED))
}

/// The interrupt: moves what came into the ring. Only the boot CPU is interrupted.
pub(super) fn serve() {
    while read(STATUS) & RECEIVED != 0 {
        if !ring::has_room() {
            // In this order: `take` on another CPU then unmasks after we have masked, or later.
            write(INTERRUPTS, 0);
            return ring::stop();
        }
        ring::put(read(DATA));
    }
}
