//! The formats one by one: laws, shapes, and the promises of each module's documentation.

use std::vec::Vec;

use proptest::prelude::*;
use quire_units::{Order, Pfn};

use super::each_format;
use crate::{
    Arch, Arm4k, Arm16k, Arm64k, Attrs, Entry, Level, Sv39, Sv48, Sv57, X86_64, X86_64La57, laws,
};

each_format!(laws_hold, A => assert_eq!(laws::check::<A>(), Ok(())));

each_format!(any_word_decodes_and_says_the_same_again, A => {
    proptest!(|(word: u64, at in 0..A::LEVELS.len() as u8)| {
        prop_assert_eq!(laws::stable::<A>(word, Level::new(at)), Ok(()));
    });
});

each_format!(words_near_a_leaf_say_the_same_again, A => {
    let (level, attrs) = (0..A::LEVELS.len() as u8, 0..=Attrs::all().bits());
    proptest!(|(page: u64, attrs in attrs, at in level, flips: u64, sparse: u64)| {
        let level = Level::new(at);
        prop_assume!(A::is_leaf_level(level));
        let frame = Pfn::new(page % A::FRAMES).align_down(A::order(level).pages());
        let mut attrs = Attrs::from_bits_truncate(attrs);
        attrs.set(Attrs::COMBINING, attrs & Attrs::MEMORY == Attrs::COMBINING);
        let word = A::leaf(frame, level, attrs);
        let damage = flips & sparse & sparse.rotate_left(17);
        prop_assert_eq!(laws::stable::<A>(word ^ damage, level), Ok(()));
    });
});

each_format!(words_near_a_marker_say_the_same_again, A => {
    proptest!(|(payload in 0..1_u64 << 56, at in 0..A::LEVELS.len() as u8)| {
        for bit in 0..64 {
            let word = A::marker(payload) ^ 1 << bit;
            prop_assert_eq!(laws::stable::<A>(word, Level::new(at)), Ok(()), "bit {}", bit);
        }
    });
});

#[test]
fn a_field_has_both_its_ends() {
    for (high, low, bits) in [(0, 0, 1), (63, 0, u64::MAX), (63, 63, 1 << 63), (12, 9, 0x1e00)] {
        assert_eq!(crate::bits::field(high, low), bits, "{high}:{low}");
    }
}

/// Virtual address bits, bits of programs' addresses, physical address bits.
fn widths<A: Arch>() -> (u32, u32, u32) {
    let index: u32 = A::LEVELS.iter().map(|shape| u32::from(shape.index_bits)).sum();
    let user = A::USER_PAGES.ilog2() + A::PAGE_SHIFT;
    (index + A::PAGE_SHIFT, user, A::FRAMES.ilog2() + A::PAGE_SHIFT)
}

const _: () = assert!(Arm4k::USER_PAGES << Arm4k::PAGE_SHIFT == Arm64k::USER_PAGES << 16);

#[test]
fn addresses_are_as_wide_as_the_manuals_say() {
    assert_eq!(widths::<X86_64>(), (48, 47, 52));
    assert_eq!(widths::<X86_64La57>(), (57, 56, 52));
    assert_eq!(widths::<Arm4k>(), (48, 48, 48));
    assert_eq!(widths::<Arm16k>(), (48, 48, 48));
    assert_eq!(widths::<Arm64k>(), (48, 48, 48));
    assert_eq!(widths::<Sv39>(), (39, 38, 56));
    assert_eq!(widths::<Sv48>(), (48, 47, 56));
    assert_eq!(widths::<Sv57>(), (57, 56, 56));
}

/// Bytes of a leaf and of a contiguous group, at each level that has leaves, from the last up.
fn sizes<A: Arch>() -> Vec<(u64, u64)> {
    let levels = (0..A::LEVELS.len() as u8).map(Level::new).filter(|&l| A::is_leaf_level(l));
    levels
        .map(|level| {
            let leaf = A::order(level).bytes(A::PAGE_SHIFT);
            (leaf, leaf << A::LEVELS[level.index()].contiguous)
        })
        .collect()
}

#[test]
fn leaves_and_contiguous_groups_have_the_sizes_of_the_manuals() {
    const K: u64 = 1 << 10;
    const M: u64 = 1 << 20;
    const G: u64 = 1 << 30;
    let x86 = [4 * K, 2 * M, G].map(|size| (size, size));
    assert_eq!(sizes::<X86_64>(), x86);
    assert_eq!(sizes::<X86_64La57>(), x86);
    assert_eq!(sizes::<Arm4k>(), [(4 * K, 64 * K), (2 * M, 32 * M), (G, 16 * G)]);
    assert_eq!(sizes::<Arm16k>(), [(16 * K, 2 * M), (32 * M, G)]);
    assert_eq!(sizes::<Arm64k>(), [(64 * K, 2 * M), (512 * M, 16 * G)]);
    let sv = [(4 * K, 64 * K), (2 * M, 2 * M), (G, G), (512 * G, 512 * G)];
    assert_eq!(sizes::<Sv39>(), sv[..3]);
    assert_eq!(sizes::<Sv48>(), sv);
    assert_eq!(sizes::<Sv57>()[4], (1 << 48, 1 << 48));
}

/// Formats whose embedder has numbered the memory types otherwise.
mod other_slots {
    use crate::aarch64::Arm64;
    use crate::x86_64::X86;
    use crate::{Arch, Attrs, Level, laws, memory_slots};

    type OtherX86 = X86<4, { memory_slots(2, 3, 0) }>;
    type OtherArm = Arm64<12, { memory_slots(7, 0, 4) }>;

    fn types<A: Arch>() -> [u64; 3] {
        let mask = A::leaf(quire_units::Pfn::new(0), Level::LAST, Attrs::READ);
        let plain = [Attrs::empty(), Attrs::COMBINING, Attrs::DEVICE];
        plain.map(|memory| {
            let word = A::leaf(quire_units::Pfn::new(0), Level::LAST, Attrs::READ | memory);
            assert_eq!(word & !0x1f, mask & !0x1f);
            word >> 2 & 7
        })
    }

    #[test]
    fn hold_the_laws() {
        assert_eq!(laws::check::<OtherX86>(), Ok(()));
        assert_eq!(laws::check::<OtherArm>(), Ok(()));
    }

    #[test]
    fn are_those_of_the_words() {
        assert_eq!(types::<OtherX86>().map(|bits| bits >> 1), [2, 3, 0]);
        assert_eq!(types::<OtherArm>(), [7, 0, 4]);
    }

    #[test]
    fn are_any_three_that_differ() {
        for (usual, combining, device) in [(0, 2, 1), (7, 0, 4), (1, 7, 0)] {
            let all = memory_slots(usual, combining, device);
            let digits = [0, 4, 8, 12].map(|at| all >> at & 15);
            assert_eq!(digits, [usual, combining, device, device]);
        }
    }

    #[test]
    fn are_refused_where_two_are_one_or_one_is_too_large() {
        let refused = [(0, 1, 1), (1, 0, 1), (1, 1, 0), (8, 0, 1), (0, 8, 1), (0, 1, 8)];
        for (usual, combining, device) in refused {
            let made = std::panic::catch_unwind(|| memory_slots(usual, combining, device));
            assert!(made.is_err(), "{usual}, {combining}, {device}");
        }
    }
}

#[test]
fn the_highest_fitting_leaf_level_is_chosen() {
    assert_eq!(X86_64::leaf_level(Order::new(8)), Level::LAST);
    assert_eq!(X86_64::leaf_level(Order::new(9)), Level::new(1));
    assert_eq!(X86_64::leaf_level(Order::new(40)), Level::new(2));
    assert_eq!(Arm16k::leaf_level(Order::new(40)), Level::new(1));
    assert_eq!(Arm64k::block_order(), Order::new(13));
}

#[test]
fn b2_code_likes_64_kib_where_a_contiguous_bit_can_say_so() {
    fn bytes<A: Arch>() -> Option<u64> {
        A::exec_order().map(|order| order.bytes(A::PAGE_SHIFT))
    }
    let some = Some(64 << 10);
    assert_eq!((bytes::<Arm4k>(), bytes::<Arm16k>(), bytes::<Arm64k>()), (some, some, None));
    assert_eq!((bytes::<Sv39>(), bytes::<Sv48>(), bytes::<Sv57>()), (some, some, some));
    assert_eq!((bytes::<X86_64>(), bytes::<X86_64La57>()), (None, None));
}

/// The address that a CPU with L1TF would look up for a word if it uses only `bits` address bits.
fn speculated(word: u64, bits: u32) -> u64 {
    word & 0x000f_ffff_ffff_f000 & ((1 << bits) - 1)
}

#[test]
fn x86_hidden_leaves_point_beyond_memory() {
    let gib = |n: u64| Pfn::new(n << 18);
    for attrs in
        (0..=Attrs::all().bits()).map(Attrs::from_bits_truncate).filter(|a| a.prot().is_empty())
    {
        for frame in [0, 1, 7, 64, 4096, (8 << 10) - 1].map(gib) {
            let word = X86_64::leaf(frame, Level::new(2), attrs);
            assert!(speculated(word, 44) >= 8 << 40, "client: {word:#x}");
        }
        for frame in [0, 1, 4096, 8 << 10, (24 << 10) - 1].map(gib) {
            let word = X86_64::leaf(frame, Level::new(2), attrs);
            assert!(speculated(word, 46) >= 32 << 40, "server: {word:#x}");
        }
    }
}

#[test]
fn x86_markers_point_beyond_memory_whatever_they_carry() {
    for payload in (0..56).map(|bit| 1 << bit).chain([0, u64::MAX >> 8]) {
        let word = X86_64::marker(payload);
        assert!(speculated(word, 44) >= 8 << 40 && speculated(word, 46) >= 32 << 40);
    }
}

#[test]
fn x86_dirty_of_a_leaf_that_lost_write_is_read_either_way() {
    let attrs = Attrs::READ | Attrs::YOUNG | Attrs::DIRTY;
    let word = X86_64::leaf(Pfn::new(5), Level::LAST, attrs);
    let entry = X86_64::decode(word, Level::LAST);
    assert_eq!(X86_64::decode(word | 1 << 6, Level::LAST), entry);
    assert_eq!(entry, Entry::Leaf { frame: Pfn::new(5), attrs });
}

#[test]
fn arm64_contiguous_bit_is_ignored_in_leaves() {
    let attrs = Attrs::READ | Attrs::WRITE | Attrs::USER;
    for level in [Level::LAST, Level::new(1)] {
        let word = Arm64k::leaf(Pfn::new(8192), level, attrs);
        assert_eq!(Arm64k::decode(word | 1 << 52, level), Arm64k::decode(word, level));
    }
}

#[test]
fn riscv_napot_words_are_malformed() {
    let word = Sv39::leaf(Pfn::new(8), Level::LAST, Attrs::READ);
    assert_eq!(Sv39::decode(word | 1 << 63, Level::LAST), Entry::Malformed);
}

#[test]
fn c1_riscv_folded_words_of_a_block_are_equal_and_lack_the_low_bits_of_the_frame() {
    let word = |frame| Sv48::leaf(Pfn::new(frame), Level::LAST, Attrs::READ);
    let folded = word(0xabc_def8) | 1 << 63;
    for place in 0..16 {
        let plain = word(0xabc_def0 + place);
        assert_eq!(Sv48::fold(plain, Level::LAST), folded);
        assert_eq!(Sv48::unfold(folded, Level::LAST, 0x1a0 + place as usize), plain);
    }
}

#[test]
fn c1_riscv_words_of_block_sizes_that_do_not_exist_are_not_folded() {
    let word = Sv48::fold(Sv48::leaf(Pfn::new(0x30), Level::LAST, Attrs::READ), Level::LAST);
    assert!(Sv48::is_folded(word, Level::LAST) && !Sv48::is_folded(word, Level::new(1)));
    for flaw in 1..16 {
        assert!(!Sv48::is_folded(word ^ flaw << 10, Level::LAST));
    }
}

#[test]
fn c1_arm64_folded_words_are_plain_ones_with_the_contiguous_bit() {
    for (level, frame) in [(Level::LAST, 0x123), (Level::new(1), 0x1800)] {
        let word = Arm16k::leaf(Pfn::new(frame), level, Attrs::READ | Attrs::EXEC);
        assert_eq!(Arm16k::fold(word, level), word | 1 << 52);
        assert_eq!(Arm16k::unfold(word | 1 << 52, level, 0), word);
    }
}

#[test]
fn c1_x86_folds_nothing() {
    for level in (0..3).map(Level::new) {
        let word = X86_64::leaf(Pfn::new(1 << 18), level, Attrs::READ);
        assert_eq!(X86_64::fold_order(level), None);
        assert_eq!(X86_64::fold(word, level), word);
        assert_eq!(X86_64::unfold(word, level, 3), word);
        assert!(!X86_64::is_folded(word | 1 << 52, level));
    }
}
