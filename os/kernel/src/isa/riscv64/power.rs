//! The machine's end, and random numbers.

use core::arch::asm;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::{DIRECT, cpu, interrupts};

/// Words for the finisher: all went well, or not, with a status above.
const PASSED: u32 = 0x5555;
const FAILED: u32 = 0x3333;

/// Ends the machine. The emulator's exit status is `status`, where it has the finisher device;
/// otherwise the firmware turns the power off, and the status is lost.
pub fn power_off(status: u8) -> ! {
    if let Some(address) = cpu::machine_if_known().and_then(|machine| machine.finisher) {
        let register = ptr::with_exposed_provenance_mut::<u32>((address + DIRECT) as usize);
        let word = if status == 0 { PASSED } else { u32::from(status) << 16 | FAILED };
        // SAFETY: the device tree says that it is there; nothing of ours goes on after that.
        unsafe { register.write_volatile(word) };
    }
    // A refusal leaves nothing else to try.
    let _refused = sbi_rt::system_reset(sbi_rt::Shutdown, sbi_rt::NoReason);
    interrupts::mask();
    loop {
        // SAFETY: it waits.
        unsafe { asm!("wfi", options(nostack, preserves_flags)) };
    }
}

/// A random number: one of those that the loader left in the device tree, each of them once.
pub fn random() -> Option<u64> {
    static TAKEN: AtomicUsize = AtomicUsize::new(0);
    let seed = cpu::machine().seed;
    seed.get(TAKEN.fetch_add(1, Ordering::Relaxed).min(seed.len()))
        .copied()
        .filter(|&word| word != 0)
}
