//! Building tables for tests: an encoder of its own, spelled in bits, and a bump allocator.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(
    unsafe_code,
    reason = "minting the right to a table, for which the library has its own way"
)]

pub(crate) mod scene;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use quire_hw::{Flush, FrameRun, Hardware, Memory, Pieces, TableFrame};
use quire_machine::{Config, Cpu, Granule, Isa, Machine, Ram};
use quire_units::{Asid, CpuSet, FrameSpan, Order, PageSpan, Pfn, Prot, VirtAddr, Vpn};

pub(crate) const ASID: Asid = Asid(1);

pub(crate) fn ram() -> Ram {
    Ram::new(32 << 20).expect("the host has 32 MiB")
}

/// A leaf to encode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Want {
    pub(crate) frame: Pfn,
    pub(crate) level: u8,
    pub(crate) prot: Prot,
    pub(crate) accessed: bool,
    pub(crate) dirty: bool,
    pub(crate) contiguous: bool,
}

/// Old, clean, for a program, at the last level.
pub(crate) fn page(frame: Pfn, prot: Prot) -> Want {
    Want { frame, level: 0, prot, accessed: false, dirty: false, contiguous: false }
}

/// The same, used and written.
pub(crate) fn used(frame: Pfn, prot: Prot) -> Want {
    Want { accessed: true, dirty: true, ..page(frame, prot) }
}

pub(crate) fn table_word(isa: Isa, frame: Pfn) -> u64 {
    match isa {
        Isa::X86_64 { .. } => frame.get() << 12 | 7,
        Isa::Arm64 { granule, .. } => frame.get() << shift_of(granule) | 3,
        Isa::Riscv64(_) => frame.get() << 10 | 1,
    }
}

fn shift_of(granule: Granule) -> u32 {
    match granule {
        Granule::K4 => 12,
        Granule::K16 => 14,
        Granule::K64 => 16,
    }
}

pub(crate) fn leaf_word(isa: Isa, want: Want) -> u64 {
    let bit = |set: bool, bit: u32| (set as u64) << bit;
    let (write, exec) = (want.prot.contains(Prot::WRITE), want.prot.contains(Prot::EXEC));
    match isa {
        Isa::X86_64 { .. } => {
            let flags = bit(want.accessed, 5) | bit(want.dirty, 6) | bit(want.level > 0, 7);
            want.frame.get() << 12 | 5 | bit(write, 1) | flags | bit(!exec, 63)
        }
        Isa::Arm64 { granule, .. } => {
            // AF, AP, nG, inner shareable, PXN; DBM for what may be written.
            let clean = !(write && want.dirty);
            let low = 1 | bit(want.level == 0, 1) | 1 << 6 | bit(clean, 7) | 3 << 8 | 1 << 11;
            let high = 1 << 53 | bit(!exec, 54) | bit(write, 51) | bit(want.contiguous, 52);
            want.frame.get() << shift_of(granule) | low | bit(want.accessed, 10) | high
        }
        Isa::Riscv64(_) => {
            let ppn = if want.contiguous { want.frame.get() & !15 | 8 } else { want.frame.get() };
            let rights = 1 | 2 | bit(write, 2) | bit(exec, 3) | 1 << 4;
            let flags = bit(want.accessed, 6) | bit(want.dirty, 7) | bit(want.contiguous, 63);
            ppn << 10 | rights | flags
        }
    }
}

/// A small library: tables in one space, taken from a machine's frames in order.
pub(crate) struct Space<'m, 'r> {
    pub(crate) machine: &'m Machine<'r>,
    pub(crate) isa: Isa,
    pub(crate) root: Pfn,
    pub(crate) cpus: CpuSet,
    next: Cell<u64>,
    _frames: FrameRun,
}

impl<'m, 'r> Space<'m, 'r> {
    pub(crate) fn new(machine: &'m Machine<'r>, frames: FrameRun) -> Self {
        let (root, isa) = (frames.start(), machine.config().isa);
        let next = Cell::new(root.get() + 1);
        Self { machine, isa, root, cpus: CpuSet::new(), next, _frames: frames }
    }

    /// Installs the space on `cpu`.
    pub(crate) fn run(&self, cpu: &Cpu<'_, '_>) {
        self.cpus.insert(cpu.number());
        cpu.switch(self.root, ASID);
    }

    /// A zeroed frame that nothing else uses.
    pub(crate) fn frame(&self) -> Pfn {
        self.block(0)
    }

    /// The first of 2^order frames, aligned, that nothing else uses.
    pub(crate) fn block(&self, order: u8) -> Pfn {
        let frame = Pfn::new(self.next.get()).align_up(1 << order).unwrap();
        self.next.set(frame.get() + (1 << order));
        assert!(self.machine.frames().contains(Pfn::new(self.next.get() - 1)), "out of RAM");
        frame
    }

    pub(crate) fn tables(&self, frame: Pfn) -> TableFrame {
        // SAFETY: 1. the frame comes from the run that this space owns and gives away as tables
        // only; 2. the value lives for one call.
        unsafe { TableFrame::mint(frame) }
    }

    /// The table of `level` on the way to `page`; missing ones are made.
    pub(crate) fn table_at(&self, page: Vpn, level: u8) -> Pfn {
        let geometry = self.machine.geometry();
        let mut table = self.root;
        for at in (level + 1..geometry.levels).rev() {
            let index = geometry.index(page, at);
            let word = self.machine.load(table, index);
            table = if word == 0 {
                let lower = self.frame();
                self.write(table, index, table_word(self.isa, lower));
                lower
            } else {
                self.frame_of_table(word)
            };
        }
        table
    }

    fn frame_of_table(&self, word: u64) -> Pfn {
        Pfn::new(match self.isa {
            Isa::X86_64 { .. } => (word & 0xf_ffff_ffff_f000) >> 12,
            Isa::Arm64 { granule, .. } => (word & 0xffff_ffff_f000) >> shift_of(granule),
            Isa::Riscv64(_) => word << 10 >> 20,
        })
    }

    pub(crate) fn slot(&self, page: Vpn, level: u8) -> (Pfn, usize) {
        (self.table_at(page, level), self.machine.geometry().index(page, level))
    }

    /// Stores one word the way the library does.
    pub(crate) fn write(&self, table: Pfn, index: usize, word: u64) {
        self.machine.fill(&self.tables(table), index, 1, word, 0);
    }

    /// Stores the entry of `page` at `level`.
    pub(crate) fn set(&self, page: Vpn, level: u8, word: u64) {
        let (table, index) = self.slot(page, level);
        self.write(table, index, word);
    }

    pub(crate) fn get(&self, page: Vpn, level: u8) -> u64 {
        let (table, index) = self.slot(page, level);
        self.machine.load(table, index)
    }

    pub(crate) fn map(&self, page: Vpn, want: Want) {
        if want.prot.contains(Prot::EXEC) {
            let order = self.machine.geometry().order(want.level);
            let first = want.frame.align_down(order.pages());
            self.machine.publish_code(FrameSpan::new(first, order.pages()));
        }
        self.set(page, want.level, leaf_word(self.isa, want));
    }

    /// Flushes `count` pages from `page` on all CPUs of the space.
    pub(crate) fn flush(&self, page: Vpn, count: u64) {
        self.flush_by(page, count, Order::ZERO, false);
    }

    pub(crate) fn flush_by(&self, page: Vpn, count: u64, stride: Order, tables: bool) {
        let pages = PageSpan::at(page, count).map(|pages| Pieces::new(pages, stride));
        let (root, cpus) = (self.root, &self.cpus);
        self.machine.flush(&Flush { asid: ASID, root, pages, tables, cpus });
    }

    pub(crate) fn addr(&self, page: Vpn) -> VirtAddr {
        page.addr(self.machine.geometry().page_shift)
    }

    /// How many entries form a contiguous block of base pages.
    pub(crate) fn contiguous(&self) -> u64 {
        self.contiguous_at(0)
    }

    /// How many entries of `level` form a contiguous block; 1 for none.
    pub(crate) fn contiguous_at(&self, level: u8) -> u64 {
        match (self.isa, level) {
            (Isa::Arm64 { granule: Granule::K4, .. }, 0..=2) => 16,
            (Isa::Arm64 { granule: Granule::K16, .. }, 0) => 128,
            (Isa::Arm64 { granule: Granule::K16, .. }, 1) => 32,
            (Isa::Arm64 { granule: Granule::K64, .. }, 0 | 1) => 32,
            (Isa::Riscv64(_), 0) => 16,
            _ => 1,
        }
    }

    /// Maps a contiguous block of base pages at `page`.
    pub(crate) fn map_contiguous(&self, page: Vpn, first: Pfn, want: Want) {
        for at in 0..self.contiguous() {
            let frame = first.add(at);
            self.map(page.add(at), Want { frame, contiguous: true, ..want });
        }
    }
}

/// Runs `test` on a machine of one CPU for each ISA.
pub(crate) fn on_each(test: impl Fn(&Space<'_, '_>, &[Cpu<'_, '_>])) {
    for isa in Isa::ALL {
        on(Config::new(isa), &test);
    }
}

/// Runs `test` on one machine, with handles of all its CPUs, each of which runs the space.
pub(crate) fn on(config: Config, test: impl Fn(&Space<'_, '_>, &[Cpu<'_, '_>])) {
    let mut ram = ram();
    let (machine, frames) = Machine::new(config, &mut ram).expect("a valid configuration");
    let space = Space::new(&machine, frames);
    let cpus: Vec<_> = (0..config.cpus).map(|n| machine.cpu(n)).collect();
    cpus.iter().for_each(|cpu| space.run(cpu));
    cpus[0].bind();
    test(&space, &cpus);
}

/// Ends the program when the library is done, or has failed.
pub(crate) struct Ends<'a>(pub(crate) &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
