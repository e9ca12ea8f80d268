//! All files, and the console.

use alloc::sync::Arc;

use linux_raw_sys::general as abi;
use quire_linux::files::{Caller, Calls, Console, Devices, Here, Keys, Screen, Table, Time, Tree};
use quire_linux::signal::{Info, Signal};
use spin::Once;

use super::{Thread, send};
use crate::{isa, memory};

static TREE: Once<Tree> = Once::new();

/// All names.
///
/// # Panics
/// Before [`init`].
pub(crate) fn tree() -> &'static Tree {
    TREE.get().expect("files are set up before programs run")
}

/// The terminal.
pub(crate) fn console() -> &'static Arc<Console> {
    &tree().devices().console
}

/// The machine's console, as a screen.
struct Serial;

impl Screen for Serial {
    fn put(&self, bytes: &[u8]) {
        isa::put(bytes);
    }
}

/// Keys that stand for signals.
struct Interrupts;

impl Keys for Interrupts {
    fn signal(&self, group: u32, number: u8) {
        let Ok(signal) = Signal::new(number.into()) else { return };
        // No such group, or too many signals: then nothing is interrupted.
        let _ = send::to_group(None, group, Some(Info::kernel(signal)));
    }
}

/// Makes the tree, with devices, and without files.
pub(crate) fn init() {
    let console = Arc::new(Console::new(Arc::new(Serial), Arc::new(Interrupts)));
    let devices = Devices { console, random: fill_random };
    TREE.call_once(|| Tree::new(devices, memory::make_pages, time()));
}

/// The time, for files.
pub(crate) fn time() -> Time {
    let now = isa::realtime() + isa::now();
    Time { seconds: (now / 1_000_000_000) as i64, nanos: (now % 1_000_000_000) as u32 }
}

/// Feeds the terminal what came in on the console.
pub(crate) fn poll_console() {
    while let Some(byte) = isa::take() {
        console().feed(&[byte]);
    }
}

/// Random bytes: from the CPU, mixed with time where it has no source.
pub(crate) fn fill_random(bytes: &mut [u8]) {
    use core::sync::atomic::{AtomicU64, Ordering};
    static STATE: AtomicU64 = AtomicU64::new(0x9e37_79b9_7f4a_7c15);
    for piece in bytes.chunks_mut(8) {
        let step = STATE.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        // The finisher of SplitMix64 (Steele et al., 2014).
        let mut word = step ^ isa::now() ^ isa::random().unwrap_or(0);
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        piece.copy_from_slice(&word.to_le_bytes()[..piece.len()]);
    }
}

/// Makes calls on files for a thread: `action` gets what the library needs for them.
pub(crate) fn with_calls<T>(thread: &Thread, action: impl FnOnce(&Calls<'_>) -> T) -> T {
    let process = thread.process();
    let (table, here): (Arc<Table>, Arc<Here>) = (process.files(), process.here.lock().clone());
    let (wake, may) = (thread.waker(), process.may());
    let (pid, tid) = (process.pid, thread.task.tid);
    let longest = process.limits.soft(abi::RLIMIT_FSIZE);
    let who = Caller { pid, tid, may: &may, now: time(), longest, wake: &wake };
    action(&Calls { tree: tree(), table: &table, here: &here, who: &who })
}
