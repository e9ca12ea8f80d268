//! Zeroing a folio (rows A2 to A5): in which order, in which units, and that all of it is zero. And
//! copying one in the same order (A7).

use std::ops::Range;
use std::sync::Mutex;

use proptest::prelude::*;
use quire::check;
use quire::fault::SizePolicy;
use quire::inject::copy;
use quire::inject::{NEIGHBOURHOOD, Pace, extents, plan, units, zero};
use quire::space::{At, Request};
use quire::stats::Event;
use quire_arch::{Arch, Arm16k, X86_64};
use quire_hw::{
    Flush, FrameRun, Hardware, Memory, MemoryTypes, Poisoned, Profile, Reuse, TableFrame,
    Transitions,
};
use quire_machine::{Config, Machine};
use quire_sim::system;
use quire_units::{Access, Asid, CpuId, FrameSpan, Order, PageSpan, Pfn, PhysAddr, Vpn};

/// The calls of the hardware, in order.
#[derive(Clone, PartialEq, Debug)]
enum Seen {
    Clear(Range<u64>, Reuse),
    Resched,
}

/// Hardware that only records its clears, and its copies from [`FROM`].
struct Recorder {
    seen: Mutex<Vec<Seen>>,
    profile: Profile,
    /// The page of the source with failing memory.
    bad: Option<u64>,
}

/// The first frame that is copied.
const FROM: Pfn = Pfn::new(1 << 20);

impl Recorder {
    fn new(clear_unit_bytes: u64, near_cache_bytes: u64) -> Self {
        let profile = Profile {
            transitions: Transitions::Base,
            contiguous: true,
            memory_types: MemoryTypes::ENTRIES,
            near_cache_bytes,
            clear_unit_bytes,
        };
        Self { seen: Mutex::new(Vec::new()), profile, bad: None }
    }

    /// The calls that zeroing `run` makes.
    fn zero(&self, run: &FrameRun, fault: u64, pace: Pace) -> Vec<Seen> {
        self.seen.lock().unwrap().clear();
        zero(self, run, fault, pace, || self.seen.lock().unwrap().push(Seen::Resched));
        self.seen.lock().unwrap().clone()
    }

    /// The calls that copying to `run` makes, and its result.
    fn copy(&self, run: &FrameRun, wanted: u64, pace: Pace) -> (Vec<Seen>, Result<(), Poisoned>) {
        self.seen.lock().unwrap().clear();
        let mut resched = || self.seen.lock().unwrap().push(Seen::Resched);
        let done = copy(self, run, FrameSpan::new(FROM, run.count()), wanted, pace, &mut resched);
        (self.seen.lock().unwrap().clone(), done)
    }
}

impl Memory for Recorder {
    fn load(&self, _: Pfn, _: usize) -> u64 {
        unreachable!("clearing loads no table")
    }
    fn fill(&self, _: &TableFrame, _: usize, _: usize, _: u64, _: u64) {
        unreachable!("clearing fills no table")
    }
    fn compare_exchange(&self, _: &TableFrame, _: usize, _: u64, _: u64) -> Result<(), u64> {
        unreachable!("clearing changes no table")
    }
    fn clear(&self, frames: &FrameRun, pages: Range<u64>, reuse: Reuse) {
        assert!(pages.end <= frames.count(), "{pages:?} of {frames:?}");
        self.seen.lock().unwrap().push(Seen::Clear(pages, reuse));
    }
    fn copy(&self, to: &FrameRun, at: u64, from: FrameSpan) -> Result<(), Poisoned> {
        assert_eq!(from.start, FROM.add(at), "each page from its own");
        assert!(at + from.count <= to.count());
        if let Some(bad) = self.bad.filter(|bad| (at..at + from.count).contains(bad)) {
            return Err(Poisoned { frame: FROM.add(bad) });
        }
        self.seen.lock().unwrap().push(Seen::Clear(at..at + from.count, Reuse::Soon));
        Ok(())
    }
}

impl Hardware for Recorder {
    fn flush(&self, _: &Flush<'_>) {
        unreachable!("clearing flushes nothing")
    }

    fn publish_code(&self, _: FrameSpan) {}

    fn cpu(&self) -> CpuId {
        CpuId::new(0)
    }
    fn profile(&self) -> Profile {
        self.profile
    }
}

/// Runs `test` with `frames` frames that no test touches, so that the host need not back them.
fn with_frames<R>(frames: u64, test: impl FnOnce(FrameRun) -> R) -> R {
    let mut ram = system::ram((frames as usize) << 12).unwrap();
    let (_, run) = Machine::new(Config::x86_64().bare(), &mut ram).unwrap();
    test(run)
}

/// Judges the calls of zeroing `pages` pages: every page once, the neighbourhood last, units
/// as long as they may be, and a point to reschedule between any two of them and nowhere else.
fn judge(seen: &[Seen], pages: u64, fault: u64, pace: Pace) {
    let fault = fault.min(pages - 1);
    let near = |page: u64| page.abs_diff(fault) <= NEIGHBOURHOOD;
    let mut cleared = vec![0; pages as usize];
    let mut order = Vec::new();
    for (at, event) in seen.iter().enumerate() {
        let Seen::Clear(unit, reuse) = event else {
            assert!(at % 2 == 1, "one point between two units: {seen:?}");
            continue;
        };
        assert!(at % 2 == 0, "a point between any two units: {seen:?}");
        let length = unit.end - unit.start;
        assert!(length > 0 && length <= pace.unit_pages);
        unit.clone().for_each(|page| cleared[page as usize] += 1);
        let part = if near(unit.start) { 2 } else { u64::from(unit.start < fault) };
        let through = part == 2 || pages <= pace.near_pages;
        assert_eq!(*reuse, if through { Reuse::Soon } else { Reuse::Later });
        order.push((part, unit.start));
    }
    assert!(seen.len() % 2 == 1, "no point at the end: {seen:?}");
    assert!(cleared.iter().all(|&times| times == 1), "each page once");
    assert!(order.is_sorted(), "right, left, neighbourhood, each ascending: {order:?}");
    // As few units as there can be: an extent of n pages in n / unit, rounded up.
    let [right, left, middle] = extents(pages, fault);
    let fewest = [right, left, middle].map(|e| (e.end - e.start).div_ceil(pace.unit_pages));
    assert_eq!(order.len() as u64, fewest.iter().sum::<u64>());
}

/// The same for a clear, which is one extent where all of it fits into the near caches.
fn judge_clear(seen: &[Seen], pages: u64, fault: u64, pace: Pace) {
    if pages > pace.near_pages {
        return judge(seen, pages, fault, pace);
    }
    let whole = [0..pages, pages..pages, pages..pages];
    assert_eq!(plan(pages, fault, pace.near_pages), whole);
    let units: Vec<Seen> = units(0..pages, pace.unit_pages)
        .flat_map(|unit| [Seen::Clear(unit, Reuse::Soon), Seen::Resched])
        .collect();
    assert_eq!(seen, &units[..units.len() - 1]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a2_extents_cover_each_page_once_and_the_neighbourhood_last(
        pages in prop_oneof![1..20u64, 1..3000u64],
        fault in prop_oneof![0..20u64, 0..4000u64, Just(u64::MAX)],
    ) {
        let ranges = extents(pages, fault);
        prop_assert_eq!(check::extents(pages, fault, &ranges), Ok(()));
        let last = extents(pages, pages - 1);
        prop_assert_eq!(check::extents(pages, pages - 1, &last), Ok(()));
        if fault >= pages {
            prop_assert_eq!(ranges, last, "beyond the end counts as the last page");
        }
    }

    #[test]
    fn a3_units_cover_an_extent_in_order(
        start in 0..5000u64, len in 0..5000u64, unit in 0..600u64,
    ) {
        let mut next = start;
        for piece in units(start..start + len, unit) {
            prop_assert_eq!(piece.start, next);
            let length = piece.end - piece.start;
            prop_assert!(length > 0);
            prop_assert!(length == unit.max(1) || piece.end == start + len);
            prop_assert!(length <= unit.max(1));
            next = piece.end;
        }
        prop_assert_eq!(next, start + len);
    }

    #[test]
    fn a7_a_copy_goes_the_way_of_a_clear_and_stops_at_memory_that_fails(
        order in 0..12u8,
        wanted in any::<u64>(),
        unit in prop_oneof![Just(1u64), 1..5000u64, Just(u64::MAX)],
        bad in proptest::option::of(any::<u64>()),
    ) {
        let pages = 1u64 << order;
        let pace = Pace { unit_pages: unit, near_pages: u64::MAX };
        let bad = bad.map(|bad| bad % pages);
        let recorder = Recorder { bad, ..Recorder::new(u64::MAX, 0) };
        let wanted = wanted % pages;
        let (seen, done) = with_frames(pages, |run| recorder.copy(&run.dirtied(), wanted, pace));
        match bad {
            None => {
                prop_assert_eq!(done, Ok(()));
                judge(&seen, pages, wanted, pace);
            }
            Some(bad) => {
                prop_assert_eq!(done, Err(Poisoned { frame: FROM.add(bad) }));
                let touched = |seen: &Seen| matches!(seen, Seen::Clear(at, _) if at.contains(&bad));
                prop_assert!(!seen.iter().any(touched), "failed memory is not copied");
            }
        }
    }

    #[test]
    fn a3_resched_points_lie_between_units(
        order in 0..12u8,
        fault in any::<u64>(),
        unit in prop_oneof![Just(1u64), 1..5000u64, Just(u64::MAX)],
        near in prop_oneof![Just(0u64), 0..5000u64],
    ) {
        let pages = 1u64 << order;
        let pace = Pace { unit_pages: unit, near_pages: near };
        let recorder = Recorder::new(u64::MAX, 0);
        for fault in [fault % pages, 0, pages - 1, pages, u64::MAX] {
            let seen = with_frames(pages, |run| recorder.zero(&run.dirtied(), fault, pace));
            judge_clear(&seen, pages, fault, pace);
        }
    }
}

#[test]
fn a2_every_order_and_every_fault() {
    for pages in (0..=8).map(|order| 1 << order) {
        for fault in 0..pages + 4 {
            let ranges = extents(pages, fault);
            assert_eq!(check::extents(pages, fault, &ranges), Ok(()), "{pages} {fault}");
        }
    }
}

#[test]
fn a3_tail_is_cleared() {
    // Units shorter than the folio, and no whole number of them: bytes of folio, unit, page shift.
    let mib = 1 << 20;
    for (folio, unit, page_shift) in [
        (2 * mib, 20 << 12, 12),
        (32 * mib, 9 * mib, 14),
        (32 * mib, 5 << 14, 14),
        (512 * mib, 32 * mib, 16),
        (512 * mib, 100 * mib, 16),
        (512 * mib, 3 << 16, 16),
    ] {
        let recorder = Recorder::new(unit, mib);
        let pace = Pace::of(&recorder, page_shift);
        assert_eq!(pace.unit_pages, unit >> page_shift);
        assert_eq!(pace.near_pages, mib >> page_shift);
        let pages: u64 = folio >> page_shift;
        with_frames(pages, |run| {
            let run = run.dirtied();
            for fault in [0, 1, 2, 3, pages / 2 + 1, pages - 3, pages - 1, pages + 7] {
                judge_clear(&recorder.zero(&run, fault, pace), pages, fault, pace);
            }
        });
    }
}

#[test]
fn a3_a_unit_is_never_less_than_a_page() {
    let recorder = Recorder::new(1, 0);
    let pace = Pace::of(&recorder, 16);
    assert_eq!(pace.unit_pages, 1);
    with_frames(64, |run| judge_clear(&recorder.zero(&run.dirtied(), 40, pace), 64, 40, pace));
}

#[test]
fn a4_gigantic_folios_go_the_same_way() {
    let mib = 1 << 20;
    let recorder = Recorder::new(32 * mib, mib);
    let pace = Pace::of(&recorder, 12);
    let pages = Order::new(18).pages();
    with_frames(pages, |run| {
        let run = run.dirtied();
        for fault in [0, 77_777, pages - 1] {
            let seen = recorder.zero(&run, fault, pace);
            judge_clear(&seen, pages, fault, pace);
            assert!(seen.len() >= 63, "32 units or so, and a point between any two");
        }
        let whole = Pace { unit_pages: u64::MAX, ..pace };
        assert_eq!(recorder.zero(&run, 77_777, whole).len(), 5, "three extents, two points");
    });
}

#[test]
fn a5_memory_known_to_be_zero_is_not_cleared() {
    let recorder = Recorder::new(u64::MAX, 0);
    let pace = Pace { unit_pages: 1, near_pages: 0 };
    with_frames(64, |run| {
        assert!(run.is_zeroed());
        assert_eq!(recorder.zero(&run, 5, pace), []);
    });
}

/// Faults on page `fault` of the first folio of `order` in memory that is full of `0xa5`, with
/// units of `unit` pages; every word of the folio, and what lies around it, is looked at.
fn real_memory<A: Arch>(config: Config, order: Order, fault: u64, unit: u64) {
    let mut ram = system::ram(4 * order.bytes(A::PAGE_SHIFT) as usize + (4 << 20)).unwrap();
    ram.bytes_mut().fill(0xa5);
    let near = config.near_cache_bytes >> A::PAGE_SHIFT;
    let config = Config { clear_unit_bytes: unit << A::PAGE_SHIFT, ..config };
    system::with::<A, _>(config, &mut ram, |machine, mm| {
        mm.policy().set_size(order, SizePolicy::Always).unwrap();
        let start = Vpn::new(4 * order.pages());
        let window = PageSpan::new(start, start.add(order.pages()));
        let space = mm.space(Asid(1), window).unwrap();
        mm.map(&space, &Request::anon(order.pages()).at(At::Fixed(start))).unwrap();
        let mut points = 0;
        mm.fault_with(&space, start.add(fault), Access::Write, &mut || points += 1).unwrap();
        let extents = plan(order.pages(), fault, near);
        let units: u64 = extents.iter().map(|e| (e.end - e.start).div_ceil(unit)).sum();
        assert_eq!(points, units - 1);
        let mut owned = vec![false; machine.frames().count as usize];
        check::leaves(mm, &space, |leaf| {
            for page in 0..leaf.pages.count() {
                owned[leaf.frame.add(page).offset_from(machine.frames().start) as usize] = true;
            }
        })
        .unwrap();
        assert_eq!(owned.iter().filter(|owned| **owned).count() as u64, order.pages());
        let mut canaries = 0;
        for (number, owned) in owned.into_iter().enumerate() {
            let frame = machine.frames().start.add(number as u64).addr(A::PAGE_SHIFT).get();
            for word in (0..1u64 << A::PAGE_SHIFT).step_by(8) {
                let found = machine.ram().read_word(PhysAddr::new(frame + word)).unwrap();
                assert!(!owned || found == 0, "word {word} of frame {number} is {found:#x}");
                canaries += u64::from(found == 0xa5a5_a5a5_a5a5_a5a5);
            }
        }
        assert!(canaries > 1 << 17, "other memory is as it was");
        assert_eq!(mm.totals().event(Event::BytesCleared), order.bytes(A::PAGE_SHIFT));
        mm.destroy(space);
    })
    .unwrap();
}

#[test]
fn a2_a_faults_folio_is_zero_and_nothing_else_is_touched() {
    for fault in [0, 1, 2, 300, 509, 510, 511] {
        real_memory::<X86_64>(Config::x86_64(), Order::new(9), fault, u64::from(u32::MAX));
    }
    for (order, fault) in [(1, 1), (2, 0), (3, 7), (4, 5)] {
        real_memory::<X86_64>(Config::x86_64(), Order::new(order), fault, 1);
        real_memory::<Arm16k>(Config::arm64_16k(), Order::new(order), fault, 3);
    }
    real_memory::<X86_64>(Config::x86_64(), Order::new(9), 200, 100);
}

#[test]
fn a5_fresh_memory_is_not_cleared_again_and_used_memory_is() {
    let mut ram = system::ram(16 << 20).unwrap();
    system::with::<X86_64, _>(Config::x86_64(), &mut ram, |machine, mm| {
        let order = Order::new(9);
        mm.policy().set_size(order, SizePolicy::Always).unwrap();
        let start = Vpn::new(512);
        let window = PageSpan::new(start, start.add(512));
        let space = mm.space(Asid(1), window).unwrap();
        mm.map(&space, &Request::anon(512).at(At::Fixed(start))).unwrap();
        mm.fault(&space, start, Access::Write).unwrap();
        assert_eq!(mm.totals().event(Event::BytesKnownZero), 2 << 20);
        assert_eq!(mm.totals().event(Event::BytesCleared), 0);
        // A program wrote and freed it: it is no longer known to be zero.
        let mut block = None;
        check::leaves(mm, &space, |leaf| block = Some(leaf.frame)).unwrap();
        let dirty = block.unwrap().add(17).addr(12);
        machine.ram().write_word(dirty, 0xdead).unwrap();
        mm.discard(&space, window).unwrap();
        mm.map(&space, &Request::anon(512).at(At::Fixed(start))).unwrap();
        for _ in 0..8 {
            mm.fault(&space, start, Access::Write).unwrap();
            check::leaves(mm, &space, |leaf| {
                let zero = (0..512)
                    .all(|page| machine.ram().read_word(leaf.frame.add(page).addr(12)) == Some(0));
                assert!(zero, "{leaf:?}");
            })
            .unwrap();
            mm.unmap(&space, window).unwrap();
            mm.map(&space, &Request::anon(512).at(At::Fixed(start))).unwrap();
        }
        mm.destroy(space);
    })
    .unwrap();
}
