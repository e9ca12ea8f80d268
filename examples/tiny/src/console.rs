//! Lines of text on the firmware's console, and the machine's end.

use core::fmt::{self, Write};
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::boot::DIRECT;

/// The physical address of the device that ends the emulator.
static FINISHER: AtomicU64 = AtomicU64::new(0);

/// Sets that address. A kernel that stops before cannot tell the emulator.
pub fn set_up(finisher: u64) {
    FINISHER.store(finisher, Ordering::Relaxed);
}

/// The console, for [`tell`](crate::tell).
pub struct Console;

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let is_written = |byte| sbi_rt::console_write_byte(byte).is_ok();
        if text.bytes().all(is_written) { Ok(()) } else { Err(fmt::Error) }
    }
}

/// Prints a line.
#[macro_export]
macro_rules! tell {
    ($($words:tt)*) => {{
        use core::fmt::Write;
        // Without a console the kernel goes on, and its end says how.
        let _ = writeln!($crate::console::Console, $($words)*);
    }};
}

/// Ends the machine; the emulator's exit status is 0 if all went `well`. (The firmware's own call
/// turns the power off without a status.)
pub fn end(well: bool) -> ! {
    let finisher = FINISHER.load(Ordering::Relaxed);
    if finisher == 0 {
        let _ = sbi_rt::system_reset(sbi_rt::Shutdown, sbi_rt::SystemFailure);
    } else {
        let register = (DIRECT + finisher) as *mut u32;
        // SAFETY: the device tree says that the device is there, and the kernel's half shows it.
        unsafe { register.write_volatile(if well { 0x5555 } else { 1 << 16 | 0x3333 }) };
    }
    loop {
        core::hint::spin_loop();
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    tell!("tiny: {info}");
    end(false)
}
