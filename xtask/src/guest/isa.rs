//! The ISAs of guests, and their names in Rust, Debian and QEMU.

use clap::ValueEnum;

/// An ISA that guests run on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Isa {
    /// 64-bit x86.
    #[value(name = "x86_64", alias = "amd64")]
    X86_64,
    /// 64-bit Arm.
    #[value(name = "aarch64", alias = "arm64")]
    Aarch64,
    /// 64-bit RISC-V.
    #[value(name = "riscv64")]
    Riscv64,
}

impl Isa {
    /// All.
    pub const ALL: [Self; 3] = [Self::X86_64, Self::Aarch64, Self::Riscv64];

    /// As Rust and Linux call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
            Self::Riscv64 => "riscv64",
        }
    }

    /// As Debian calls it.
    pub fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
            Self::Riscv64 => "riscv64",
        }
    }

    /// The target that Quire's kernel is compiled for.
    pub fn target(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64-unknown-none",
            Self::Aarch64 => "aarch64-unknown-none-softfloat",
            Self::Riscv64 => "riscv64imac-unknown-none-elf",
        }
    }

    /// The emulator, and Debian's packages of it and of the firmware that it needs.
    pub fn emulator(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::X86_64 => ("qemu-system-x86_64", &["qemu-system-x86"]),
            Self::Aarch64 => ("qemu-system-aarch64", &["qemu-system-arm"]),
            Self::Riscv64 => ("qemu-system-riscv64", &["qemu-system-riscv", "opensbi"]),
        }
    }

    /// Linux's name of the serial console.
    pub fn console(self) -> &'static str {
        match self {
            Self::X86_64 => "ttyS0",
            Self::Aarch64 => "ttyAMA0",
            Self::Riscv64 => "ttyS0",
        }
    }
}
