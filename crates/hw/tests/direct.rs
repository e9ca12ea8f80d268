//! The direct map: total loads, capabilities, poison, and a model of bytes.

use std::sync::atomic::AtomicU64;

use proptest::prelude::*;
use quire_hw::{Chosen, DirectMap, FrameRun, Poisoned, Reuse, SetupError};
use quire_units::{FrameSpan, Pfn, PhysAddr};

const FIRST: Pfn = Pfn::new(0x80);

struct Memory(Vec<u8>);

impl Memory {
    fn new(frames: usize) -> Self {
        Self(vec![0xc3; (frames + 1) << 12])
    }

    fn map(&mut self) -> (DirectMap<'_>, FrameRun) {
        let at = self.0.as_ptr().align_offset(4096);
        let bytes = self.0.len() - 4096;
        DirectMap::new(&mut self.0[at..at + bytes], FIRST, 12).unwrap()
    }
}

fn addr(frame: u64, offset: u64) -> PhysAddr {
    PhysAddr::new(((FIRST.get() + frame) << 12) + offset)
}

/// Fills frame `at` with words that encode frame and index.
fn mark(map: &DirectMap<'_>, at: u64) {
    for word in 0..512 {
        map.write_word(addr(at, word * 8), at << 16 | word | 1 << 40).unwrap();
    }
}

#[test]
fn new_returns_the_right_to_every_frame_once() {
    let mut memory = Memory::new(7);
    let (map, run) = memory.map();
    assert_eq!(run.span(), FrameSpan::new(FIRST, 7));
    assert_eq!(map.span(), run.span());
    assert!(!run.is_zeroed());
    assert_eq!(map.page_shift(), 12);
}

#[test]
fn new_zeroed_marks_the_run_as_zeroed() {
    let mut memory = vec![0; 3 << 12];
    let at = memory.as_ptr().align_offset(4096);
    let (_, run) = DirectMap::new_zeroed(&mut memory[at..at + 8192], FIRST, 12).unwrap();
    assert!(run.is_zeroed());
}

#[test]
fn new_refuses_memory_that_is_not_whole_pages() {
    let mut memory = vec![0u8; 5 << 16];
    let at = memory.as_ptr().align_offset(1 << 16);
    let mut try_map = |skip: usize, bytes: usize, first: u64, shift: u32| {
        let slice = &mut memory[at + skip..at + skip + bytes];
        DirectMap::new(slice, Pfn::new(first), shift).map(|(map, _)| map.span()).err()
    };
    assert_eq!(try_map(0, 1 << 16, 0, 16), None);
    assert!(matches!(try_map(0, 0, 0, 12), Some(SetupError::Ragged { bytes: 0, .. })));
    assert!(matches!(try_map(0, 4095, 0, 12), Some(SetupError::Ragged { bytes: 4095, .. })));
    assert!(matches!(try_map(8, 4096, 0, 12), Some(SetupError::Ragged { .. })));
    assert!(matches!(try_map(4096, 1 << 16, 0, 16), Some(SetupError::Ragged { .. })));
    assert_eq!(try_map(0, 4096, 0, 11), Some(SetupError::PageShift { page_shift: 11 }));
    assert_eq!(try_map(0, 4096, 0, 64), Some(SetupError::PageShift { page_shift: 64 }));
    let last = u64::MAX >> 12;
    assert_eq!(try_map(0, 4096, last - 1, 12), None);
    for first in [last, u64::MAX] {
        let first_frame = Pfn::new(first);
        assert_eq!(try_map(0, 4096, first, 12), Some(SetupError::TooFar { first: first_frame }));
    }
}

#[test]
fn load_is_total_and_zero_beyond_the_memory() {
    let mut memory = Memory::new(2);
    let (map, _run) = memory.map();
    mark(&map, 1);
    assert_eq!(map.load(FIRST.add(1), 511), 1 << 16 | 511 | 1 << 40);
    for frame in [0, FIRST.get() - 1, FIRST.get() + 2, u64::MAX, u64::MAX - 1, 1 << 52] {
        for index in [0, 511, 512, usize::MAX] {
            assert_eq!(map.load(Pfn::new(frame), index), 0);
        }
    }
    for index in [512, 513, 1024, usize::MAX] {
        assert_eq!(map.load(FIRST, index), 0, "the next frame's words are not this one's");
    }
}

#[test]
fn a2_clear_zeroes_exactly_the_pages_named() {
    let mut memory = Memory::new(8);
    let (map, run) = memory.map();
    (0..8).for_each(|at| mark(&map, at));
    let (head, run) = run.split_at(1);
    let chosen = Chosen::default_for_cpu();
    map.clear(&run, 2..5, &chosen, Reuse::Later);
    map.clear(&run, 6..6, &chosen, Reuse::Later);
    for at in 0..8 {
        let cleared = (3..6).contains(&at);
        for word in 0..512 {
            assert_eq!(map.load(FIRST.add(at), word) == 0, cleared, "frame {at}");
        }
    }
    assert_eq!(head.count(), 1);
}

#[test]
#[should_panic(expected = "not within the run")]
fn a2_clear_beyond_the_run_is_a_bug() {
    let mut memory = Memory::new(4);
    let (map, run) = memory.map();
    let (run, _rest) = run.split_at(2);
    map.clear(&run, 1..3, &Chosen::default_for_cpu(), Reuse::Soon);
}

#[test]
fn a7_copy_stops_before_the_first_poisoned_frame_and_names_it() {
    let chosen = Chosen::default_for_cpu();
    let frames = 150;
    for poisoned in [0u64, 1, 63, 64, 69] {
        let mut memory = Memory::new(frames);
        let bits: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
        let (map, run) = memory.map();
        let map = map.with_poison(&bits).unwrap();
        (0..frames as u64).for_each(|at| mark(&map, at));
        let (_source, target) = run.split_at(75);
        assert!(map.set_poisoned(FIRST.add(poisoned), true));
        assert!(map.set_poisoned(FIRST.add(72), true), "outside of the copy");
        let from = FrameSpan::new(FIRST, 70);
        let result = map.copy(&target, 3, from, &chosen, Reuse::Soon);
        assert_eq!(result, Err(Poisoned { frame: FIRST.add(poisoned) }));
        for at in 75..150 {
            let copied = at >= 78 && at < 78 + poisoned;
            let origin = if copied { at - 78 } else { at };
            assert_eq!(map.load(FIRST.add(at), 9), origin << 16 | 9 | 1 << 40, "frame {at}");
        }
        assert!(map.set_poisoned(FIRST.add(poisoned), false));
        assert_eq!(map.copy(&target, 3, from, &chosen, Reuse::Later), Ok(()));
        assert_eq!(map.load(FIRST.add(78 + 69), 9), 69 << 16 | 9 | 1 << 40);
    }
}

#[test]
fn a7_a_source_that_is_not_ram_counts_as_failed() {
    let mut memory = Memory::new(6);
    let (map, run) = memory.map();
    let chosen = Chosen::default_for_cpu();
    let copy =
        |start: u64| map.copy(&run, 0, FrameSpan::new(Pfn::new(start), 3), &chosen, Reuse::Later);
    let before = FIRST.get() - 1;
    assert_eq!(copy(before), Err(Poisoned { frame: Pfn::new(before) }));
    assert_eq!(copy(FIRST.get() + 4), Err(Poisoned { frame: FIRST.add(6) }));
    assert_eq!(copy(FIRST.get() + 3), Ok(()));
}

#[test]
fn poison_needs_a_bit_per_frame() {
    let mut memory = Memory::new(65);
    let bits: Vec<AtomicU64> = (0..2).map(|_| AtomicU64::new(0)).collect();
    let (map, _run) = memory.map();
    assert_eq!(map.with_poison(&bits[..1]).err(), Some(SetupError::PoisonMap { least: 2 }));
    assert!(!map.set_poisoned(FIRST, true), "no map, no failures");
    let map = map.with_poison(&bits).unwrap();
    assert!(map.set_poisoned(FIRST.add(64), true));
    assert!(map.is_poisoned(FIRST.add(64)) && !map.is_poisoned(FIRST.add(63)));
    assert!(!map.set_poisoned(FIRST.add(65), true), "not of this map");
}

#[test]
fn words_and_bytes_are_found_only_where_ram_is() {
    let mut memory = Memory::new(2);
    let (map, _run) = memory.map();
    let none = [addr(2, 0), PhysAddr::new(0), PhysAddr::new(!7), addr(0, 4)];
    for addr in none {
        assert_eq!(map.read_word(addr), None, "{addr}");
        assert_eq!(map.write_word(addr, 1), None);
        assert_eq!(map.exchange_word(addr, 0, 1), None);
    }
    assert_eq!(map.read_byte(addr(2, 0)), None);
    assert_eq!(map.write_byte(addr(2, 0), 1), None);
    let word = addr(1, 4088);
    assert_eq!(map.write_word(word, 0x20), Some(()));
    assert_eq!(map.exchange_word(word, 0x21, 0x30), Some(Err(0x20)));
    assert_eq!(map.exchange_word(word, 0x20, 0x30), Some(Ok(())));
    assert_eq!(map.read_word(word), Some(0x30));
    assert_eq!(map.write_byte(addr(1, 4091), 0xee), Some(()));
    assert_eq!(map.read_byte(addr(1, 4091)), Some(0xee));
    assert_eq!(map.read_byte(addr(1, 4090)), Some(0));
}

#[test]
fn the_map_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    let mut memory = Memory::new(1);
    let (map, _run) = memory.map();
    shared(&map);
    std::thread::scope(|scope| {
        for byte in 0..8 {
            scope.spawn(move || {
                for turn in 0..=255 {
                    map.write_byte(addr(0, byte), turn).unwrap();
                }
            });
        }
    });
    assert_eq!(
        map.read_word(addr(0, 0)),
        Some(u64::MAX),
        "no byte was lost to a neighbour's write"
    );
}

#[derive(Debug, Clone)]
enum Step {
    Clear(u64, u64),
    Copy(u64, u64, u64),
    Byte(u64, u8),
    Poison(u64, bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let frame = 0..16u64;
    let step = prop_oneof![
        (frame.clone(), frame.clone()).prop_map(|(a, b)| Step::Clear(a.min(b), a.max(b))),
        (frame.clone(), 0..8u64, 0..9u64).prop_map(|(to, from, count)| Step::Copy(to, from, count)),
        (0..32u64 << 12, any::<u8>()).prop_map(|(at, byte)| Step::Byte(at, byte)),
        (frame, any::<bool>()).prop_map(|(at, fails)| Step::Poison(at, fails)),
    ];
    prop::collection::vec(step, 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The lower 16 frames are sources, the upper 16 targets; the model is plain bytes.
    #[test]
    fn a7_clear_and_copy_agree_with_a_model_of_bytes(steps in steps()) {
        let mut memory = Memory::new(32);
        let bits = [AtomicU64::new(0)];
        let (map, run) = memory.map();
        let map = map.with_poison(&bits).unwrap();
        let (_source, target) = run.split_at(16);
        let chosen = Chosen::default_for_cpu();
        let mut model = vec![0xc3u8; 32 << 12];
        let mut failing = [false; 16];
        for step in steps {
            match step {
                Step::Clear(start, end) => {
                    map.clear(&target, start..end, &chosen, Reuse::Soon);
                    model[(16 + start as usize) << 12..(16 + end as usize) << 12].fill(0);
                }
                Step::Copy(to, from, count) => {
                    let count = count.min(16 - to);
                    let span = FrameSpan::new(FIRST.add(from), count);
                    let result = map.copy(&target, to, span, &chosen, Reuse::Soon);
                    let bad = (from..from + count).find(|at| failing[*at as usize]);
                    let frame = bad.map(|at| FIRST.add(at));
                    prop_assert_eq!(result.err(), frame.map(|frame| Poisoned { frame }));
                    for at in 0..bad.map_or(count, |at| at - from) {
                        let from = (from + at) as usize;
                        let to = (16 + to + at) as usize;
                        model.copy_within(from << 12..(from + 1) << 12, to << 12);
                    }
                }
                Step::Byte(at, byte) => {
                    map.write_byte(addr(0, at), byte).unwrap();
                    model[at as usize] = byte;
                }
                Step::Poison(at, fails) => {
                    prop_assert!(map.set_poisoned(FIRST.add(at), fails));
                    failing[at as usize] = fails;
                }
            }
        }
        for (at, byte) in model.iter().enumerate() {
            prop_assert_eq!(map.read_byte(addr(0, at as u64)), Some(*byte), "byte {}", at);
        }
    }
}
