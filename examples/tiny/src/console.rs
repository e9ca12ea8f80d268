//! Lines of text on the firmware's console, and the machine's end.

use core::fmt::{self, Arguments, Write};
use core::hint::spin_loop;
use core::panic::PanicInfo;

/// The firmware's console.
struct Console;

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(|byte| _ = sbi_rt::console_write_byte(byte));
        Ok(())
    }
}

/// Prints a line. Without a console the kernel goes on.
pub fn tell(line: Arguments<'_>) {
    let _ = writeln!(Console, "{line}");
}

/// As `println!`.
#[macro_export]
macro_rules! tell {
    ($($words:tt)*) => { $crate::console::tell(format_args!($($words)*)) };
}

/// Turns the machine off.
pub fn end() -> ! {
    let _ = sbi_rt::system_reset(sbi_rt::Shutdown, sbi_rt::NoReason);
    loop {
        spin_loop();
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    tell!("tiny: {info}");
    end()
}
