//! The initramfs: bytes that lie in RAM when the kernel begins, until they are unpacked.

use quire::hw::FrameRun;
use quire::units::{FrameSpan, Pfn};
use spin::mutex::SpinMutex;

use super::{Early, PAGE, System, canary, mm};
use crate::isa;

/// The frames that lie wholly within a piece of memory: its address, and its length in bytes.
fn frames_within((start, bytes): (u64, u64)) -> FrameSpan {
    let (first, end) = (start.div_ceil(PAGE), (start + bytes) / PAGE);
    FrameSpan::new(Pfn::new(first), end.saturating_sub(first))
}

/// Gives the library the rest of `all`, and keeps the right to the frames of the initramfs: its
/// address, and its length in bytes.
///
/// # Panics
/// When the rest is no RAM.
pub(super) fn give(mm: &System, mut all: FrameRun, early: &Early, initrd: (u64, u64)) {
    let kept = frames_within(initrd);
    let mut found = None;
    for piece in early.pieces() {
        let before = piece.start.offset_from(all.start());
        // The frames between are in use: but for `kept`, they stay so for ever.
        let (between, rest) = all.split_at(before);
        found = found.or_else(|| cut(between, kept));
        let (run, rest) = rest.split_at(piece.count);
        add(mm, run);
        all = rest;
    }
    let frames = found.or_else(|| cut(all, kept));
    *ARCHIVE.lock() = Some(Archive { place: initrd, frames });
}

fn add(mm: &System, run: FrameRun) {
    if canary::is_on() {
        canary::lay(mm.hardware(), run.span());
    }
    mm.add(run).unwrap_or_else(|error| panic!("{error}"));
}

/// The frames of `span`, if `run` has them all; the others stay taken for ever.
fn cut(run: FrameRun, span: FrameSpan) -> Option<FrameRun> {
    let is_in = run.span().start <= span.start && span.end() <= run.span().end();
    if span.count == 0 || !is_in {
        return None;
    }
    let before = span.start.offset_from(run.start());
    let (_, rest) = run.split_at(before);
    Some(rest.split_at(span.count).0)
}

/// The initramfs, until it is unpacked.
struct Archive {
    /// Its address, and its length in bytes.
    place: (u64, u64),
    /// Its frames without other content.
    frames: Option<FrameRun>,
}

static ARCHIVE: SpinMutex<Option<Archive>> = SpinMutex::new(None);

/// Shows `unpack` the bytes of the initramfs, and gives their memory to the library then. There are
/// no bytes the second time.
pub(crate) fn with_archive<T>(unpack: impl FnOnce(&[u8]) -> T) -> T {
    let archive = ARCHIVE.lock().take();
    let Some(Archive { place: (start, bytes @ 1..), frames }) = archive else {
        return unpack(&[]);
    };
    // SAFETY: `early` keeps these bytes out of use, nothing writes them, and they are mapped. They
    // are no longer referred to when their frames are given away below, which happens once.
    let all =
        unsafe { core::slice::from_raw_parts((isa::DIRECT + start) as *const u8, bytes as usize) };
    let done = unpack(all);
    if let Some(run) = frames {
        add(mm(), run);
    }
    done
}
