//! The machine by its device tree: pieces of RAM, harts, and whether the CPUs have contiguous
//! entries. And memory before there is a memory manager: pieces that are handed out once.

use core::slice;

use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::standard::NodeStandard;
use dtoolkit::{Node, Property};
use quire::hw::{DirectMap, FrameRun};
use quire::units::{FrameSpan, Pfn};

use crate::boot::{self, CPUS, DIRECT};
use crate::{PAGE, PAGE_SHIFT};

/// The most pieces of RAM that are used.
pub const PIECES: usize = 8;

/// Physical addresses, half-open, whole pages; unused pieces are empty.
pub type Pieces = [(u64, u64); PIECES];

/// The machine.
pub struct Machine {
    /// RAM beyond the image, without what the firmware reserves.
    pub ram: Pieces,
    /// The part of it that is still free.
    pieces: Pieces,
    /// The device that ends the emulator, or 0.
    pub finisher: u64,
    /// The firmware's number of each CPU.
    pub harts: [usize; CPUS],
    /// Whether every CPU has Svnapot.
    pub contiguous: bool,
}

impl Machine {
    /// Reads the device tree at physical address `tree`; `hart` is the boot hart.
    pub fn read(tree: usize, hart: usize) -> Self {
        let place = core::ptr::with_exposed_provenance(tree + DIRECT as usize);
        // SAFETY: the firmware says that a whole tree is there, and no code writes it: `keep`.
        let fdt = unsafe { Fdt::from_raw(place) }.expect("a device tree");
        let mut machine = Self {
            ram: [(0, 0); PIECES],
            pieces: [(0, 0); PIECES],
            finisher: 0,
            harts: [hart; CPUS],
            contiguous: true,
        };
        let memory = fdt.root().children().filter(|node| node.name_without_address() == "memory");
        for (piece, span) in machine.pieces.iter_mut().zip(memory.flat_map(spans)) {
            *piece = span;
        }
        // The firmware lies below the image.
        machine.keep(0, boot::image()[3]);
        machine.keep(tree as u64, tree as u64 + fdt.data().len() as u64);
        let reserved = fdt.find_node("/reserved-memory");
        let reserved = reserved.into_iter().flat_map(|parent| parent.children()).flat_map(spans);
        reserved.for_each(|(start, end)| machine.keep(start, end));
        machine.ram = machine.pieces;
        let devices = fdt.find_node("/soc").into_iter().flat_map(|parent| parent.children());
        let finisher = devices.filter(|node| node.is_compatible("sifive,test0")).find_map(first);
        machine.finisher = finisher.unwrap_or(0);
        let cpus = fdt.find_node("/cpus").into_iter().flat_map(|parent| parent.children());
        let mut others = machine.harts[1..].iter_mut();
        for cpu in cpus.filter(|node| node.name_without_address() == "cpu") {
            machine.contiguous &= has(cpu, "svnapot");
            let number = first(cpu).map(|number| number as usize);
            if number != Some(hart)
                && let (Some(number), Some(other)) = (number, others.next())
            {
                *other = number;
            }
        }
        assert!(others.next().is_none(), "there are fewer than {CPUS} harts");
        machine
    }

    /// Takes all pages with a byte in `start..end` out of the pieces.
    fn keep(&mut self, start: u64, end: u64) {
        let (start, end) = (start & !(PAGE - 1), end.next_multiple_of(PAGE));
        for at in 0..PIECES {
            let (from, to) = self.pieces[at];
            if from < end && start < to {
                self.pieces[at] = (from, start.max(from));
                let rest = self.pieces.iter_mut().find(|piece| piece.0 >= piece.1);
                *rest.expect("room for one more piece of RAM") = (end.min(to), to);
            }
        }
    }

    /// An array for as long as the kernel runs, out of the largest piece.
    pub fn array<T>(&mut self, count: usize, make: impl Fn() -> T) -> &'static mut [T] {
        let largest = self.pieces.iter().max_by_key(|piece| piece.1.saturating_sub(piece.0));
        let (start, end) = *largest.expect("there are pieces");
        let stop = (start + (size_of::<T>() * count) as u64).next_multiple_of(PAGE);
        assert!(stop <= end && align_of::<T>() <= PAGE as usize, "too little RAM to begin with");
        self.keep(start, stop);
        let first = (DIRECT + start) as *mut T;
        // SAFETY: the memory was free and is ours alone from now on; a page's start is aligned for
        // the type; all elements are written before the slice is made.
        unsafe {
            (0..count).for_each(|at| first.add(at).write(make()));
            slice::from_raw_parts_mut(first, count)
        }
    }

    /// From the first free frame to the last, holes included.
    pub fn span(&self) -> FrameSpan {
        let used = || self.pieces.iter().filter(|piece| piece.0 < piece.1);
        let start = used().map(|piece| piece.0 >> PAGE_SHIFT).min().unwrap_or(0);
        let end = used().map(|piece| piece.1 >> PAGE_SHIFT).max().unwrap_or(0);
        FrameSpan::new(Pfn::new(start), end - start)
    }

    /// All pieces that are left, as banks, each with the right to its frames.
    pub fn banks(self) -> impl Iterator<Item = (DirectMap<'static>, FrameRun)> {
        let pieces = self.pieces.into_iter().filter(|piece| piece.0 < piece.1);
        pieces.map(|(start, end)| {
            // SAFETY: free RAM, which the boot table shows, and later the kernel's tables at the
            // same place; `self` ends here, so that no other piece of code gets it.
            let bytes = unsafe {
                slice::from_raw_parts_mut((DIRECT + start) as *mut u8, (end - start) as usize)
            };
            DirectMap::new(bytes, Pfn::new(start >> PAGE_SHIFT), PAGE_SHIFT).expect("whole pages")
        })
    }
}

/// The entries of `reg`: address and end, in bytes. Numbers of harts are addresses, too.
fn spans(node: FdtNode<'static>) -> impl Iterator<Item = (u64, u64)> {
    let registers = node.reg().ok().flatten().into_iter().flatten();
    registers.filter_map(|reg| {
        let start: u64 = reg.address().ok()?;
        Some((start, start + reg.size::<u64>().unwrap_or(0)))
    })
}

/// The first address of `reg`.
fn first(node: FdtNode<'static>) -> Option<u64> {
    spans(node).next().map(|span| span.0)
}

/// Whether a CPU has the extension `name`: one of a list, or of one text with `_` between them.
fn has(cpu: FdtNode<'static>, name: &str) -> bool {
    let list = cpu.property("riscv,isa-extensions").or(cpu.property("riscv,isa"));
    list.is_some_and(|list| {
        let mut names = list.value().split(|byte| [0, b'_'].contains(byte));
        names.any(|found| found == name.as_bytes())
    })
}
