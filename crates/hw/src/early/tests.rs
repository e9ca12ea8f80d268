//! Early memory beside a naive model: the set of its free pages.
#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const SHIFT: u32 = 12;
const PAGE: u64 = 1 << SHIFT;
/// The machine's RAM: these pages of physical memory.
const PAGES: u64 = 64;
const FIRST: u64 = 0x100;
/// The first page beyond reach.
const REACH: u64 = FIRST + 40;

/// Runs `test` on early memory without a piece, of which [`PAGES`] pages may be added.
fn with_early<T>(test: impl FnOnce(Early<6>) -> T) -> T {
    let mut memory = vec![0_u8; ((PAGES + 1) * PAGE) as usize];
    let first = memory.as_mut_ptr().expose_provenance().next_multiple_of(PAGE as usize);
    let direct = first.wrapping_sub((FIRST * PAGE) as usize);
    // SAFETY: 1. only the early memory uses these pages, while the test runs; it keeps no array or
    // bank afterwards. 2. all of the vector is visible.
    test(unsafe { Early::new(direct, REACH * PAGE, SHIFT) })
}

#[derive(Clone, Debug)]
enum Step {
    Keep(Range<u64>),
    Take { bytes: u64, align: u64 },
    Array(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let address = FIRST * PAGE - PAGE..(FIRST + PAGES + 1) * PAGE;
    prop_oneof![
        (address, 0..6 * PAGE).prop_map(|(start, bytes)| Step::Keep(start..start + bytes)),
        (0..8 * PAGE, 0..4_u32).prop_map(|(bytes, log)| Step::Take { bytes, align: PAGE << log }),
        (0..1500_usize).prop_map(Step::Array),
    ]
}

fn pages(bytes: &Range<u64>) -> Range<u64> {
    if bytes.is_empty() { 0..0 } else { bytes.start / PAGE..bytes.end.div_ceil(PAGE) }
}

/// Takes pages out of the model; fails where one is not free.
fn used(free: &mut BTreeSet<u64>, start: u64, bytes: u64) {
    for page in pages(&(start..start + bytes)) {
        assert!(page < REACH && free.remove(&page), "page {page:#x} was not free");
    }
}

/// Whether the model has a stretch for this.
fn fits(free: &BTreeSet<u64>, bytes: u64, align: u64) -> bool {
    let count = bytes.div_ceil(PAGE);
    free.iter()
        .filter(|page| (**page * PAGE).is_multiple_of(align))
        .any(|page| (*page..page + count).all(|page| page < REACH && free.contains(&page)))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_page_is_kept_taken_or_in_a_bank(
        holes in prop::collection::vec(FIRST * PAGE..(FIRST + PAGES) * PAGE, 2),
        steps in prop::collection::vec(step(), 0..12),
    ) {
        with_early(|mut early| {
            let (low, high) = (holes[0].min(holes[1]), holes[0].max(holes[1]));
            early.add(FIRST * PAGE..low).unwrap();
            early.add(high..(FIRST + PAGES) * PAGE).unwrap();
            let mut free: BTreeSet<u64> =
                (FIRST..low / PAGE).chain(high.div_ceil(PAGE)..FIRST + PAGES).collect();
            for step in steps {
                match step {
                    Step::Keep(bytes) => {
                        free.retain(|page| !pages(&bytes).contains(page));
                        if early.keep(bytes).is_err() {
                            return;
                        }
                    }
                    Step::Take { bytes, align } => match early.take(bytes, align) {
                        Ok(start) => {
                            assert!(start.get().is_multiple_of(align));
                            used(&mut free, start.get(), bytes);
                        }
                        Err(SetupError::Short { .. }) => assert!(!fits(&free, bytes.max(1), align)),
                        Err(_) => return,
                    },
                    Step::Array(count) => match early.array(0..count) {
                        Ok(array) => {
                            assert!(array.iter().copied().eq(0..count));
                            if let Some(first) = array.first() {
                                let start = early.frame_of(first).get() * PAGE;
                                used(&mut free, start, 8 * count as u64);
                            }
                        }
                        Err(SetupError::Short { .. }) => {
                            assert!(!fits(&free, 8 * count.max(1) as u64, PAGE));
                        }
                        Err(_) => return,
                    },
                }
                let left: Vec<u64> = early.pieces().flat_map(numbers).collect();
                assert!(left.iter().eq(&free), "{left:?} {free:?}");
            }
            let span = early.span();
            assert_eq!(span.count, free.last().map_or(0, |last| last + 1 - free.first().unwrap()));
            let (banks, rights) = early.banks().unwrap();
            assert!(banks.iter().flat_map(|map| numbers(map.span())).eq(free));
            let rights = rights.iter().flatten().map(FrameRun::span);
            assert!(rights.eq(banks.iter().map(DirectMap::span)));
        });
    }
}

fn numbers(span: FrameSpan) -> Range<u64> {
    span.start.get()..span.end().get()
}

#[test]
fn a_piece_more_than_there_is_room_for_is_refused() {
    with_early(|mut early| {
        for at in 0..6 {
            let start = (FIRST + 4 * at) * PAGE;
            early.add(start..start + 3 * PAGE).unwrap();
        }
        assert_eq!(early.add(0..PAGE), Err(SetupError::Pieces { most: 6 }));
        assert_eq!(early.add(1..PAGE), Ok(()), "no whole page");
        let middle = (FIRST + 1) * PAGE;
        assert_eq!(early.keep(middle..middle + 1), Err(SetupError::Pieces { most: 6 }));
        assert_eq!(early.take(100 * PAGE, PAGE), Err(SetupError::Short { bytes: 100 * PAGE }));
    });
}

#[test]
fn e10_memory_that_is_added_twice_is_refused() {
    with_early(|mut early| {
        let page = |at: u64| (FIRST + at) * PAGE;
        early.add(page(0)..page(4)).unwrap();
        let other = FrameSpan::new(Pfn::new(FIRST), 4);
        for bytes in [page(0)..page(4), page(3)..page(5), page(1)..page(2)] {
            assert_eq!(early.add(bytes), Err(SetupError::Added { other }));
        }
        early.add(page(4)..page(6)).unwrap();
        early.keep(page(1)..page(2)).unwrap();
        assert_eq!(early.add(page(1)..page(2)), Err(SetupError::Begun), "it is in use");
        assert_eq!(early.pieces().map(|piece| piece.count).sum::<u64>(), 5);
    });
}
