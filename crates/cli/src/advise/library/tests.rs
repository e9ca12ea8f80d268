//! Small tapes through the library.

use super::{Own, all};
use crate::advise::linux::{Setting, Word};
use crate::advise::memory::{Limit, Memory, Pace};
use crate::isa::Isa;
use crate::tape::{self, Area, Event, Span, Tape, Writer};

const FIRST: u64 = 1 << 20;

/// A process that writes 1024 pages, and forks; the child writes one of them. Then both read.
fn tape() -> Tape {
    let mut writer = Writer::default();
    writer.push(Event::Space(0));
    writer.push(Event::Map(Area::anon(Span::of(FIRST, 1024))));
    writer.push(Event::Begin);
    let touch = |page, access| Event::Touch { page, access };
    (FIRST..FIRST + 1024).for_each(|page| writer.push(touch(page, tape::Access::Write)));
    writer.push(Event::Fork(1));
    writer.push(Event::Space(1));
    writer.push(touch(FIRST + 3, tape::Access::Write));
    writer.push(touch(FIRST + 4, tape::Access::Read));
    writer.push(Event::Exit);
    writer.push(Event::Space(0));
    let (from, to) = (Span::of(FIRST, 1024), Span::of(FIRST + 4096, 1024));
    writer.push(Event::Move { from, to, keep: false });
    writer.push(touch(FIRST + 4096, tape::Access::Read));
    writer.push(Event::Unmap(to));
    writer.push(Event::Exit);
    Tape { page: 4096, body: writer.finish(), ..Tape::default() }
}

fn in_memory(tape: &Tape, setting: Setting, isa: Isa, memory: Memory) -> Own {
    all(tape, &[setting], isa, 4096, memory).unwrap().all.remove(0)
}

fn own(setting: Setting, isa: Isa) -> Own {
    in_memory(&tape(), setting, isa, Memory::new(0.0))
}

#[test]
fn f1_the_library_takes_one_fault_for_each_folio_and_one_for_a_copy() {
    for isa in [Isa::X86_64, Isa::Arm4k, Isa::Sv48] {
        for order in [0, 4, 9] {
            let setting = match order {
                0 => Setting::never(),
                _ => Setting::never().with(order, Word::Always),
            };
            let own = own(setting, isa);
            assert_eq!(own.faults, (1024 >> order) + 1, "{isa:?} {order}");
            assert_eq!((own.peak, own.touches), (1024, 1027), "{isa:?} {order}");
            assert!(own.cleared >= 1024 && own.copied >= 1);
        }
    }
}

#[test]
fn f1_only_formats_with_contiguous_blocks_fold() {
    let setting = Setting::never().with(4, Word::Always);
    let folded = [Isa::X86_64, Isa::Arm4k, Isa::Sv48].map(|isa| own(setting, isa).folded);
    assert_eq!(folded[0], 0);
    assert!(folded[1] >= 64 && folded[2] >= 64, "{folded:?}");
}

#[test]
fn f1_pages_of_another_size_are_refused() {
    let error =
        all(&tape(), &[Setting::never()], Isa::Arm64k, 4096, Memory::new(0.0)).err().unwrap();
    assert!(error.to_string().contains("pages of 4096 bytes, and arm64_64k has others"));
}

#[test]
fn f1_the_library_finds_as_few_large_folios_as_the_share_says() {
    let setting = Setting::never().with(9, Word::Always).with(4, Word::Always);
    let own = |fragmented, isa| in_memory(&again(4096, 0), setting, isa, Memory::new(fragmented));
    for isa in [Isa::X86_64, Isa::Arm4k, Isa::Sv48] {
        let whole = own(0.0, isa);
        assert_eq!((whole.faults, whole.scarce), (8, 0), "{isa:?}");
        // No blocks, and about 64 % of the attempts find no 64K: 0.1 to the power of 4 / 9.
        let rare = own(0.9, isa);
        assert!((8..4096).contains(&rare.faults) && rare.scarce > 8, "{isa:?} {rare:?}");
        let none = own(1.0, isa);
        assert!(none.faults > 4000 && none.scarce > rare.scarce, "{isa:?} {none:?}");
        for own in [rare, none] {
            assert_eq!((own.peak, own.touches), (4096, 4096), "{isa:?}");
        }
    }
}

/// A process that writes `pages` pages, and then all of them again, `rounds` times.
fn again(pages: u64, rounds: u64) -> Tape {
    let mut writer = Writer::default();
    writer.push(Event::Space(0));
    writer.push(Event::Map(Area::anon(Span::of(FIRST, pages))));
    writer.push(Event::Begin);
    for _ in 0..=rounds {
        for page in FIRST..FIRST + pages {
            writer.push(Event::Touch { page, access: tape::Access::Write });
        }
    }
    Tape { page: 4096, body: writer.finish(), ..Tape::default() }
}

#[test]
fn f1_the_library_pages_out_what_is_beyond_the_limit_and_brings_it_back() {
    let limit =
        |pages, slots| Memory { limit: Some(Limit::new(pages, slots, None)), ..Memory::new(0.0) };
    for order in [0, 4, 9] {
        let setting = match order {
            0 => Setting::never(),
            _ => Setting::never().with(order, Word::Always),
        };
        let own = |tape: &Tape, memory| in_memory(tape, setting, Isa::X86_64, memory);
        let free = own(&again(2048, 1), limit(4096, 4096));
        assert_eq!((free.out, free.back, free.faults), (0, 0, 2048 >> order), "{order}");
        let tight = own(&again(2048, 1), limit(1024, 4096));
        assert!(tight.peak <= 1024 && tight.short == 0, "{order} {tight:?}");
        assert!(tight.out >= 2048 && tight.back >= 1024, "{order} {tight:?}");
        // Without room on the device, the limit cannot hold.
        let full = own(&again(2048, 0), limit(1024, 512));
        assert!(full.short > 0 && full.peak > 1024, "{order} {full:?}");
    }
}

#[test]
fn f1_the_background_of_the_library_makes_blocks_within_its_limits() {
    let mut writer = Writer::default();
    writer.push(Event::Space(0));
    writer.push(Event::Begin);
    // A block whose area has room for it only after its first half was written.
    for (first, count) in [(FIRST, 256), (FIRST + 256, 10)] {
        writer.push(Event::Map(Area::anon(Span::of(first, 256))));
        for page in first..first + count {
            writer.push(Event::Touch { page, access: tape::Access::Write });
        }
    }
    for _ in 0..250 {
        writer.push(Event::Time(100));
    }
    let tape = Tape { page: 4096, body: writer.finish(), ..Tape::default() };
    let setting = Setting::never().with(9, Word::Always);
    let made = |none| {
        let pace = Pace { none, ..Pace::default() };
        let own = in_memory(&tape, setting, Isa::X86_64, Memory { pace, ..Memory::new(0.0) });
        (own.collapsed, own.peak)
    };
    assert_eq!(made(511), (1, 512));
    assert_eq!(made(246), (1, 512));
    assert_eq!(made(245), (0, 266));
}
