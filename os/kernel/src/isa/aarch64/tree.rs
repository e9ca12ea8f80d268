//! The device tree: RAM, CPUs, devices, the command line.
//!
//! It is read once, on the boot CPU, and panics where the machine lacks what we cannot do without:
//! there is no caller yet to return to. Defaults are those of QEMU's `virt`.

use core::ptr;

use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::standard::NodeStandard;
use dtoolkit::{Node, Property};

use super::cpu::AFFINITY;
use super::disk::{self, Place};
use super::{DIRECT, read_register};
use crate::isa::{DISKS_MAX, MAX_CPUS};

/// How many pieces of RAM are used; [`Boot`](crate::isa::Boot) has room for these.
const PIECES: usize = 8;
const PAGE: u64 = 4096;

/// The instruction that reaches the firmware.
#[derive(Clone, Copy, Debug)]
pub(super) enum Conduit {
    /// `hvc`
    Hvc,
    /// `smc`
    Smc,
}

/// The devices, by physical address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    /// The GIC's distributor.
    pub(super) distributor: u64,
    /// The first of the GIC's redistributors.
    pub(super) redistributors: u64,
    /// The PL011.
    pub(super) uart: u64,
    /// Its interrupt, counted among the shared ones.
    pub(super) uart_interrupt: u32,
    /// The PL031, if there is one.
    pub(super) rtc: Option<u64>,
    /// The virtio disks, by number.
    pub(super) disks: [Option<Place>; DISKS_MAX],
    /// How PSCI is called.
    pub(super) conduit: Conduit,
    /// CPUs that are used.
    pub(super) cpus: usize,
    /// CPUs there are, and so redistributors.
    pub(super) cpus_all: usize,
    /// The affinity of each CPU that is used, the boot CPU's first.
    pub(super) affinities: [u64; MAX_CPUS],
    /// Whether the emulator's semihosting may be used: a word of the command line.
    pub(super) semihosting: bool,
}

/// All that is found.
pub(super) struct Found {
    pub(super) machine: Machine,
    pub(super) ram: [(u64, u64); PIECES],
    pub(super) initrd: (u64, u64),
    pub(super) keep: (u64, u64),
    pub(super) command_line: &'static str,
}

/// Reads the tree at physical address `address`.
///
/// # Panics
/// When it is none, or has no GICv3, no memory or no console.
pub(super) fn read(address: u64) -> Found {
    // SAFETY: the loader's promise is that a whole tree is there; RAM is mapped at `DIRECT`, and
    // nothing writes there, as `keep` says.
    let tree =
        match unsafe { Fdt::from_raw(ptr::with_exposed_provenance((address + DIRECT) as usize)) } {
            Ok(tree) => tree,
            Err(error) => panic!("no device tree at {address:#x}: {error}"),
        };
    let command_line = tree.chosen().and_then(|chosen| text(*chosen, "bootargs")).unwrap_or("");
    let mut machine = devices(tree);
    machine.semihosting = command_line.split_ascii_whitespace().any(|word| word == "semihosting");
    let end = (address + tree.data().len() as u64).next_multiple_of(PAGE);
    let start = address & !(PAGE - 1);
    Found {
        machine,
        ram: memory(tree),
        initrd: initrd(tree),
        keep: (start, end - start),
        command_line,
    }
}

fn text(node: FdtNode<'static>, name: &str) -> Option<&'static str> {
    node.property(name)?.value_as::<&'static str>().ok()
}

fn devices(tree: Fdt<'static>) -> Machine {
    let Some((gic, _)) = registers(tree, "arm,gic-v3", 0) else { panic!("there is no GICv3") };
    let Some((redistributors, _)) = registers(tree, "arm,gic-v3", 1) else {
        panic!("the GICv3 has no redistributors")
    };
    let Some((uart, _)) = registers(tree, "arm,pl011", 0) else { panic!("there is no PL011") };
    let (affinities, cpus, cpus_all) = cpus(tree);
    Machine {
        distributor: gic,
        redistributors,
        uart,
        uart_interrupt: shared_interrupt(tree, "arm,pl011").unwrap_or(1),
        rtc: registers(tree, "arm,pl031", 0).map(|(start, _)| start),
        disks: disk::disks_of(places(tree)),
        conduit: conduit(tree),
        cpus,
        cpus_all,
        affinities,
        semihosting: false,
    }
}

fn compatible(tree: Fdt<'static>, with: &str) -> Option<FdtNode<'static>> {
    tree.root().children().find(|node| node.is_compatible(with))
}

/// Address and length of registers `index` of the first device compatible with `with`.
fn registers(tree: Fdt<'static>, with: &str, index: usize) -> Option<(u64, u64)> {
    spans(compatible(tree, with)?).nth(index)
}

/// The entries of `reg`, as addresses and lengths.
fn spans(node: FdtNode<'static>) -> impl Iterator<Item = (u64, u64)> {
    let registers = node.reg().ok().flatten().into_iter().flatten();
    registers.filter_map(|reg| Some((reg.address().ok()?, reg.size().ok()?)))
}

/// Where virtio devices may be; most of these places are empty.
fn places(tree: Fdt<'static>) -> impl Iterator<Item = Place> {
    let nodes = tree.root().children().filter(|node| node.is_compatible("virtio,mmio"));
    nodes.filter_map(|node| {
        let registers = spans(node).next()?;
        Some(Place { registers, interrupt: interrupt_of(node)? })
    })
}

/// The number of the device's interrupt if it is a shared one.
fn shared_interrupt(tree: Fdt<'static>, with: &str) -> Option<u32> {
    interrupt_of(compatible(tree, with)?)
}

/// The same: type 0, number, flags.
fn interrupt_of(node: FdtNode<'static>) -> Option<u32> {
    let property = node.property("interrupts")?;
    let word = |at: usize| property.value().get(at..at + 4)?.try_into().ok();
    (word(0).map(u32::from_be_bytes)? == 0).then(|| word(4).map(u32::from_be_bytes))?
}

fn conduit(tree: Fdt<'static>) -> Conduit {
    match tree.find_node("/psci").and_then(|psci| text(psci, "method")) {
        Some("smc") => Conduit::Smc,
        _ => Conduit::Hvc,
    }
}

/// The affinities of the CPUs, how many of them are used, and how many there are.
fn cpus(tree: Fdt<'static>) -> ([u64; MAX_CPUS], usize, usize) {
    let own = read_register!("mpidr_el1") & AFFINITY;
    let mut affinities = [own; MAX_CPUS];
    let (mut count, mut all) = (1, 1);
    let Some(parent) = tree.find_node("/cpus") else { return (affinities, count, all) };
    let nodes = parent.children().filter(|node| node.name_without_address() == "cpu");
    for affinity in nodes.filter_map(|node| node.reg().ok()??.next()?.address().ok()) {
        if affinity == own {
            continue;
        }
        all += 1;
        if count < MAX_CPUS {
            affinities[count] = affinity;
            count += 1;
        }
    }
    (affinities, count, all)
}

/// RAM, ascending, whole pages. Pieces beyond the first eight are left alone.
fn memory(tree: Fdt<'static>) -> [(u64, u64); PIECES] {
    let mut pieces = [(0, 0); PIECES];
    let mut count = 0;
    let nodes = tree.root().children().filter(|node| node.name_without_address() == "memory");
    for (start, bytes) in nodes.flat_map(spans) {
        let (first, end) = (start.next_multiple_of(PAGE), (start + bytes) & !(PAGE - 1));
        if first < end && count < PIECES {
            pieces[count] = (first, end - first);
            count += 1;
        }
    }
    assert!(count > 0, "there is no memory");
    pieces[..count].sort_unstable();
    pieces
}

/// The initramfs: address and length in bytes.
fn initrd(tree: Fdt<'static>) -> (u64, u64) {
    let Some(chosen) = tree.chosen() else { return (0, 0) };
    let number = |name| {
        let property = chosen.property(name)?;
        match *property.value() {
            [a, b, c, d] => Some(u64::from(u32::from_be_bytes([a, b, c, d]))),
            ref bytes => Some(u64::from_be_bytes(bytes.try_into().ok()?)),
        }
    };
    match (number("linux,initrd-start"), number("linux,initrd-end")) {
        (Some(start), Some(end)) if start < end => (start, end - start),
        _ => (0, 0),
    }
}
