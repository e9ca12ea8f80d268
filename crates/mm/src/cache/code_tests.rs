//! Faults in code: which pages are read, in which folios.

use proptest::prelude::*;
use quire_units::{Order, OrderSet};

use super::readahead_tests::{ARM, BLOCK, NONE, code, file, prefers, shows};
use super::{Bounds, FilePages, Mapped, Pattern, Preference, Readahead};

#[test]
fn b2_code_is_read_in_aligned_folios_within_the_area() {
    let bounds = file(4096);
    let pages = |page, area: &Mapped, preference| {
        let window = Readahead::default().fault(page, &prefers(area, preference), &bounds);
        assert_eq!(window.mark, None, "no asynchronous part");
        (window.pages.start, window.pages.end, window.preferred().get())
    };
    assert_eq!(pages(37, &code(0, 1000), ARM), (16, 80, 4), "a block before, and two behind");
    assert_eq!(pages(37, &code(33, 1000), ARM), (33, 80, 4), "up to 47 pages");
    assert_eq!(pages(37, &code(0, 50), ARM), (16, 50, 4));
    assert_eq!(pages(37, &code(37, 38), ARM), (37, 38, 4));
    assert_eq!(pages(37, &code(0, 1000), NONE), (37, 69, 0), "from the fault on");
    let random = Mapped { pattern: Pattern::Random, ..code(0, 1000) };
    assert_eq!(pages(37, &random, ARM), (16, 80, 4), "before the test for random access");
}

#[test]
fn b2_code_does_not_touch_the_state_of_streams() {
    let (mut ra, bounds) = (Readahead::default(), file(4096));
    ra.miss(FilePages::new(0, 4), 0, &bounds, Pattern::Normal);
    let before = ra;
    for page in 0..500 {
        ra.fault(page, &prefers(&code(0, 1000), ARM), &bounds);
    }
    assert_eq!(ra, before);
}

#[test]
fn b2_code_that_is_read_as_a_stream_keeps_its_size() {
    let (mut ra, bounds) = (Readahead::default(), file(4096));
    let area = Mapped { pattern: Pattern::Sequential, ..code(0, 1000) };
    let window =
        ra.fault(37, &prefers(&area, ARM), &Bounds { sizes: OrderSet::from_bits(1), ..bounds });
    assert_eq!((window.pages, window.mark), (FilePages::new(32, 64), Some(48)));
    assert_eq!(window.preferred(), Order::new(4));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn b2_code_windows_are_the_blocks_around_that_a_walk_finds(
        page in 0..4096u64,
        (left, right) in (0..200u64, 1..200u64),
        order in 1..10u8,
        window in 1..100u64,
    ) {
        let pages = FilePages::new(page.saturating_sub(left), (page + right).min(4096));
        let mapped = Mapped { exec: true, ..shows(pages.start, pages.end) };
        let bounds = Bounds { window, ..file(4096) };
        let preference = Preference { exec: OrderSet::of(Order::new(order)), huge: BLOCK };
        let got = Readahead::default().fault(page, &prefers(&mapped, preference), &bounds);
        // Block by block: back while a quarter of two windows has room for one more, and ahead
        // until there are two windows.
        let block = FilePages::block(page, Order::new(order));
        let (mut first, mut end) = (block.start, block.end);
        while first > 0 && block.start - first + block.count() <= window / 2 {
            first -= block.count();
        }
        let before = window / 2 / block.count() * block.count();
        while end - block.start + before < 2 * window {
            end += block.count();
        }
        let naive = FilePages::new(first, end).intersect(pages);
        prop_assert_eq!(got.pages, naive);
        prop_assert_eq!(got.preferred().get(), order);
    }
}
