//! The serial line: a PL011.
//!
//! Four of its registers, directly: the handler of its interrupt reads, any CPU that prints writes,
//! and one driver object for both would need a lock that handlers must not take.

use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use spin::mutex::SpinMutex;

use super::DIRECT;
use super::tree::Machine;
use crate::isa::virt::ring;

/// Registers, as offsets in bytes (DDI 0183, §3.2).
const DATA: u64 = 0x00;
const FLAGS: u64 = 0x18;
const LINE: u64 = 0x2c;
const CONTROL: u64 = 0x30;
const INTERRUPTS: u64 = 0x38;
const CLEAR: u64 = 0x44;

/// `FLAGS`: the FIFO of received bytes is empty; that of bytes to send is full.
const EMPTY: u32 = 1 << 4;
const FULL: u32 = 1 << 5;
/// `INTERRUPTS`: bytes came; bytes came some time ago.
const RECEIVED: u32 = 1 << 4 | 1 << 6;
/// `LINE`: eight bits, FIFOs. `CONTROL`: on, both directions.
const EIGHT_BITS: u32 = 3 << 5 | 1 << 4;
const ON: u32 = 1 | 1 << 8 | 1 << 9;

/// Where QEMU's `virt` has it: so that even boot can say what went wrong.
static UART: AtomicU64 = AtomicU64::new(0x0900_0000);

static WRITER: SpinMutex<()> = SpinMutex::new(());

fn register(offset: u64) -> *mut u32 {
    ptr::with_exposed_provenance_mut((UART.load(Ordering::Relaxed) + offset + DIRECT) as usize)
}

fn read(offset: u64) -> u32 {
    // SAFETY: the device tree says that a PL011 is there; mapped as device memory.
    unsafe { register(offset).read_volatile() }
}

fn write(offset: u64, value: u32) {
    // SAFETY: as above; nothing that is written makes the device touch memory.
    unsafe { register(offset).write_volatile(value) }
}

/// Turns the line on, as the loader may not have.
pub(super) fn set_up(machine: &Machine) {
    UART.store(machine.uart, Ordering::Relaxed);
    write(CONTROL, 0);
    write(LINE, EIGHT_BITS);
    write(CONTROL, ON);
    write(INTERRUPTS, RECEIVED);
}

/// Sends `bytes`; those of one call stay together.
pub fn put(bytes: &[u8]) {
    let _writer = WRITER.lock();
    for &byte in bytes {
        while read(FLAGS) & FULL != 0 {
            core::hint::spin_loop();
        }
        write(DATA, u32::from(byte));
    }
}

/// The next byte that was received.
pub fn take() -> Option<u8> {
    ring::take(|| write(INTERRUPTS, RECEIVED))
}

/// The interrupt: moves what came into the ring. Only the boot CPU is interrupted.
pub(super) fn serve() {
    while read(FLAGS) & EMPTY == 0 {
        if !ring::has_room() {
            // In this order: `take` on another CPU then unmasks after we have masked, or later.
            write(INTERRUPTS, 0);
            return ring::stop();
        }
        ring::put(read(DATA) as u8);
    }
    write(CLEAR, RECEIVED);
}
