//! Banks beside a naive model: a map from frame and index to the word.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::vec::Vec;
use std::{format, vec};

use proptest::prelude::*;

use quire_units::Pfn;

use super::*;
use crate::{Chosen, FrameRun, Memory, Ram, Reuse, TableFrame};

const SHIFT: u32 = 12;
const WORDS: usize = 512;

/// The first frame and the number of frames of each bank, not ascending.
const PLACES: [(u64, u64); 3] = [(0x300, 2), (0x100, 3), (0x200, 1)];

/// Runs `test` on banks at [`PLACES`], with the right to each.
fn with_banks<T>(test: impl FnOnce(&Ram<Banks<'_, 3>>, Vec<FrameRun>) -> T) -> T {
    let mut memory = PLACES.map(|(_, frames)| vec![0_u8; ((frames as usize) + 1) << SHIFT]);
    let (mut banks, mut runs) = (Banks::new(), Vec::new());
    for (bytes, (first, frames)) in memory.iter_mut().zip(PLACES) {
        let at = bytes.as_ptr().align_offset(1 << SHIFT);
        let bytes = &mut bytes[at..at + ((frames as usize) << SHIFT)];
        let (map, run) = DirectMap::new(bytes, Pfn::new(first), SHIFT).unwrap();
        banks.add(map).unwrap();
        runs.push(run);
    }
    test(&Ram::new(banks, Chosen::default_for_cpu()), runs)
}

#[test]
fn the_span_reaches_over_the_holes_and_holes_load_as_zero() {
    with_banks(|banks, _| {
        assert_eq!(banks.maps().span(), FrameSpan::new(Pfn::new(0x100), 0x202));
        let starts: Vec<_> = banks.maps().iter().map(|bank| bank.span().start.get()).collect();
        assert_eq!(starts, [0x100, 0x200, 0x300]);
        for frame in [0, 0xff, 0x103, 0x1ff, 0x201, 0x302, u64::MAX] {
            assert_eq!(banks.load(Pfn::new(frame), 0), 0);
            assert_eq!(banks.count_run(Pfn::new(frame), 0, 1, 0, 0), 0);
        }
    });
    assert_eq!(Banks::<'_, 1>::new().span().count, 0);
}

#[test]
fn a_bank_that_touches_another_or_has_other_pages_is_refused() {
    with_banks(|banks, _| {
        let mut memory = vec![0_u8; 3 << 16];
        let at = memory.as_ptr().align_offset(1 << 16);
        let mut more = Banks::<'_, 4>::new();
        banks.maps().iter().for_each(|bank| more.add(*bank).unwrap());
        for (first, shift, refused) in [
            (0x103, 12, true), // begins where one ends
            (0xff, 12, true),  // ends where one begins
            (0x102, 12, true), // shares a frame
            (0x300, 12, true),
            (0x400, 13, true), // larger pages
            (0x104, 12, false),
        ] {
            let bytes = &mut memory[at..at + (1 << shift)];
            let (map, _) = DirectMap::new(bytes, Pfn::new(first), shift).unwrap();
            let mut copy = more;
            assert_eq!(copy.add(map).is_err(), refused, "{first:#x}");
            assert_eq!(format!("{copy:?}") == format!("{more:?}"), refused);
        }
        let mut full = *banks.maps();
        let (map, _) =
            DirectMap::new(&mut memory[at..at + (1 << 12)], Pfn::new(0x800), 12).unwrap();
        assert_eq!(full.add(map), Err(SetupError::Banks { most: 3 }));
    });
}

#[test]
fn a_copy_from_a_hole_fails_at_the_first_frame_that_is_missing() {
    with_banks(|banks, runs| {
        let copy = |from, count| {
            let from = FrameSpan::new(Pfn::new(from), count);
            banks.copy(&runs[1], 0, from).map_err(|bad| bad.frame.get())
        };
        assert_eq!(copy(0x150, 1), Err(0x150));
        assert_eq!(copy(0x200, 2), Err(0x201));
        assert_eq!(copy(0x300, 2), Ok(()));
        assert_eq!(copy(0x150, 0), Ok(()));
    });
}

#[test]
#[should_panic(expected = "not in this direct map")]
fn a_capability_in_a_hole_is_a_bug() {
    with_banks(|banks, _| {
        // SAFETY: no such frame exists, so no other code owns it; the banks refuse it.
        let foreign = unsafe { TableFrame::mint(Pfn::new(0x103)) };
        banks.fill(&foreign, 0, 1, 0, 0);
    });
}

/// One call, on the frames of the banks by their place in [`PLACES`].
#[derive(Clone, Debug)]
enum Step {
    Fill { at: (usize, u64), index: usize, count: usize, first: u64, step: u64 },
    Exchange { at: (usize, u64), index: usize, current: u64, new: u64 },
    Clear { at: (usize, u64) },
    Copy { to: (usize, u64), from: (usize, u64) },
    Store { at: (usize, u64), index: usize, value: u64 },
}

fn frame() -> impl Strategy<Value = (usize, u64)> {
    (0..PLACES.len()).prop_flat_map(|bank| (Just(bank), 0..PLACES[bank].1))
}

fn step() -> impl Strategy<Value = Step> {
    let word = 0..3_u64;
    prop_oneof![
        (frame(), 0..500_usize, 0..12_usize, word.clone(), word.clone()).prop_map(
            |(at, index, count, first, step)| Step::Fill { at, index, count, first, step }
        ),
        (frame(), 0..WORDS, word.clone(), word.clone())
            .prop_map(|(at, index, current, new)| Step::Exchange { at, index, current, new }),
        frame().prop_map(|at| Step::Clear { at }),
        (frame(), frame()).prop_map(|(to, from)| Step::Copy { to, from }),
        (frame(), 0..WORDS, word).prop_map(|(at, index, value)| Step::Store { at, index, value }),
    ]
}

/// The words that are not zero.
type Model = BTreeMap<(u64, usize), u64>;

fn carry_out(banks: &Ram<Banks<'_, 3>>, runs: &[FrameRun], model: &mut Model, step: &Step) {
    let number = |(bank, page): (usize, u64)| PLACES[bank].0 + page;
    // SAFETY: the runs are this test's, and only one thread writes them.
    let table = |at| unsafe { TableFrame::mint(Pfn::new(number(at))) };
    match *step {
        Step::Fill { at, index, count, first, step } => {
            banks.fill(&table(at), index, count, first, step);
            for word in 0..count {
                model.insert((number(at), index + word), first + step * word as u64);
            }
            assert_eq!(banks.count_run(Pfn::new(number(at)), index, count, first, step), count);
        }
        Step::Exchange { at, index, current, new } => {
            let cell = model.entry((number(at), index)).or_default();
            let expected = if *cell == current { Ok(()) } else { Err(*cell) };
            assert_eq!(banks.compare_exchange(&table(at), index, current, new), expected);
            *cell = if expected.is_ok() { new } else { *cell };
        }
        Step::Clear { at: (bank, page) } => {
            banks.clear(&runs[bank], page..page + 1, Reuse::Soon);
            model.retain(|place, _| place.0 != number((bank, page)));
        }
        Step::Copy { to: (bank, page), from } => {
            let (to, from) = (number((bank, page)), number(from));
            let span = FrameSpan::new(Pfn::new(from), 1);
            let copied = banks.copy(&runs[bank], page, span);
            assert_eq!(copied, Ok(()));
            for word in 0..WORDS {
                let value = model.get(&(from, word)).copied().unwrap_or(0);
                model.insert((to, word), value);
            }
        }
        Step::Store { at: (bank, page), index, value } => {
            banks.words(&runs[bank])[page as usize * WORDS + index].store(value, Ordering::Relaxed);
            model.insert((number((bank, page)), index), value);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn banks_do_what_a_map_of_words_does(steps in prop::collection::vec(step(), 1..40)) {
        with_banks(|banks, runs| {
            let mut model = Model::new();
            for step in &steps {
                carry_out(banks, &runs, &mut model, step);
            }
            for (first, frames) in PLACES {
                for frame in first..first + frames {
                    for word in 0..WORDS {
                        let expected = model.get(&(frame, word)).copied().unwrap_or(0);
                        assert_eq!(banks.load(Pfn::new(frame), word), expected, "{frame} {word}");
                    }
                }
            }
        });
    }
}
