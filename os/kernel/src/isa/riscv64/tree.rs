//! The device tree: CPUs and devices of a riscv64 `virt`.

use dtoolkit::standard::NodeStandard;
use dtoolkit::{Node, Property};

use super::RAM_START;
use super::cpu::Features;
use crate::isa::MAX_CPUS;
use crate::isa::virt::disk;
use crate::isa::virt::tree::{PIECES, Tree, TreeNode, number, number_of, text, word};

/// The interrupt by which a controller reaches a CPU in supervisor mode.
const SUPERVISOR: u32 = 9;

/// Random words that the loader leaves.
const SEEDS: usize = 4;

/// The devices, by physical address, and the CPUs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    /// The PLIC.
    pub(super) plic: u64,
    /// The PLIC's number for the boot CPU in supervisor mode.
    pub(super) context: u32,
    /// The 16550.
    pub(super) uart: u64,
    /// Its interrupt.
    pub(super) uart_interrupt: u32,
    /// The Goldfish clock, if there is one.
    pub(super) rtc: Option<u64>,
    /// The device that ends the emulator, if there is one.
    pub(super) finisher: Option<u64>,
    /// Counts of the `time` register in a second.
    pub(super) frequency: u64,
    /// Random words; 0 for none.
    pub(super) seed: [u64; SEEDS],
    /// CPUs that are used.
    pub(super) cpus: usize,
    /// The firmware's number of each CPU that is used, the boot CPU's first.
    pub(super) harts: [u64; MAX_CPUS],
    /// The CPUs' features.
    pub(super) features: Features,
}

/// All that is found.
pub(super) struct Found {
    pub(super) machine: Machine,
    pub(super) ram: [(u64, u64); PIECES],
    pub(super) initrd: (u64, u64),
    pub(super) keep: (u64, u64),
    pub(super) command_line: &'static str,
}

/// Reads the tree at physical address `address`; `hart` is the boot CPU.
///
/// # Panics
/// When it is none, or has no PLIC, no memory or no console.
pub(super) fn read(address: u64, hart: u64) -> Found {
    let tree = Tree::at(address);
    disk::set_up(tree.places(interrupt_of));
    Found {
        machine: machine(tree, hart),
        ram: tree.memory(RAM_START),
        initrd: tree.initrd(),
        keep: tree.pages,
        command_line: tree.command_line(),
    }
}

fn machine(tree: Tree, hart: u64) -> Machine {
    let plic =
        ["sifive,plic-1.0.0", "riscv,plic0"].into_iter().find_map(|name| tree.compatible(name));
    let uart = tree.compatible("ns16550a");
    let (Some(plic), Some(uart)) = (plic, uart) else { panic!("there is no PLIC, or no 16550") };
    let boot = tree.cpus().find(|cpu| number_of(*cpu) == Some(hart));
    let Some(boot) = boot else { panic!("the device tree lacks CPU {hart}") };
    let address = |name| tree.registers(name, 0).map(|(start, _)| start);
    let (harts, cpus, _) = tree.cpu_numbers(hart);
    let of =
        |node: TreeNode| node.reg().ok().flatten().and_then(|mut reg| reg.next()?.address().ok());
    Machine {
        plic: of(plic).unwrap_or_else(|| panic!("the PLIC has no address")),
        context: context_of(plic, boot)
            .unwrap_or_else(|| panic!("the PLIC does not reach CPU {hart}")),
        uart: of(uart).unwrap_or_else(|| panic!("the 16550 has no address")),
        uart_interrupt: interrupt_of(uart).unwrap_or(10),
        rtc: address("google,goldfish-rtc"),
        finisher: address("sifive,test0"),
        frequency: tree
            .node("/cpus")
            .and_then(|cpus| number(cpus, "timebase-frequency"))
            .unwrap_or(0),
        seed: tree.node("/chosen").map_or([0; SEEDS], seed),
        cpus,
        harts,
        features: features(boot),
    }
}

/// The number of a device's interrupt.
fn interrupt_of(node: TreeNode) -> Option<u32> {
    word(node, "interrupts", 0)
}

/// The PLIC's number for a CPU in supervisor mode: its place in the list of all that it reaches.
fn context_of(plic: TreeNode, cpu: TreeNode) -> Option<u32> {
    let own = cpu.children().find_map(|node| node.phandle().ok()?)?;
    let mut all = (0_usize..).map_while(|at| {
        let entry = |half: usize| word(plic, "interrupts-extended", 2 * at + half);
        Some((entry(0)?, entry(1)?))
    });
    all.position(|(controller, interrupt)| controller == own && interrupt == SUPERVISOR)
        .map(|at| at as u32)
}

fn seed(chosen: TreeNode) -> [u64; SEEDS] {
    let word = |at| Some(u64::from(word(chosen, "rng-seed", at)?));
    core::array::from_fn(|at| {
        word(2 * at).zip(word(2 * at + 1)).map_or(0, |(high, low)| high << 32 | low)
    })
}

/// A CPU's features: a list of names, or in older trees one text with `_` between them.
fn features(cpu: TreeNode) -> Features {
    let list = cpu.property("riscv,isa-extensions");
    let has = |name: &str| match list {
        Some(list) => list.value().split(|&byte| byte == 0).any(|found| found == name.as_bytes()),
        None => text(cpu, "riscv,isa").is_some_and(|all| all.split('_').any(|found| found == name)),
    };
    let block = || number(cpu, "riscv,cboz-block-size");
    Features {
        // With Svade, too, it is off until the firmware is asked.
        sets_accessed: has("svadu") && !has("svade"),
        folds: has("svnapot"),
        types: has("svpbmt"),
        alarms: has("sstc"),
        clear_block_bytes: has("zicboz").then(block).flatten().map(|bytes| bytes as usize),
    }
}
