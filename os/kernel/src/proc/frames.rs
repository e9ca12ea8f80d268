//! Physical memory, frame by frame, and all folios counted.

use quire::cache::Store;
use quire::limits::ORDERS;
use quire::units::Pfn;
use quire::{FrameInfo, FrameUse};
use quire_linux::files::Sink;
use quire_linux::{Errno, Result};
use zerocopy::IntoBytes;

use crate::memory::mm;

/// Bits of `kpageflags`, as `linux/kernel-page-flags.h` numbers them.
mod flag {
    pub(super) const UP_TO_DATE: u64 = 1 << 3;
    pub(super) const BUDDY: u64 = 1 << 10;
    pub(super) const MAPPED: u64 = 1 << 11;
    pub(super) const ANON: u64 = 1 << 12;
    pub(super) const SWAP_BACKED: u64 = 1 << 14;
    pub(super) const HEAD: u64 = 1 << 15;
    pub(super) const TAIL: u64 = 1 << 16;
    pub(super) const HUGE: u64 = 1 << 17;
    pub(super) const NO_PAGE: u64 = 1 << 20;
    pub(super) const LARGE: u64 = 1 << 22;
    pub(super) const TABLE: u64 = 1 << 26;
    pub(super) const RESERVED: u64 = 1 << 32;
}

/// The use of all frames, read without a lock: an estimate.
pub(super) struct Census {
    /// Mapped folios, by order.
    pub(super) folios: [u64; ORDERS],
    /// Pages of those of them that files have, the whole of each; the rest is anonymous.
    pub(super) of_files: u64,
    /// Of these, how many are not mapped whole.
    pub(super) partial: [u64; ORDERS],
    /// Frames of page tables.
    pub(super) tables: u64,
    /// Frames of area trees.
    pub(super) nodes: u64,
}

impl Census {
    /// Looks at every block of frames.
    pub(super) fn take() -> Self {
        let mut census =
            Self { folios: [0; ORDERS], of_files: 0, partial: [0; ORDERS], tables: 0, nodes: 0 };
        let span = mm().phys().span();
        let mut frame = span.start;
        while frame < span.end() {
            let Some(info) = mm().frame_info(frame) else { break };
            census.add(&info);
            // A block that changed meanwhile may have its head elsewhere: then by single frames.
            let step = if info.head == frame { info.order.pages() } else { 1 };
            frame = frame.add(step);
        }
        census
    }

    fn add(&mut self, info: &FrameInfo) {
        match info.used {
            FrameUse::Folio(counts) if counts.mapped > 0 => {
                let order = info.order.index();
                self.of_files += if is_file(info) { info.order.pages() } else { 0 };
                self.folios[order] += 1;
                self.partial[order] += u64::from(u64::from(counts.mapped) < info.order.pages());
            }
            FrameUse::Table => self.tables += 1,
            FrameUse::Node => self.nodes += 1,
            _ => {}
        }
    }

    /// Pages of all mapped folios.
    pub(super) fn pages(&self) -> u64 {
        self.pages_from(0)
    }

    /// Pages of mapped folios of `order` and above.
    pub(super) fn pages_from(&self, order: usize) -> u64 {
        let folios = self.folios.iter().enumerate().skip(order);
        folios.map(|(order, count)| count << order).sum()
    }
}

/// `kpageflags`: a word for each frame from 0 on.
///
/// # Errors
/// `EINVAL` for a part of a word; `EFAULT`.
pub(super) fn flags(_: &(), offset: u64, count: usize, sink: &mut dyn Sink) -> Result<usize> {
    words(offset, count, sink, flags_of)
}

/// `kpagecount`: likewise, how often each frame is mapped; on average over a large folio.
///
/// # Errors
/// As for [`flags`].
pub(super) fn counts(_: &(), offset: u64, count: usize, sink: &mut dyn Sink) -> Result<usize> {
    words(offset, count, sink, count_of)
}

/// Whether a folio is a file's that programs know: one on its way to a swap device is not.
fn is_file(info: &FrameInfo) -> bool {
    info.store.is_some_and(|store| store != Store::Swap)
}

fn flags_of(frame: Pfn) -> u64 {
    let Some(info) = mm().frame_info(frame) else { return flag::NO_PAGE };
    match info.used {
        FrameUse::Free => flag::BUDDY,
        FrameUse::Table => flag::TABLE,
        // A frame without a record is in a CPU's cache or the kernel's own.
        FrameUse::Other => flag::RESERVED,
        FrameUse::Folio(counts) => {
            let mapped = if counts.mapped > 0 { flag::MAPPED } else { 0 };
            let large = if info.is_reserved { 0 } else { flag::LARGE };
            let place = match (info.order.get(), info.head == frame) {
                (0, _) => 0,
                (_, true) => large | flag::HEAD,
                (_, false) => large | flag::TAIL,
            };
            // Files in memory can only go to swap.
            let kind = match info.store {
                None if info.is_reserved => flag::ANON | flag::HUGE,
                None | Some(Store::Swap) => flag::ANON | flag::SWAP_BACKED,
                Some(Store::Memory) => flag::SWAP_BACKED,
                Some(Store::Reserved) => flag::HUGE,
                Some(Store::ReadOnly | Store::ReadWrite) => 0,
            };
            flag::UP_TO_DATE | kind | mapped | place
        }
        // The library's own records.
        _ => 0,
    }
}

fn count_of(frame: Pfn) -> u64 {
    match mm().frame_info(frame) {
        Some(FrameInfo { used: FrameUse::Folio(counts), order, .. }) if counts.mapped > 0 => {
            (u64::from(counts.mapped) + order.pages() / 2) >> order.get()
        }
        _ => 0,
    }
}

/// Words of one batch.
const CHUNK: usize = 256;
/// The most bytes of one read; a larger one gets fewer, and goes on.
const READ_MOST: usize = 16 << 20;

fn words(offset: u64, count: usize, sink: &mut dyn Sink, word: fn(Pfn) -> u64) -> Result<usize> {
    if !offset.is_multiple_of(8) || !count.is_multiple_of(8) {
        return Err(Errno::EINVAL);
    }
    let first = offset / 8;
    let frames = mm().phys().span().end().get();
    let end = frames.min(first.saturating_add(count.min(READ_MOST) as u64 / 8));
    let mut at = first;
    let mut own = [0; CHUNK];
    while at < end {
        let many = CHUNK.min((end - at) as usize);
        let chunk = &mut own[..many];
        chunk.iter_mut().zip(at..).for_each(|(slot, frame)| *slot = word(Pfn::new(frame)));
        match sink.put(chunk.as_bytes()) {
            Ok(()) => at += many as u64,
            Err(error) if at == first => return Err(error),
            Err(_) => break,
        }
    }
    Ok(8 * at.saturating_sub(first) as usize)
}
