//! The two ISAs, and their names in Rust, Debian and QEMU.

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
}

impl Isa {
    /// Both.
    pub const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];

    /// As Rust and Linux call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// As Debian calls it.
    pub fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// The target that Quire's kernel is compiled for.
    pub fn target(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64-unknown-none",
            Self::Aarch64 => "aarch64-unknown-none-softfloat",
        }
    }

    /// The emulator, and Debian's package of it.
    pub fn emulator(self) -> (&'static str, &'static str) {
        match self {
            Self::X86_64 => ("qemu-system-x86_64", "qemu-system-x86"),
            Self::Aarch64 => ("qemu-system-aarch64", "qemu-system-arm"),
        }
    }

    /// Linux's name of the serial console.
    pub fn console(self) -> &'static str {
        match self {
            Self::X86_64 => "ttyS0",
            Self::Aarch64 => "ttyAMA0",
        }
    }
}
