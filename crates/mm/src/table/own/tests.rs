//! The kernel's half beside a naive model: the list of its regions, page by page.
#![allow(unsafe_code)]

use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use quire_arch::{Arm4k, Arm64k, Entry, Sv39, Sv57, X86_64};

use super::*;

/// Frames of early memory.
const FRAMES: u64 = 128;

/// The frame and the rights that the tables show at `page`; `load` reads a word of a frame.
fn translate<A: Arch>(
    load: &dyn Fn(Pfn, usize) -> u64,
    (root, largest): (Pfn, Order),
    page: u64,
) -> Option<(u64, Attrs)> {
    let (mut table, mut level) = (root, A::ROOT);
    loop {
        match A::decode(load(table, A::index(Vpn::new(page), level)), level) {
            Entry::Table(lower) => (table, level) = (lower, level.child()?),
            Entry::Leaf { frame, attrs } => {
                assert!(A::order(level) <= largest, "a leaf of {level:?}");
                let past = page % A::order(level).pages();
                return Some((frame.get() + past, attrs & Attrs::RIGHTS));
            }
            _ => return None,
        }
    }
}

/// The same by the list.
fn expected(regions: &[Region], page: u64) -> Option<(u64, Attrs)> {
    let region = regions.iter().find(|region| region.pages.contains(Vpn::new(page)))?;
    let past = (page - region.pages.start.get()) % region.frames.count;
    Some((region.frames.start.get() + past, region.attrs))
}

/// The first page of the region, counted from the half's; its length; its first frame; how many
/// frames it has; and its rights.
type Drawn = (u64, u64, u64, u64, usize);

fn holds<A: Arch>(drawn: &[Drawn]) {
    holds_up_to::<A>(drawn, A::block_order());
    holds_up_to::<A>(drawn, Order::new(30));
}

fn holds_up_to<A: Arch>(drawn: &[Drawn], largest: Order) {
    let first = (1 << (64 - A::PAGE_SHIFT)) - A::USER_PAGES;
    let rights = [Attrs::READ, Attrs::READ | Attrs::WRITE, Attrs::READ | Attrs::EXEC];
    let regions: Vec<Region> = drawn
        .iter()
        .map(|&(start, pages, frame, frames, attrs)| Region {
            pages: PageSpan::at(Vpn::new(first + start), pages).unwrap(),
            frames: FrameSpan::new(Pfn::new(frame), frames.min(pages)),
            attrs: rights[attrs],
        })
        .collect();
    let page = 1_usize << A::PAGE_SHIFT;
    let mut memory = vec![0_u64; (FRAMES as usize + 1) * page / 8];
    let direct = memory.as_mut_ptr().expose_provenance().next_multiple_of(page) - page;
    // SAFETY: 1. only the early memory, and `load` below, use the vector while the test runs. 2. it
    // is visible, frame 1 at its first page.
    let mut early = unsafe { Early::<2>::new(direct, u64::MAX, A::PAGE_SHIFT) };
    early.add(page as u64..(1 + FRAMES) * page as u64).unwrap();
    let half = KernelHalf::new::<A, 2>(&mut early, &regions, largest).unwrap();
    let load = |frame: Pfn, index: usize| {
        assert!((1..=FRAMES).contains(&frame.get()), "{frame} has no table");
        let address = direct + frame.get() as usize * page + 8 * index;
        // SAFETY: a word of the vector, which has only atomic words there.
        unsafe { &*std::ptr::with_exposed_provenance::<AtomicU64>(address) }.load(Ordering::Relaxed)
    };
    let root = (half.root(), largest);
    let ends =
        drawn.iter().flat_map(|&(start, pages, ..)| [start, start + pages / 2, start + pages]);
    for page in ends.flat_map(|at| [at.saturating_sub(1), at, at + 1, at + 511]) {
        assert_eq!(translate::<A>(&load, root, first + page), expected(&regions, first + page));
    }
    let copy: Vec<_> = (0..page / 8).map(|_| AtomicU64::new(1)).collect();
    half.copy_to(&copy);
    let copy = copy.into_iter().map(AtomicU64::into_inner);
    let programs = A::index(Vpn::new(first), A::ROOT);
    for (index, word) in copy.enumerate() {
        let own = (programs..A::entries(A::ROOT)).contains(&index);
        assert_eq!(word, if own { load(root.0, index) } else { 0 }, "{index}");
    }
}

fn region() -> impl Strategy<Value = Drawn> {
    let small = (0..5000_u64, 1..3000_u64, 0..3000_u64, 1..3000_u64, 0..3_usize);
    // In large leaves, since there is not memory for the tables of as many pages.
    let large = (0..4_u64, prop_oneof![Just(512_u64), Just(1 << 18)], 0..4_u64);
    let large = (large, 0..3_usize)
        .prop_map(|((start, pages, frame), attrs)| (start << 9, pages, frame << 9, 1 << 19, attrs));
    prop_oneof![small, large]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_kernels_half_shows_each_region_and_nothing_else(
        drawn in prop::collection::vec(region(), 1..4),
    ) {
        holds::<X86_64>(&drawn);
        holds::<Sv39>(&drawn);
        holds::<Sv57>(&drawn);
        holds::<Arm4k>(&drawn);
        holds::<Arm64k>(&drawn);
    }
}

#[test]
fn a_region_of_the_direct_map_has_the_whole_pages() {
    let pages = |bytes| {
        let region = Region::direct::<Sv39>(0xffff_ffc0_0000_0000, bytes, Attrs::READ);
        assert_eq!(region.pages.start.get() - 0xf_ffff_fc00_0000, region.frames.start.get());
        (region.frames.start.get(), region.frames.count)
    };
    assert_eq!(pages(0x8020_0000..0x8020_3000), (0x80200, 3));
    assert_eq!(pages(0x8020_0001..0x8020_2fff), (0x80201, 1));
    assert_eq!(pages(0x8020_0001..0x8020_0fff), (0x80201, 0));
}
