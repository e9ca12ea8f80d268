//! Memory before there is a memory manager: pieces of RAM, handed out once and never taken back.

use quire::units::{FrameSpan, Pfn};

use super::{PAGE, PAGE_SHIFT};
use crate::isa::{self, Boot};

/// The end of the memory that the boot tables map.
const REACH: u64 = 4 << 30;

/// Free RAM, in ascending pieces of whole pages.
pub(super) struct Early {
    pieces: [(u64, u64); 16],
    span: FrameSpan,
}

impl Early {
    /// All RAM but the kernel, the initramfs, and the piece to keep.
    pub(super) fn new(boot: &Boot) -> Self {
        let mut pieces = [(0, 0); 16];
        let ram = boot.ram.iter().copied().filter(|piece| piece.1 > 0);
        ram.clone().zip(&mut pieces).for_each(|(piece, slot)| *slot = piece);
        let start = ram.clone().map(|piece| piece.0).min().unwrap_or(0);
        let end = ram.map(|piece| piece.0 + piece.1).max().unwrap_or(0);
        let span = FrameSpan::new(Pfn::new(start >> PAGE_SHIFT), (end - start) >> PAGE_SHIFT);
        let mut early = Self { pieces, span };
        for (start, bytes) in [boot.image, boot.initrd, boot.keep] {
            let end = (start + bytes).next_multiple_of(PAGE);
            early.keep(start & !(PAGE - 1), end);
        }
        early
    }

    /// From the first frame of RAM to the last, with holes.
    pub(super) fn span(&self) -> FrameSpan {
        self.span
    }

    /// The pieces that are still free, ascending.
    pub(super) fn left(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut pieces = self.pieces;
        pieces.sort_unstable();
        pieces.into_iter().filter(|piece| piece.1 >= PAGE)
    }

    /// Takes `start..end` out of all pieces.
    fn keep(&mut self, start: u64, end: u64) {
        for at in 0..self.pieces.len() {
            let (from, bytes) = self.pieces[at];
            let to = from + bytes;
            if bytes == 0 || end <= from || to <= start || start == end {
                continue;
            }
            self.pieces[at] = (from, start.saturating_sub(from));
            let rest = (end.min(to), to.saturating_sub(end));
            if let Some(free) = self.pieces.iter_mut().find(|piece| piece.1 == 0) {
                *free = rest;
            }
        }
    }

    /// Takes `bytes`, rounded up to pages and aligned to `align`, out of the largest piece.
    ///
    /// # Panics
    /// When no piece is large enough: the machine has too little RAM.
    pub(super) fn take(&mut self, bytes: u64, align: u64) -> u64 {
        let bytes = bytes.next_multiple_of(PAGE);
        let place = |piece: &(u64, u64)| {
            let start = piece.0.next_multiple_of(align);
            let end = (piece.0 + piece.1).min(REACH);
            (piece.1 > 0 && start + bytes <= end).then_some((end - start, start))
        };
        let Some((_, start)) = self.pieces.iter().filter_map(place).max() else {
            panic!("too little RAM to begin with: no {bytes} bytes are free")
        };
        self.keep(start, start + bytes);
        start
    }

    /// A zeroed page; its physical address.
    pub(super) fn page(&mut self) -> u64 {
        let page = self.take(PAGE, PAGE);
        // SAFETY: just taken out of the free pieces, and mapped, being in reach.
        unsafe { core::ptr::write_bytes((isa::DIRECT + page) as *mut u8, 0, PAGE as usize) };
        page
    }

    /// An array for as long as the kernel runs.
    pub(super) fn array<T>(&mut self, count: usize, make: impl Fn() -> T) -> &'static mut [T] {
        let align = align_of::<T>().max(PAGE as usize) as u64;
        let start = self.take((size_of::<T>() * count) as u64, align);
        let first = (isa::DIRECT + start) as *mut T;
        for at in 0..count {
            // SAFETY: the memory is ours alone, aligned, and large enough for `count` of them.
            unsafe { first.add(at).write(make()) };
        }
        // SAFETY: as above; all elements are initialised now.
        unsafe { core::slice::from_raw_parts_mut(first, count) }
    }

    /// A value for as long as the kernel runs.
    pub(super) fn one<T>(&mut self, value: T) -> &'static T {
        let start = self.take(size_of::<T>() as u64, PAGE);
        let place = (isa::DIRECT + start) as *mut T;
        // SAFETY: the memory is ours alone, aligned to a page, and large enough.
        unsafe {
            place.write(value);
            &*place
        }
    }
}
