//! `check=frames`: the kernel's own check of the memory that programs see.
//!
//! Built with the feature of that name and with this word on its command line, the kernel fills
//! each frame with a canary as it becomes free, and looks for canaries in each frame that a
//! page-table entry comes to lead to, and in all bytes that it copies to a program. A frame that is
//! shown without being cleared or overwritten whole ends the machine, whatever owner it had before;
//! so does a frame that was written while it was free.
//!
//! ```text
//!   freed ──► canaries ──► cleared, copied, read whole ──► a word of a table leads to it
//!             │            └ all of them still there?       └ none left?
//!             └ a mapping that should be gone shows them: the program's own data are spoilt
//! ```
//!
//! Without the feature none of it is compiled.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use quire::FrameUse;
use quire::arch::{Arch, Entry, Level};
use quire::units::{FrameSpan, Pfn};

use super::{Board, MM};
use crate::isa::Format;

/// The word on the command line.
const WORD: &str = "check=frames";

/// The content of free frames. No table has such an entry on its way to memory: its lowest bit,
/// which makes one present, is not set.
const CANARY: u64 = 0xC4A1_B06D_5E1F_937A;

static IS_ON: AtomicBool = AtomicBool::new(false);

/// Whether the checks are on.
#[inline(always)]
pub(super) fn is_on() -> bool {
    // Relaxed: it changes once, before there is a second CPU.
    cfg!(feature = "checks") && IS_ON.load(Ordering::Relaxed)
}

/// Looks from now on, if the command line says so.
pub(super) fn init(command_line: &str) {
    let mut words = command_line.split_ascii_whitespace().take_while(|word| *word != "--");
    if words.any(|word| word == WORD) {
        IS_ON.store(true, Ordering::Relaxed);
        let what = if is_on() { "memory that programs get is looked at" } else { "not built in" };
        log!("{WORD}: {what}");
    }
}

/// Fills frames that are free for the first time.
pub(super) fn lay(board: &Board, frames: FrameSpan) {
    for frame in each(frames) {
        board.all_words(frame).iter().for_each(|word| word.store(CANARY, Ordering::Relaxed));
    }
}

/// Fills frames that become free, but for those that are zero: the library may know that they are,
/// and zeroes leak nothing.
#[cold]
pub(super) fn lay_again(board: &Board, frames: FrameSpan) {
    for frame in each(frames) {
        let words = board.all_words(frame);
        if words.iter().any(|word| word.load(Ordering::Relaxed) != 0) {
            words.iter().for_each(|word| word.store(CANARY, Ordering::Relaxed));
        }
    }
}

/// Looks at frames that are about to be cleared or copied over: a frame that begins with a canary
/// was free until now, and must not have been written.
///
/// # Panics
/// When it was written.
#[cold]
pub(super) fn look_at_free(board: &Board, frames: FrameSpan) {
    for frame in each(frames) {
        let words = board.all_words(frame);
        if words.first().is_some_and(is_canary)
            && let Some(at) = words.iter().position(|word| !is_canary(word))
        {
            let found = words[at].load(Ordering::Relaxed);
            panic!("{WORD}: {frame} was written while it was free: word {at} is {found:#x}");
        }
    }
}

/// Looks at the frames that words `first`, `first + step`, … lead to, which are written to `table`
/// from word `index` on, if it is a page table: words of other frames lead nowhere.
///
/// # Panics
/// When a canary is there.
#[cold]
pub(super) fn look_at_shown(
    board: &Board,
    (table, index): (Pfn, usize),
    count: usize,
    (first, step): (u64, u64),
) {
    let info = MM.get().and_then(|mm| mm.frame_info(table));
    if info.is_none_or(|info| info.used != FrameUse::Table) {
        return;
    }
    for number in 0..count {
        let shown = target(first.wrapping_add(step.wrapping_mul(number as u64)));
        for frame in each(shown) {
            let words = board.all_words(frame);
            if let Some(at) = words.iter().position(is_canary) {
                let (from, index) = (shown.start, index + number);
                panic!(
                    "{WORD}: {frame} is shown with what was left in it: word {at}, in {} frames \
                     from {from} on, by word {index} of the table {table}",
                    shown.count
                );
            }
        }
    }
}

/// Looks at bytes that are about to be copied to a program's `address`.
///
/// # Panics
/// When a canary is among them, wherever it begins.
#[cold]
pub(super) fn look_at_bytes(address: u64, bytes: &[u8]) {
    let canary = CANARY.to_ne_bytes();
    if let Some(at) = bytes.windows(canary.len()).position(|piece| piece == canary) {
        let count = bytes.len();
        panic!("{WORD}: byte {at} of {count} for a program's {address:#x} was left in memory");
    }
}

fn is_canary(word: &AtomicU64) -> bool {
    word.load(Ordering::Relaxed) == CANARY
}

/// Looks at the frame that an entry leads to. Its level is not known here, and does not matter:
/// tables must be as free of canaries as pages are, and blocks have a bit of their own.
fn target(word: u64) -> FrameSpan {
    for level in [Level::LAST, Level::new(1)] {
        match Format::decode(word, level) {
            Entry::Leaf { frame, .. } => {
                return FrameSpan::new(frame, Format::order(level).pages());
            }
            Entry::Table(frame) => return FrameSpan::new(frame, 1),
            _ => {}
        }
    }
    FrameSpan::new(Pfn::new(0), 0)
}

fn each(frames: FrameSpan) -> impl Iterator<Item = Pfn> {
    (0..frames.count).map(move |number| frames.start.add(number))
}
