//! RAM before the library, and the kernel's half: all RAM at `DIRECT`, the image with the rights of
//! its sections, devices.
//!
//! Addresses between pieces of RAM show one block of zeroes: a lockless table walk may be led to
//! any frame number, and must find nothing there, least of all a device.

use quire::arch::{Arch, Attrs};
use quire::table::{KernelHalf, Region};
use quire::units::{FrameSpan, PageSpan, Pfn, Vpn};

use super::{Early, PAGE, PAGE_SHIFT, enough};
use crate::isa::{self, Boot, Format, STACK_BYTES};

const BLOCK: u64 = 2 << 20;
const GUARD: u64 = PAGE;

/// The end of the memory that the boot tables map.
const REACH: u64 = 4 << 30;

/// How many regions the half has at most.
const REGIONS: usize = 64;

unsafe extern "C" {
    static __text_start: u8;
    static __text_end: u8;
    static __rodata_start: u8;
    static __rodata_end: u8;
    static __data_start: u8;
    static __stacks_start: u8;
    static __stacks_end: u8;
    static __image_end: u8;
}

/// Free RAM: all but the kernel, the initramfs, and the piece to keep. And the span from the first
/// frame of RAM to the last, with holes and all that is in use.
pub(super) fn ram(boot: &Boot) -> (Early, FrameSpan) {
    // SAFETY: the loader says what is RAM, and all of it that is in use is kept here; the boot
    // tables show what is below `REACH`, and the half shows all of it.
    let mut early = unsafe { Early::new(isa::DIRECT as usize, REACH, PAGE_SHIFT) };
    boot.ram.into_iter().for_each(|piece| enough(early.add(bytes_of(piece))));
    let span = early.span();
    for piece in [boot.image, boot.initrd, boot.keep] {
        enough(early.keep(bytes_of(piece)));
    }
    (early, span)
}

fn bytes_of((start, bytes): (u64, u64)) -> core::ops::Range<u64> {
    start..start + bytes
}

/// Makes the kernel's half and puts this CPU on it. Leaves are blocks at most: some x86-64 CPUs
/// have no larger ones.
pub(super) fn switch(boot: &Boot, early: &mut Early) {
    let nothing = Region::direct::<Format>(isa::DIRECT, 0..0, Attrs::empty());
    let mut half = Half { regions: [nothing; REGIONS], count: 0, early };
    // Devices come first: they may lie between pieces of RAM.
    for (start, bytes) in isa::devices() {
        let rights = Attrs::READ | Attrs::WRITE | isa::DEVICE_FLAGS;
        half.put(isa::DIRECT + start, start, bytes, rights);
    }
    half.image();
    half.ram(boot);
    let regions = &half.regions[..half.count];
    let made = KernelHalf::new::<Format, _>(half.early, regions, Format::block_order());
    isa::kernel_root(enough(made).root());
}

/// The regions of the half; where two overlap, the first one counts.
struct Half<'e> {
    regions: [Region; REGIONS],
    count: usize,
    early: &'e mut Early,
}

impl Half<'_> {
    /// The direct map, from physical address 0 to the end of RAM.
    fn ram(&mut self, boot: &Boot) {
        let rights = Attrs::READ | Attrs::WRITE;
        let (image, image_bytes) = boot.image;
        let image_end = (image + image_bytes).next_multiple_of(PAGE);
        let mut end = boot.ram[0].0;
        if end < BLOCK {
            // The first MiB of a PC: firmware tables, and where other CPUs begin.
            self.put(isa::DIRECT, 0, end, rights);
        }
        for (start, bytes) in boot.ram.into_iter().filter(|piece| piece.1 > 0) {
            self.hole(end, start);
            end = start + bytes;
            if isa::IMAGE == isa::DIRECT && (start..end).contains(&image) {
                self.put(isa::DIRECT + start, start, image - start, rights);
                self.put(isa::DIRECT + image_end, image_end, end - image_end, rights);
            } else {
                self.put(isa::DIRECT + start, start, bytes, rights);
            }
        }
    }

    /// Shows zeroes at physical addresses from `start` to `end`, where there is no RAM.
    fn hole(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let zeroes = enough(self.early.take(BLOCK, BLOCK)).get();
        // SAFETY: just taken, within reach, and a block long.
        unsafe { core::ptr::write_bytes((isa::DIRECT + zeroes) as *mut u8, 0, BLOCK as usize) };
        // Whole blocks of the hole show the block whole, again and again.
        let whole = start.next_multiple_of(BLOCK).min(end);
        self.put(isa::DIRECT + start, zeroes + start % BLOCK, whole - start, Attrs::READ);
        self.show(isa::DIRECT + whole, end - whole, (zeroes, BLOCK), Attrs::READ);
    }

    /// The kernel's image, without the pages below its stacks.
    fn image(&mut self) {
        let at = |symbol: *const u8| symbol.addr() as u64;
        let text = (at(&raw const __text_start), at(&raw const __text_end));
        let rodata = (at(&raw const __rodata_start), at(&raw const __rodata_end));
        let data = (at(&raw const __data_start), at(&raw const __stacks_start));
        let stacks = (at(&raw const __stacks_start), at(&raw const __stacks_end));
        let rest = (stacks.1, at(&raw const __image_end));
        let rw = Attrs::READ | Attrs::WRITE;
        let sections =
            [(text, Attrs::READ | Attrs::EXEC), (rodata, Attrs::READ), (data, rw), (rest, rw)];
        for ((start, end), rights) in sections {
            self.put(start, start - isa::IMAGE, end - start, rights);
        }
        let mut stack = stacks.0;
        while stack < stacks.1 {
            let start = stack + GUARD;
            self.put(start, start - isa::IMAGE, STACK_BYTES as u64, rw);
            stack = start + STACK_BYTES as u64;
        }
    }

    /// Shows `bytes` from `physical` on at `at`.
    fn put(&mut self, at: u64, physical: u64, bytes: u64, rights: Attrs) {
        self.show(at, bytes, (physical, bytes), rights);
    }

    /// Shows the `shown` bytes from `physical` on at `at`, again and again up to `bytes`.
    fn show(&mut self, at: u64, bytes: u64, (physical, shown): (u64, u64), attrs: Attrs) {
        if bytes == 0 {
            return;
        }
        let start = Vpn::new(at >> PAGE_SHIFT);
        let pages = PageSpan::new(start, start.add(bytes.div_ceil(PAGE)));
        let frames = FrameSpan::new(Pfn::new(physical >> PAGE_SHIFT), shown.div_ceil(PAGE));
        self.regions[self.count] = Region { pages, frames, attrs };
        self.count += 1;
    }
}
