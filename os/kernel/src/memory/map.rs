//! The kernel's own page tables: all RAM at `DIRECT`, the image with the rights of its sections.
//!
//! They are written once, through the same [`Arch`] as programs' tables. Addresses between pieces
//! of RAM show one block of zeroes: a lockless table walk may be led to any frame number, and must
//! find nothing there, least of all a device.

use quire::arch::{Arch, Attrs, Entry, Level};
use quire::units::Pfn;

use super::early::Early;
use super::{PAGE, PAGE_SHIFT};
use crate::isa::{self, Boot, Format, STACK_BYTES};

const BLOCK: u64 = 2 << 20;
const GUARD: u64 = PAGE;

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

/// Makes the tables and puts this CPU on them.
pub(super) fn switch(boot: &Boot, early: &mut Early) {
    let root = early.page();
    let mut map = Map { root, early };
    map.ram(boot);
    map.image();
    for (start, bytes) in isa::devices() {
        let rights = Attrs::READ | Attrs::WRITE | isa::DEVICE_FLAGS;
        map.put(isa::DIRECT + start, start, bytes, rights);
    }
    isa::kernel_root(Pfn::new(root >> PAGE_SHIFT));
}

struct Map<'e> {
    root: u64,
    early: &'e mut Early,
}

impl Map<'_> {
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
        let zeroes = self.early.take(BLOCK, BLOCK);
        // SAFETY: just taken, mapped, and a block long.
        unsafe { core::ptr::write_bytes((isa::DIRECT + zeroes) as *mut u8, 0, BLOCK as usize) };
        let mut at = start;
        while at < end {
            let next = (at / BLOCK + 1) * BLOCK;
            let to = next.min(end);
            self.put(isa::DIRECT + at, zeroes + at % BLOCK, to - at, Attrs::READ);
            at = to;
        }
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

    /// Maps `bytes` from `physical` on at `at`, in pages and 2 MiB blocks.
    fn put(&mut self, at: u64, physical: u64, bytes: u64, rights: Attrs) {
        let attrs = rights | isa::KERNEL_FLAGS | Attrs::YOUNG | Attrs::DIRTY;
        let mut done = 0;
        while done < bytes {
            let fits = (at + done).is_multiple_of(BLOCK)
                && (physical + done).is_multiple_of(BLOCK)
                && bytes - done >= BLOCK;
            let (level, step) = if fits { (Level::new(1), BLOCK) } else { (Level::LAST, PAGE) };
            let word = Format::leaf(Pfn::new((physical + done) >> PAGE_SHIFT), level, attrs);
            self.write(at + done, level, word);
            done += step;
        }
    }

    /// Writes the word that translates `at` at `level`, and the tables above it.
    fn write(&mut self, at: u64, level: Level, word: u64) {
        let page = (at >> PAGE_SHIFT) & ((1 << 45) - 1);
        let mut table = self.root;
        let mut now = Format::ROOT;
        while now != level {
            let entry = entry(table, page, now);
            // SAFETY: the word is within a table of ours, which only this CPU sees yet.
            let lower = match Format::decode(unsafe { entry.read() }, now) {
                Entry::Table(frame) => frame.get() << PAGE_SHIFT,
                _ => {
                    let lower = self.early.page();
                    // SAFETY: as above.
                    unsafe { entry.write(Format::table(Pfn::new(lower >> PAGE_SHIFT))) };
                    lower
                }
            };
            table = lower;
            now = now.child().unwrap_or(level);
        }
        // SAFETY: as above.
        unsafe { entry(table, page, level).write(word) };
    }
}

/// The entry of the table at physical address `table` that translates `page`.
fn entry(table: u64, page: u64, level: Level) -> *mut u64 {
    let index = Format::index(quire::units::Vpn::new(page), level);
    (isa::DIRECT + table + 8 * index as u64) as *mut u64
}
