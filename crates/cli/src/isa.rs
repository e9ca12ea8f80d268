//! The page-table formats by name, and their architectures as types.

use clap::ValueEnum;
use quire::limits::ORDER_MAX;
use quire_arch::Arch;
use quire_machine::Config;

use crate::size::Size;

/// A page-table format.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Isa {
    /// x86-64, four levels
    #[value(name = "x86_64")]
    X86_64,
    /// x86-64, five levels
    #[value(name = "x86_64_la57")]
    X86_64La57,
    /// arm64, 4K pages
    #[value(name = "arm64_4k")]
    Arm4k,
    /// arm64, 16K pages
    #[value(name = "arm64_16k")]
    Arm16k,
    /// arm64, 64K pages
    #[value(name = "arm64_64k")]
    Arm64k,
    /// riscv64, three levels
    #[value(name = "riscv64_sv39")]
    Sv39,
    /// riscv64, four levels
    #[value(name = "riscv64_sv48")]
    Sv48,
    /// riscv64, five levels
    #[value(name = "riscv64_sv57")]
    Sv57,
}

/// Evaluates `$body` with `$A` as the architecture of the format `$isa`.
macro_rules! with_isa {
    ($isa:expr, $A:ident => $body:expr) => {
        $crate::isa::with_isa!(
            $isa, $A => $body,
            X86_64 X86_64La57 Arm4k Arm16k Arm64k Sv39 Sv48 Sv57
        )
    };
    ($isa:expr, $A:ident => $body:expr, $($format:ident)*) => {
        match $isa {
            $($crate::isa::Isa::$format => {
                type $A = quire_arch::$format;
                $body
            })*
        }
    };
}
pub(crate) use with_isa;

impl Isa {
    /// The name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
    }

    /// The machine that has it.
    pub(crate) fn config(self) -> Config {
        match self {
            Isa::X86_64 => Config::x86_64(),
            Isa::X86_64La57 => Config::x86_64_la57(),
            Isa::Arm4k => Config::arm64_4k(),
            Isa::Arm16k => Config::arm64_16k(),
            Isa::Arm64k => Config::arm64_64k(),
            Isa::Sv39 => Config::riscv64_sv39(),
            Isa::Sv48 => Config::riscv64_sv48(),
            Isa::Sv57 => Config::riscv64_sv57(),
        }
    }

    /// The base page, as a power of two of bytes.
    pub(crate) fn page_shift(self) -> u32 {
        with_isa!(self, A => A::PAGE_SHIFT)
    }

    /// The smallest block above a base page that one entry maps: 2 MiB with 4 KiB pages.
    pub(crate) fn block(self) -> Size {
        Size(with_isa!(self, A => A::block_order().bytes(A::PAGE_SHIFT)))
    }

    /// The size nearest to `size` that folios of this format have: at least a base page, at most
    /// the largest block of the allocator.
    pub(crate) fn nearest(self, size: Size) -> Size {
        let shift = self.page_shift();
        Size(size.bytes().clamp(1 << shift, ORDER_MAX.bytes(shift)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_units::Order;

    #[test]
    fn sizes_become_those_the_format_has() {
        let nearest = |isa: Isa, bytes| isa.nearest(Size(bytes)).bytes();
        assert_eq!(nearest(Isa::X86_64, 4096), 4096);
        assert_eq!(nearest(Isa::Arm16k, 4096), 16 << 10);
        assert_eq!(nearest(Isa::Arm64k, 4096), 64 << 10);
        assert_eq!(nearest(Isa::Arm64k, 2 << 20), 2 << 20);
        assert_eq!(nearest(Isa::Sv39, 4 << 30), 1 << 30);
        for isa in Isa::value_variants() {
            let order = |size| Order::of_bytes(isa.nearest(size).bytes(), isa.page_shift());
            assert_eq!(order(Size(1)), Some(Order::ZERO), "{isa:?}");
            assert_eq!(order(Size(1 << 50)), Some(ORDER_MAX), "{isa:?}");
        }
    }

    #[test]
    fn every_format_has_a_name() {
        let names: Vec<_> = Isa::value_variants().iter().map(|isa| isa.name()).collect();
        assert_eq!(names[0], "x86_64");
        assert_eq!(names.len(), 8);
        assert!(names.iter().all(|name| !name.is_empty()));
    }
}
