//! The machine's end, and random numbers.

use core::arch::asm;

use smccc::{Hvc, Smc, psci};

use super::tree::Conduit;
use super::{cpu, gic};

/// Ends the machine. Where the command line has the word `semihosting`, the emulator's exit status
/// is `status`; otherwise the firmware turns the power off, and the status is lost.
pub fn power_off(status: u8) -> ! {
    let machine = cpu::machine_if_known();
    if machine.is_some_and(|machine| machine.semihosting) {
        semihosting::process::exit(i32::from(status));
    }
    // A refusal leaves nothing else to try.
    let _refused = match machine.map_or(Conduit::Hvc, |machine| machine.conduit) {
        Conduit::Hvc => psci::system_off::<Hvc>(),
        Conduit::Smc => psci::system_off::<Smc>(),
    };
    gic::mask();
    loop {
        // SAFETY: it waits.
        unsafe { asm!("wfi", options(nostack, preserves_flags)) };
    }
}

/// A random number, where the CPU has a source of them (FEAT_RNG) and it has one now.
pub fn random() -> Option<u64> {
    if !cpu::features().random {
        return None;
    }
    let (value, empty): (u64, u64);
    // SAFETY: RNDR is there. It sets Z when it has nothing.
    unsafe {
        asm!("mrs {}, s3_3_c2_c4_0", "cset {}, eq", out(reg) value, out(reg) empty,
            options(nomem, nostack));
    }
    (empty == 0).then_some(value)
}
