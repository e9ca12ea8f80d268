//! The device tree, as far as it is not about one ISA: RAM, the command line, devices by name.
//!
//! It is read once, on the boot CPU, and panics where the machine lacks what we cannot do without:
//! there is no caller yet to return to.

use core::ptr;

use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::standard::NodeStandard;
use dtoolkit::{Node, Property};

use super::disk::Place;
use crate::isa::{DIRECT, MAX_CPUS};

/// How many pieces of RAM are used; [`Boot`](crate::isa::Boot) has room for these.
pub(in crate::isa) const PIECES: usize = 8;
const PAGE: u64 = 4096;

/// The tree.
#[derive(Clone, Copy)]
pub(in crate::isa) struct Tree {
    fdt: Fdt<'static>,
    /// The pages that it lies in: address and length.
    pub(in crate::isa) pages: (u64, u64),
}

/// A node of it.
pub(in crate::isa) type TreeNode = FdtNode<'static>;

impl Tree {
    /// The tree at physical address `address`.
    ///
    /// # Panics
    /// When it is none.
    pub(in crate::isa) fn at(address: u64) -> Self {
        let bytes = ptr::with_exposed_provenance((address + DIRECT) as usize);
        // SAFETY: the loader's promise is that a whole tree is there; RAM is mapped at `DIRECT`,
        // and nothing writes there, as `keep` of `Boot` says.
        let fdt = match unsafe { Fdt::from_raw(bytes) } {
            Ok(fdt) => fdt,
            Err(error) => panic!("no device tree at {address:#x}: {error}"),
        };
        let end = (address + fdt.data().len() as u64).next_multiple_of(PAGE);
        let start = address & !(PAGE - 1);
        Self { fdt, pages: (start, end - start) }
    }

    /// The kernel's command line.
    pub(in crate::isa) fn command_line(self) -> &'static str {
        self.fdt.chosen().and_then(|chosen| text(*chosen, "bootargs")).unwrap_or("")
    }

    /// The node at `path`.
    pub(in crate::isa) fn node(self, path: &str) -> Option<TreeNode> {
        self.fdt.find_node(path)
    }

    /// The devices: children of the root, and of a bus at the root.
    fn devices(self) -> impl Iterator<Item = TreeNode> {
        let root = self.fdt.root();
        let buses = root.children().filter(|node| node.is_compatible("simple-bus"));
        root.children().chain(buses.flat_map(|bus| bus.children()))
    }

    /// The first device compatible with `with`.
    pub(in crate::isa) fn compatible(self, with: &str) -> Option<TreeNode> {
        self.devices().find(|node| node.is_compatible(with))
    }

    /// Address and length of registers `index` of the first device compatible with `with`.
    pub(in crate::isa) fn registers(self, with: &str, index: usize) -> Option<(u64, u64)> {
        spans(self.compatible(with)?).nth(index)
    }

    /// Where virtio devices may be; most of these places are empty. `interrupt` finds a device's.
    pub(in crate::isa) fn places(
        self,
        interrupt: impl Fn(TreeNode) -> Option<u32>,
    ) -> impl Iterator<Item = Place> {
        let nodes = self.devices().filter(|node| node.is_compatible("virtio,mmio"));
        nodes.filter_map(move |node| {
            let registers = spans(node).next()?;
            Some(Place { registers, interrupt: interrupt(node)? })
        })
    }

    /// The nodes of the CPUs.
    pub(in crate::isa) fn cpus(self) -> impl Iterator<Item = TreeNode> {
        let parent = self.fdt.find_node("/cpus");
        let nodes = parent.into_iter().flat_map(|parent| parent.children());
        nodes.filter(|node| node.name_without_address() == "cpu")
    }

    /// The firmware's numbers of the CPUs, how many of them are used, and how many there are. The
    /// boot CPU, whose number is `own`, is the first.
    pub(in crate::isa) fn cpu_numbers(self, own: u64) -> ([u64; MAX_CPUS], usize, usize) {
        let mut numbers = [own; MAX_CPUS];
        let (mut count, mut all) = (1, 1);
        for number in self.cpus().filter_map(number_of) {
            if number == own {
                continue;
            }
            all += 1;
            if count < MAX_CPUS {
                numbers[count] = number;
                count += 1;
            }
        }
        (numbers, count, all)
    }

    /// RAM from `least` on without what the firmware reserves, ascending, whole pages. Pieces
    /// beyond the first eight are left alone.
    ///
    /// # Panics
    /// When there is none.
    pub(in crate::isa) fn memory(self, least: u64) -> [(u64, u64); PIECES] {
        let mut pieces = [(0, 0); PIECES];
        let mut count = 0;
        let root = self.fdt.root();
        let nodes = root.children().filter(|node| node.name_without_address() == "memory");
        for (start, bytes) in nodes.flat_map(spans) {
            let end = (start + bytes) & !(PAGE - 1);
            let mut at = start.max(least).next_multiple_of(PAGE);
            while at < end && count < PIECES {
                let (from, to) = self.reserved_from(at).unwrap_or((end, end));
                let stop = from.clamp(at, end);
                if at < stop {
                    pieces[count] = (at, stop - at);
                    count += 1;
                }
                at = to.max(stop);
            }
        }
        assert!(count > 0, "there is no memory");
        pieces[..count].sort_unstable();
        pieces
    }

    /// The first of the firmware's pieces that ends behind `at`: whole pages, half-open.
    fn reserved_from(self, at: u64) -> Option<(u64, u64)> {
        let parent = self.fdt.find_node("/reserved-memory")?;
        let pieces = parent
            .children()
            .flat_map(spans)
            .map(|(start, bytes)| (start & !(PAGE - 1), (start + bytes).next_multiple_of(PAGE)));
        pieces.filter(|piece| piece.1 > at).min()
    }

    /// The initramfs: address and length in bytes.
    pub(in crate::isa) fn initrd(self) -> (u64, u64) {
        let Some(chosen) = self.fdt.chosen() else { return (0, 0) };
        let number = |name| number(*chosen, name);
        match (number("linux,initrd-start"), number("linux,initrd-end")) {
            (Some(start), Some(end)) if start < end => (start, end - start),
            _ => (0, 0),
        }
    }
}

/// A property that is a string.
pub(in crate::isa) fn text(node: TreeNode, name: &str) -> Option<&'static str> {
    node.property(name)?.value_as::<&'static str>().ok()
}

/// A property that is a number of four or eight bytes.
pub(in crate::isa) fn number(node: TreeNode, name: &str) -> Option<u64> {
    let property = node.property(name)?;
    match *property.value() {
        [a, b, c, d] => Some(u64::from(u32::from_be_bytes([a, b, c, d]))),
        ref bytes => Some(u64::from_be_bytes(bytes.try_into().ok()?)),
    }
}

/// Word `at` of a property that is a list of numbers of four bytes.
pub(in crate::isa) fn word(node: TreeNode, name: &str, at: usize) -> Option<u32> {
    let property = node.property(name)?;
    let bytes = property.value().get(4 * at..4 * at + 4)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

/// The entries of `reg`, as addresses and lengths.
fn spans(node: TreeNode) -> impl Iterator<Item = (u64, u64)> {
    let registers = node.reg().ok().flatten().into_iter().flatten();
    registers.filter_map(|reg| Some((reg.address().ok()?, reg.size().ok()?)))
}

/// The firmware's number of a CPU.
pub(in crate::isa) fn number_of(cpu: TreeNode) -> Option<u64> {
    cpu.reg().ok()??.next()?.address().ok()
}
