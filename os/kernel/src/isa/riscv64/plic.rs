//! Interrupts of devices: the PLIC. Only the boot CPU gets them.
//!
//! Source: *RISC-V Platform-Level Interrupt Controller Specification*, version 1.0.

use core::ptr;

use super::{DIRECT, console, cpu};
use crate::isa::virt::disk;

/// Registers, as offsets in bytes: a word for each interrupt; a bit for each, for each context; two
/// words for each context.
const PRIORITY: u64 = 0;
const ENABLE: u64 = 0x2000;
const ENABLE_STEP: u64 = 0x80;
const CONTEXT: u64 = 0x20_0000;
const CONTEXT_STEP: u64 = 0x1000;
/// Within a context's words: the priority that is masked, and the interrupt that is served.
const THRESHOLD: u64 = 0;
const CLAIM: u64 = 4;

fn register(offset: u64) -> *mut u32 {
    ptr::with_exposed_provenance_mut((cpu::machine().plic + offset + DIRECT) as usize)
}

fn read(offset: u64) -> u32 {
    // SAFETY: the device tree says that a PLIC is there; mapped, and a device by its address.
    unsafe { register(offset).read_volatile() }
}

fn write(offset: u64, value: u32) {
    // SAFETY: as above; the controller does nothing but interrupt us.
    unsafe { register(offset).write_volatile(value) }
}

/// The boot CPU's registers.
fn context() -> u64 {
    CONTEXT + CONTEXT_STEP * u64::from(cpu::machine().context)
}

/// Lets interrupts of any priority through to the boot CPU, and the console's at once.
pub(super) fn set_up() {
    write(context() + THRESHOLD, 0);
    listen(cpu::machine().uart_interrupt);
}

/// A device interrupts the boot CPU, which runs this alone.
fn listen(interrupt: u32) {
    write(PRIORITY + 4 * u64::from(interrupt), 1);
    let own = ENABLE + ENABLE_STEP * u64::from(cpu::machine().context);
    let word = own + u64::from(interrupt / 32) * 4;
    write(word, read(word) | 1 << (interrupt % 32));
}

/// Lets disk `number` interrupt the boot CPU, which runs this. Its driver has set its queue up
/// before.
pub fn listen_to_disk(number: usize) {
    if let Some(interrupt) = disk::interrupt(number) {
        listen(interrupt);
    }
}

/// Serves the devices that want it.
pub(super) fn serve() {
    loop {
        let interrupt = read(context() + CLAIM);
        if interrupt == 0 {
            return;
        }
        if !disk::serve(interrupt) {
            console::serve();
        }
        write(context() + CLAIM, interrupt);
    }
}
