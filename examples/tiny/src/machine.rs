//! The machine by its device tree: RAM, harts, and whether the CPUs have contiguous entries.

use crate::*;

/// The most pieces of RAM that are used.
pub const PIECES: usize = 8;

/// Reads the device tree at physical address `tree`; `hart` is the boot hart. Returns RAM beyond
/// the image, without what the firmware reserves; the firmware's number of each CPU; and whether
/// every CPU has Svnapot.
pub fn read(tree: usize, hart: usize) -> (Early<PIECES>, [usize; CPUS], bool) {
    // SAFETY: the firmware says that a whole tree is there, and no code writes it: it is kept.
    let fdt = unsafe { Fdt::from_raw(with_exposed_provenance(DIRECT + tree)) };
    let fdt = fdt.expect("a device tree");
    // SAFETY: the device tree says what is RAM and what is in use; the boot table shows all
    // below `REACH`, and the kernel's tables show all of it.
    let mut ram = unsafe { Early::new(DIRECT, REACH, PAGE_SHIFT) };
    let memory = fdt.root().children().filter(|node| node.name_without_address() == "memory");
    memory.flat_map(spans).for_each(|bytes| ram.add(bytes).expect("few pieces"));
    // The firmware lies below the image.
    let own = [0..PARTS[3], tree as u64..(tree + fdt.data().len()) as u64];
    let used = children(fdt, "/reserved-memory").flat_map(spans).chain(own);
    used.for_each(|bytes| ram.keep(bytes).expect("few pieces"));
    let cpus = || children(fdt, "/cpus").filter(|node| node.name_without_address() == "cpu");
    let numbers = cpus().flat_map(spans).map(|bytes| bytes.start as usize);
    let mut all = iter::once(hart).chain(numbers.filter(|number| *number != hart));
    let harts = array::from_fn(|_| all.next().expect("a hart for each CPU"));
    (ram, harts, cpus().all(|cpu| has(cpu, b"svnapot")))
}

fn children(fdt: Fdt<'static>, path: &str) -> impl Iterator<Item = FdtNode<'static>> {
    fdt.find_node(path).into_iter().flat_map(|node| node.children())
}

/// The entries of `reg`, in bytes. Numbers of harts are addresses, too.
fn spans(node: FdtNode<'static>) -> impl Iterator<Item = Range<u64>> {
    let registers = node.reg().ok().flatten().into_iter().flatten();
    registers.filter_map(|reg| {
        let start: u64 = reg.address().ok()?;
        Some(start..start + reg.size::<u64>().unwrap_or(0))
    })
}

/// Whether a CPU has the extension `name`: one of a list, or of one text with `_` between them.
fn has(cpu: FdtNode<'static>, name: &[u8]) -> bool {
    let list = cpu.property("riscv,isa-extensions").or(cpu.property("riscv,isa"));
    list.is_some_and(|list| list.value().split(|byte| b"\0_".contains(byte)).any(|own| own == name))
}
