//! The demands of changes, case by case, where the manuals leave one answer.

use quire_units::Pfn;

use crate::Transition::{BreakBeforeMake, Flush, Nothing};
use crate::{Arch, Arm4k, Attrs, Level, Sv39, Sv48, Transition, X86_64};

const RO: Attrs = Attrs::READ.union(Attrs::USER).union(Attrs::YOUNG);
const RW: Attrs = RO.union(Attrs::WRITE).union(Attrs::DIRTY);
const BLOCK: Level = Level::new(1);

fn leaf<A: Arch>(frame: u64, attrs: Attrs) -> u64 {
    A::leaf(Pfn::new(frame << 9), BLOCK, attrs)
}

/// The demands of one change on x86-64, arm64 and riscv64, none of them relaxed.
macro_rules! demands {
    ($change:ident) => {
        [$change::<X86_64>(false), $change::<Arm4k>(false), $change::<Sv48>(false)]
    };
}

fn change<A: Arch>(from: (u64, Attrs), to: (u64, Attrs)) -> Transition {
    A::transition(leaf::<A>(from.0, from.1), leaf::<A>(to.0, to.1), BLOCK, false)
}

fn on_all(from: (u64, Attrs), to: (u64, Attrs)) -> [Transition; 3] {
    [change::<X86_64>(from, to), change::<Arm4k>(from, to), change::<Sv48>(from, to)]
}

#[test]
fn write_protecting_flushes_and_granting_does_not() {
    assert_eq!(on_all((1, RW), (1, RO)), [Flush; 3]);
    assert_eq!(on_all((1, RO), (1, RW)), [Nothing; 3]);
    assert_eq!(on_all((1, RO), (1, Attrs::USER)), [Flush; 3]);
    assert_eq!(on_all((1, Attrs::USER), (1, RO)), [Nothing; 3]);
}

#[test]
fn a_cleared_dirty_flag_flushes_only_where_stores_may_follow() {
    assert_eq!(on_all((1, RW), (1, RW - Attrs::DIRTY)), [Flush; 3]);
    assert_eq!(on_all((1, RO | Attrs::DIRTY), (1, RO)), [Nothing; 3]);
}

#[test]
fn ageing_and_soft_bits_are_free() {
    assert_eq!(on_all((1, RW), (1, RW - Attrs::YOUNG)), [Nothing; 3]);
    assert_eq!(on_all((1, RW), (1, RW | Attrs::SOFT)), [Nothing; 3]);
}

#[test]
fn c3_sharing_a_page_costs_what_write_protecting_it_does_and_claiming_it_nothing() {
    let shared = RO | Attrs::DIRTY | Attrs::COW;
    assert_eq!(on_all((1, RW), (1, shared)), [Flush; 3]);
    assert_eq!(on_all((1, shared), (1, RW)), [Nothing; 3]);
    assert_eq!(on_all((1, shared), (1, shared - Attrs::COW)), [Nothing; 3]);
}

#[test]
fn copy_on_write_breaks_and_moving_a_read_only_page_breaks_only_on_arm64() {
    assert_eq!(on_all((1, RO), (2, RW)), [BreakBeforeMake; 3]);
    assert_eq!(on_all((1, RO), (2, RO)), [Flush, BreakBeforeMake, Flush]);
}

#[test]
fn memory_type_breaks_and_global_breaks_on_arm64() {
    assert_eq!(on_all((1, RW), (1, RW | Attrs::DEVICE)), [BreakBeforeMake; 3]);
    assert_eq!(on_all((1, RW), (1, RW | Attrs::COMBINING)), [BreakBeforeMake; 3]);
    let global = [Flush, BreakBeforeMake, Flush];
    assert_eq!(on_all((1, RW), (1, RW | Attrs::GLOBAL)), global);
    assert_eq!(on_all((1, RW | Attrs::GLOBAL), (1, RW)), global);
}

fn split<A: Arch>(relaxed: bool) -> Transition {
    A::transition(leaf::<A>(1, RW), A::table(Pfn::new(9)), BLOCK, relaxed)
}

fn collapse<A: Arch>(relaxed: bool) -> Transition {
    A::transition(A::table(Pfn::new(9)), leaf::<A>(1, RW), BLOCK, relaxed)
}

fn prune<A: Arch>(relaxed: bool) -> Transition {
    A::transition(A::table(Pfn::new(9)), 0, BLOCK, relaxed)
}

#[test]
fn another_block_size_breaks_where_the_cpu_is_not_relaxed() {
    assert_eq!(demands!(split), [BreakBeforeMake, BreakBeforeMake, Flush]);
    assert_eq!(demands!(collapse), [BreakBeforeMake, BreakBeforeMake, Flush]);
    assert_eq!([split::<Arm4k>(true), collapse::<X86_64>(true)], [Flush; 2]);
    assert_eq!(demands!(prune), [Flush; 3]);
}

#[test]
fn another_table_breaks_also_where_the_cpu_is_relaxed() {
    fn swap<A: Arch>(relaxed: bool) -> Transition {
        A::transition(A::table(Pfn::new(8)), A::table(Pfn::new(9)), BLOCK, relaxed)
    }
    assert_eq!(demands!(swap), [BreakBeforeMake, BreakBeforeMake, Flush]);
    assert_eq!(swap::<Arm4k>(true), BreakBeforeMake);
}

#[test]
fn arm64_contiguity_breaks_where_the_cpu_is_not_relaxed() {
    let word = Arm4k::leaf(Pfn::new(16), Level::LAST, RW);
    let folded = Arm4k::fold(word, Level::LAST);
    for (old, new) in [(word, folded), (folded, word)] {
        assert_eq!(Arm4k::transition(old, new, Level::LAST, false), BreakBeforeMake);
        assert_eq!(Arm4k::transition(old, new, Level::LAST, true), Flush);
    }
    let protected = Arm4k::leaf(Pfn::new(16), Level::LAST, RO | Attrs::DIRTY) | 1 << 52;
    assert_eq!(Arm4k::transition(folded, protected, Level::LAST, false), Flush);
}

#[test]
fn c2_riscv_contiguity_flushes_and_folded_words_change_as_plain_ones_do() {
    let plain = |frame, attrs| Sv39::leaf(Pfn::new(frame), Level::LAST, attrs);
    let folded = |frame, attrs| Sv39::fold(plain(frame, attrs), Level::LAST);
    let demand = |old, new| Sv39::transition(old, new, Level::LAST, false);
    for frame in [16, 21, 31] {
        assert_eq!(demand(plain(frame, RW), folded(frame, RW)), Flush);
        assert_eq!(demand(folded(frame, RW), plain(frame, RW)), Flush);
        assert_eq!(demand(folded(frame, RW), plain(frame + 16, RW)), BreakBeforeMake);
    }
    assert_eq!(demand(folded(16, RW), folded(16, RO)), Flush);
    assert_eq!(demand(folded(16, RO), folded(16, RW)), Nothing);
    assert_eq!(demand(folded(16, RW), folded(32, RW)), BreakBeforeMake);
    assert_eq!(demand(folded(16, RO), folded(32, RO)), Flush);
    let torn = folded(16, RW) ^ 1 << 10;
    assert_eq!(demand(folded(16, RW), torn), BreakBeforeMake);
}
