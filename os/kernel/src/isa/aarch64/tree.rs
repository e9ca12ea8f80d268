//! The device tree: CPUs and devices of an arm64 `virt`. Defaults are those of QEMU.

use super::cpu::AFFINITY;
use super::{RAM_START, read_register};
use crate::isa::MAX_CPUS;
use crate::isa::virt::disk;
use crate::isa::virt::tree::{PIECES, Tree, TreeNode, text, word};

/// The instruction that reaches the firmware.
#[derive(Clone, Copy, Debug)]
pub(super) enum Conduit {
    /// `hvc`
    Hvc,
    /// `smc`
    Smc,
}

/// The interrupt controller's part for CPUs, by physical address.
#[derive(Clone, Copy, Debug)]
pub(super) enum Controller {
    /// A GICv2: each CPU finds its own interface there.
    V2 {
        /// The interface.
        interface: u64,
    },
    /// A GICv3.
    V3 {
        /// The first of its redistributors.
        redistributors: u64,
    },
}

/// The devices, by physical address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    /// The GIC's distributor.
    pub(super) distributor: u64,
    /// The rest of the GIC.
    pub(super) controller: Controller,
    /// The PL011.
    pub(super) uart: u64,
    /// Its interrupt, counted among the shared ones.
    pub(super) uart_interrupt: u32,
    /// The PL031, if there is one.
    pub(super) rtc: Option<u64>,
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
/// When it is none, or has no GIC that we know, no memory or no console.
pub(super) fn read(address: u64) -> Found {
    let tree = Tree::at(address);
    let command_line = tree.command_line();
    let mut machine = devices(tree);
    machine.semihosting = command_line.split_ascii_whitespace().any(|word| word == "semihosting");
    disk::set_up(tree.places(interrupt_of));
    Found {
        machine,
        ram: tree.memory(RAM_START),
        initrd: tree.initrd(),
        keep: tree.pages,
        command_line,
    }
}

fn devices(tree: Tree) -> Machine {
    let Some((distributor, controller)) = interrupts(tree) else {
        panic!("there is no GICv3 and no GICv2")
    };
    let Some((uart, _)) = tree.registers("arm,pl011", 0) else { panic!("there is no PL011") };
    let (affinities, cpus, cpus_all) = tree.cpu_numbers(read_register!("mpidr_el1") & AFFINITY);
    Machine {
        distributor,
        controller,
        uart,
        uart_interrupt: tree.compatible("arm,pl011").and_then(interrupt_of).unwrap_or(1),
        rtc: tree.registers("arm,pl031", 0).map(|(start, _)| start),
        conduit: conduit(tree),
        cpus,
        cpus_all,
        affinities,
        semihosting: false,
    }
}

/// The distributor, and the rest of the interrupt controller.
fn interrupts(tree: Tree) -> Option<(u64, Controller)> {
    let part = |name, index| tree.registers(name, index).map(|(start, _)| start);
    if let Some(distributor) = part("arm,gic-v3", 0) {
        let redistributors = part("arm,gic-v3", 1)?;
        return Some((distributor, Controller::V3 { redistributors }));
    }
    let name = ["arm,cortex-a15-gic", "arm,gic-400"].into_iter();
    let name = name.into_iter().find(|name| part(name, 0).is_some())?;
    Some((part(name, 0)?, Controller::V2 { interface: part(name, 1)? }))
}

/// The number of a device's interrupt if it is a shared one: type 0, number, flags.
fn interrupt_of(node: TreeNode) -> Option<u32> {
    (word(node, "interrupts", 0)? == 0).then(|| word(node, "interrupts", 1))?
}

fn conduit(tree: Tree) -> Conduit {
    match tree.node("/psci").and_then(|psci| text(psci, "method")) {
        Some("smc") => Conduit::Smc,
        _ => Conduit::Hvc,
    }
}
