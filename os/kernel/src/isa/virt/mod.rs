//! The parts that QEMU's `virt` machines of arm64 and riscv64 share: both have a device tree,
//! virtio devices in memory, one counter that all CPUs see, and interrupts between CPUs.
//!
//! | file | about |
//! |---|---|
//! | `tree` | the device tree, as far as it is not about one ISA |
//! | `disk` | where the disks are |
//! | `cpus` | the start of CPUs, barriers on other CPUs, notes of interrupts |
//! | `clock` | nanoseconds out of counts |
//! | `ring` | bytes that came in on the console |
//! | `stack` | the kernel's stacks, and the chain of calls on them |
//! | `copy` | where copies go on after a fault |

pub(super) mod clock;
pub(super) mod copy;
pub(super) mod cpus;
pub(super) mod disk;
pub(super) mod ring;
pub(super) mod stack;
pub(super) mod tree;
