//! The kernel's own messages, and its end in a panic.

use core::fmt::{self, Write};
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::isa;

/// Prints a line on the console, marked as the kernel's.
macro_rules! log {
    ($($words:tt)*) => { $crate::log::line(format_args!($($words)*)) };
}

/// The exit status of a kernel that panicked.
const PANICKED: u8 = 101;

/// A line that is put together first, so that others do not come between.
struct Line {
    bytes: [u8; 256],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            if self.length == self.bytes.len() {
                isa::put(&self.bytes);
                self.length = 0;
            }
            self.bytes[self.length] = byte;
            self.length += 1;
        }
        Ok(())
    }
}

/// Prints a line.
pub(crate) fn line(words: fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; 256], length: 0 };
    // `write_str` never fails.
    let _ = writeln!(line, "[quire] {words}\r");
    isa::put(&line.bytes[..line.length]);
}

/// Prints the panic and a backtrace, and ends the machine.
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    static ONCE: AtomicBool = AtomicBool::new(false);
    if ONCE.swap(true, Ordering::Relaxed) {
        isa::power_off(PANICKED);
    }
    match info.location() {
        Some(at) => log!("panic at {}:{}: {}", at.file(), at.line(), info.message()),
        None => log!("panic: {}", info.message()),
    }
    isa::frames(&mut |address| log!("  called from {address:#x}"));
    isa::power_off(PANICKED)
}
