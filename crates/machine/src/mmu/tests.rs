//! Words spelled out from the manuals, bit by bit.

use quire_hw::MemoryTypes;
use quire_units::{Order, Pfn, Prot, VirtAddr};

use super::{Flaw, Granule, Isa, Leaf, Meaning, Sv};
use crate::Config;

const X86: Isa = Isa::X86_64 { levels: 4 };
const ARM_4K: Isa = Isa::Arm64 { granule: Granule::K4, va_bits: 48 };
const ARM_16K: Isa = Isa::Arm64 { granule: Granule::K16, va_bits: 48 };
const ARM_64K: Isa = Isa::Arm64 { granule: Granule::K64, va_bits: 48 };
const SV39: Isa = Isa::Riscv64(Sv::Sv39);

#[track_caller]
fn leaf(isa: Isa, word: u64, level: u8) -> Leaf {
    match isa.decode(word, level, 0) {
        Meaning::Leaf(leaf) => leaf,
        other => panic!("{word:#x} is {other:?}"),
    }
}

#[track_caller]
fn flaw(isa: Isa, word: u64, level: u8) -> Flaw {
    match isa.decode(word, level, 0) {
        Meaning::Malformed(flaw) => flaw,
        other => panic!("{word:#x} is {other:?}"),
    }
}

#[test]
fn zero_is_absent_everywhere_and_so_is_every_word_with_the_valid_bit_clear() {
    for isa in Isa::ALL {
        for level in 0..isa.geometry().levels {
            assert_eq!(isa.decode(0, level, 0), Meaning::Absent);
            assert_eq!(isa.decode(!1, level, 0), Meaning::Absent);
        }
    }
}

#[test]
fn geometries_are_those_of_the_manuals() {
    let shape = |isa: Isa| {
        let g = isa.geometry();
        let bits: Vec<_> = (0..g.levels).map(|l| g.entries(l).ilog2()).collect();
        (g.page_shift, bits)
    };
    assert_eq!(shape(X86), (12, vec![9, 9, 9, 9]));
    assert_eq!(shape(Isa::X86_64 { levels: 5 }), (12, vec![9, 9, 9, 9, 9]));
    assert_eq!(shape(ARM_4K), (12, vec![9, 9, 9, 9]));
    assert_eq!(shape(ARM_16K), (14, vec![11, 11, 11, 1]));
    assert_eq!(shape(ARM_64K), (16, vec![13, 13, 6]));
    assert_eq!(shape(SV39), (12, vec![9, 9, 9]));
    assert_eq!(shape(Isa::Riscv64(Sv::Sv57)), (12, vec![9, 9, 9, 9, 9]));
}

#[test]
fn addresses_must_be_canonical() {
    let page = |isa: Isa, addr| isa.geometry().page(VirtAddr::new(addr));
    assert!(page(X86, 0x0000_7fff_ffff_ffff).is_some());
    assert!(page(X86, 0x0000_8000_0000_0000).is_none());
    assert!(page(X86, 0xffff_8000_0000_0000).is_some());
    assert!(page(SV39, 0x0000_0040_0000_0000).is_none());
    assert!(page(SV39, 0xffff_ffc0_0000_0000).is_some());
    assert!(page(ARM_4K, 0x0000_ffff_ffff_ffff).is_some());
    assert!(page(ARM_4K, 0xffff_8000_0000_0000).is_none(), "that is TTBR1's");
}

#[test]
fn x86_page_of_a_program() {
    // XD, D, A, U/S, R/W, P; frame 0x12345.
    let got = leaf(X86, 1 << 63 | 0x1234_5000 | 0x67, 0);
    assert_eq!(got.frame, Pfn::new(0x12345));
    assert_eq!((got.order, got.block), (Order::ZERO, Order::ZERO));
    assert_eq!(got.prot, Prot::RW);
    assert!(got.accessed && got.dirty && !got.global);
    // Without U/S it is the kernel's.
    assert_eq!(leaf(X86, 0x1234_5063, 0).prot, Prot::empty());
    // Read-only and executable, old and clean, global.
    let got = leaf(X86, 0x1234_5105, 0);
    assert_eq!(got.prot, Prot::RX);
    assert!(!got.accessed && !got.dirty && got.global);
}

#[test]
fn x86_blocks_need_ps_alignment_and_a_level_that_has_them() {
    let got = leaf(X86, 0x4020_0000 | 0x87, 1);
    assert_eq!((got.frame, got.order), (Pfn::new(0x40200), Order::new(9)));
    assert_eq!(leaf(X86, 0x8000_0000 | 0x87, 2).order, Order::new(18));
    // Bit 12 of a block is PAT, at the last level bit 7 is.
    assert_ne!(leaf(X86, 0x4020_1087, 1).memory, leaf(X86, 0x4020_0087, 1).memory);
    assert_ne!(leaf(X86, 0x4020_0087, 0).memory, leaf(X86, 0x4020_0007, 0).memory);
    assert_eq!(flaw(X86, 0x4020_2087, 1), Flaw::Misaligned(0x2000));
    assert_eq!(flaw(X86, 0x4020_0087, 2), Flaw::Misaligned(0x20_0000));
    assert_eq!(flaw(X86, 0x87, 3), Flaw::NoLeafHere);
    assert_eq!(flaw(X86, 1 << 51 | 7, 0), Flaw::Reserved(1 << 51));
}

#[test]
fn x86_tables_limit_the_rights_below() {
    let Meaning::Table(table) = X86.decode(1 << 63 | 0x9000 | 0x05, 2, 0) else { panic!() };
    assert_eq!((table.frame, table.limits), (Pfn::new(9), Prot::READ));
    assert!(!table.accessed);
    assert_eq!(X86.passed(0x9007), 0x9027);
}

#[test]
fn arm_page_of_a_program() {
    // UXN, PXN, DBM, nG, AF, SH inner, AP read-only for all, AttrIndx 1, page.
    let word = 3 << 53 | 1 << 51 | 0x1234_5000 | 0xfc7;
    let got = leaf(ARM_4K, word, 0);
    assert_eq!(got.frame, Pfn::new(0x12345));
    assert_eq!(got.prot, Prot::RW, "read-only with DBM is writable and clean");
    assert!(got.accessed && !got.dirty && !got.global && !got.is_contiguous());
    assert_eq!(leaf(ARM_4K, word & !(1 << 51), 0).prot, Prot::READ);
    assert_eq!(leaf(ARM_4K, word & !(1 << 54), 0).prot, Prot::all());
    assert!(!leaf(ARM_4K, word & !(1 << 10), 0).accessed);
    assert!(leaf(ARM_4K, word & !(1 << 11), 0).global);
    // Executable and not readable: AP[1] and UXN clear.
    assert_eq!(leaf(ARM_4K, 0x1234_5000 | 0xf87, 0).prot, Prot::EXEC);
    assert_eq!(ARM_4K.touched(word, true), word & !(1 << 7));
}

#[test]
fn arm_levels_that_have_blocks_and_contiguous_sizes() {
    let contiguous = 1 << 52 | 0x401;
    let cases = [
        (ARM_4K, 0, 2, 0, 4),
        (ARM_4K, 1, 0, 9, 13),
        (ARM_4K, 2, 0, 18, 22),
        (ARM_16K, 0, 2, 0, 7),
        (ARM_16K, 1, 0, 11, 16),
        (ARM_64K, 0, 2, 0, 5),
        (ARM_64K, 1, 0, 13, 18),
    ];
    for (isa, level, page_bit, order, block) in cases {
        let got = leaf(isa, contiguous | page_bit, level);
        assert_eq!((got.order.get(), got.block.get()), (order, block), "{isa:?} {level}");
        assert!(!leaf(isa, 0x401 | page_bit, level).is_contiguous());
    }
    for (isa, level) in [(ARM_4K, 3), (ARM_16K, 2), (ARM_16K, 3), (ARM_64K, 2)] {
        assert_eq!(flaw(isa, 0x401, level), Flaw::NoLeafHere);
    }
    assert_eq!(flaw(ARM_4K, 0x401, 0), Flaw::NoLeafHere, "0b01 is reserved at the last level");
}

#[test]
fn arm_reserved_fields() {
    assert_eq!(flaw(ARM_4K, 0x40_1000 | 0x401, 1), Flaw::Misaligned(0x1000));
    assert_eq!(flaw(ARM_16K, 0x1000 | 0x403, 0), Flaw::Misaligned(0x1000));
    assert_eq!(flaw(ARM_4K, 1 << 48 | 0x403, 0), Flaw::Reserved(1 << 48));
    assert_eq!(flaw(ARM_4K, 0x503, 0), Flaw::Encoding, "SH 0b01");
    assert_eq!(flaw(ARM_64K, 0x1000 | 3, 1), Flaw::Reserved(0x1000));
    let limited = |bits: u64| match ARM_4K.decode(bits | 0x9003, 1, 0) {
        Meaning::Table(table) => table.limits,
        other => panic!("{other:?}"),
    };
    assert_eq!(limited(0), Prot::all());
    assert_eq!(limited(1 << 62), Prot::RX);
    assert_eq!(limited(1 << 61), Prot::EXEC);
    assert_eq!(limited(1 << 60), Prot::RW);
}

#[test]
fn riscv_leaves_and_tables() {
    // D A U X W R V
    let got = leaf(SV39, 0x12345 << 10 | 0xdf, 0);
    assert_eq!((got.frame, got.prot), (Pfn::new(0x12345), Prot::all()));
    assert!(got.accessed && got.dirty && !got.global);
    assert_eq!(leaf(SV39, 0x40000 << 10 | 0x13, 2).order, Order::new(18));
    assert_eq!(leaf(SV39, 0x40200 << 10 | 0x19, 1).prot, Prot::EXEC);
    let Meaning::Table(table) = SV39.decode(9 << 10 | 1, 1, 0) else { panic!() };
    assert_eq!(table.frame, Pfn::new(9));
}

#[test]
fn riscv_reserved_encodings() {
    assert_eq!(flaw(SV39, 0x15, 0), Flaw::WriteWithoutRead);
    assert_eq!(flaw(SV39, 0x1d, 0), Flaw::WriteWithoutRead);
    assert_eq!(flaw(SV39, 9 << 10 | 1, 0), Flaw::NoTableHere);
    assert_eq!(flaw(SV39, 9 << 10 | 0x41, 1), Flaw::Reserved(0x40), "A in a pointer");
    assert_eq!(flaw(SV39, 1 << 10 | 0x17, 1), Flaw::Misaligned(0x1000));
    assert_eq!(flaw(SV39, 1 << 54 | 0x17, 0), Flaw::Reserved(1 << 54));
    assert_eq!(flaw(SV39, 3 << 61 | 0x17, 0), Flaw::Encoding);
}

#[test]
fn riscv_napot_blocks_are_64_kib_only() {
    let word = 1 << 63 | 0x48 << 10 | 0x17;
    let Meaning::Leaf(got) = SV39.decode(word, 0, 5) else { panic!() };
    assert_eq!((got.frame, got.block), (Pfn::new(0x45), Order::new(4)));
    assert_eq!(flaw(SV39, 1 << 63 | 0x44 << 10 | 0x17, 0), Flaw::BlockSize);
    assert_eq!(flaw(SV39, 1 << 63 | 0x200 << 10 | 0x17, 1), Flaw::BlockSize);
}

#[test]
fn a_leaf_says_a_type_that_the_cpu_has_and_the_device_is_not_cached() {
    let config = Config { device_frames: 4, ..Config::riscv64_sv39() };
    let plain = config.devices().start.get() << 10 | 0xd7;
    let [combining, device, reserved] = [1, 2, 3].map(|pbmt| plain | pbmt << 61);
    let flaw = |config: &Config, word: u64| match config.decode(word, 0, 0) {
        Meaning::Malformed(flaw) => Some(flaw),
        _ => None,
    };
    assert_eq!(flaw(&config, plain), Some(Flaw::CachedDevice));
    assert_eq!(flaw(&config, device), None);
    assert_eq!(flaw(&config, combining), None);
    assert_eq!(flaw(&config, reserved), Some(Flaw::Encoding));
    // Svpbmt is missing: the address gives the type, and the bits are reserved.
    let without = Config { memory_types: MemoryTypes::PLATFORM, ..config };
    assert_eq!(flaw(&without, plain), None);
    for word in [combining, device] {
        assert_eq!(flaw(&without, word), Some(Flaw::NoMemoryType));
    }
    // UC- of the PAT, and a byte of MAIR_EL1 that nothing has written.
    let ram = 1 << 30;
    assert_eq!(flaw(&Config::x86_64(), ram | 0x67), None);
    assert_eq!(flaw(&Config::x86_64(), ram | 0x67 | 2 << 3), Some(Flaw::NoMemoryType));
    assert_eq!(flaw(&Config::arm64_4k(), ram | 0x743), None);
    assert_eq!(flaw(&Config::arm64_4k(), ram | 0x743 | 3 << 2), Some(Flaw::NoMemoryType));
}
