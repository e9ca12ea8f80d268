//! Tests that need a [`TableFrame`]: code outside of the crate cannot make one without `unsafe`.

use std::vec;

use super::*;

const FIRST: Pfn = Pfn::new(0x200);

/// Runs `test` on a map of three frames filled with ones, and the right to the middle one.
fn with_table(test: impl FnOnce(DirectMap<'_>, &TableFrame)) {
    let mut memory = vec![0xff; 4 << 12];
    let at = memory.as_ptr().align_offset(4096);
    let (map, run) = DirectMap::new(&mut memory[at..at + (3 << 12)], FIRST, 12).unwrap();
    let (_below, run) = run.split_at(1);
    // SAFETY: the frame is the first of `run`, which is not used any more.
    let table = unsafe { TableFrame::mint(run.start()) };
    test(map, &table);
}

#[test]
fn fill_writes_the_arithmetic_sequence_and_nothing_else() {
    for count in [0, 1, 2, 3, 4, 5, 7, 8, 63, 400] {
        for index in [0, 1, 6, 112] {
            with_table(|map, table| {
                let (first, step) = (u64::MAX - 0x5000, 0x1000 + 3);
                map.fill(table, index, count, first, step);
                for word in 0..512 {
                    let filled = (index..index + count).contains(&word);
                    let nth = (word as u64).wrapping_sub(index as u64);
                    let value = first.wrapping_add(step.wrapping_mul(nth));
                    let expected = if filled { value } else { u64::MAX };
                    assert_eq!(map.load(table.frame(), word), expected, "{count} from {index}");
                    assert_eq!(map.load(FIRST, word), u64::MAX);
                    assert_eq!(map.load(FIRST.add(2), word), u64::MAX);
                }
            });
        }
    }
}

#[test]
fn fill_with_step_zero_repeats_the_word() {
    with_table(|map, table| {
        map.fill(table, 0, 512, 0, 0);
        assert!((0..512).all(|word| map.load(table.frame(), word) == 0));
    });
}

#[test]
fn compare_exchange_writes_only_over_what_was_expected() {
    with_table(|map, table| {
        assert_eq!(map.compare_exchange(table, 511, 7, 8), Err(u64::MAX));
        assert_eq!(map.load(table.frame(), 511), u64::MAX);
        assert_eq!(map.compare_exchange(table, 511, u64::MAX, 8), Ok(()));
        assert_eq!(map.load(table.frame(), 511), 8);
        assert_eq!(map.load(table.frame(), 510), u64::MAX);
    });
}

#[test]
#[should_panic(expected = "not in this direct map")]
fn a_foreign_capability_is_a_bug() {
    with_table(|map, _| {
        // SAFETY: no such frame exists, so no other code owns it; the map refuses it.
        let foreign = unsafe { TableFrame::mint(FIRST.add(3)) };
        map.fill(&foreign, 0, 1, 0, 0);
    });
}

#[test]
#[should_panic(expected = "out of range")]
fn fill_beyond_the_frame_is_a_bug() {
    with_table(|map, table| map.fill(table, 500, 13, 0, 0));
}
