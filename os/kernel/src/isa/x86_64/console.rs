//! The console: the first serial port.

use spin::Once;
use spin::mutex::SpinMutex;
use uart_16550::backend::PioBackend;
use uart_16550::spec::registers::IER;
use uart_16550::{Config, Uart16550};

static PORT: Once<SpinMutex<Uart16550<PioBackend>>> = Once::new();

/// Sets the port up.
pub(super) fn init() {
    PORT.call_once(|| {
        // SAFETY: the first serial port of a PC; no other code uses it.
        let port = unsafe { Uart16550::new_port(0x3f8) };
        let mut port = port.unwrap_or_else(|_| super::power_off(3));
        // Without a port there is no console, and the kernel runs mute.
        let _ = port.init(Config::default());
        port.enable_interrupts(IER::DATA_READY);
        SpinMutex::new(port)
    });
}

/// Writes `bytes`.
pub fn put(bytes: &[u8]) {
    if let Some(port) = PORT.get() {
        port.lock().send_bytes_exact(bytes);
    }
}

/// A byte that came in.
pub fn take() -> Option<u8> {
    PORT.get()?.lock().try_receive_byte().ok()
}
