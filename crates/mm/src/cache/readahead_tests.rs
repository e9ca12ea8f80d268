//! Readers and faults against a simulated file: which pages are read, when, in which folios.
//!
//! [`File`] is the naive model: a map of folios, and the loop over a window as its documentation
//! gives it.

use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

use proptest::collection::vec;
use proptest::prelude::*;
use quire_units::{Order, OrderSet};

use super::readahead::MANY_MISSES;
use super::{Bounds, FilePages, Mapped, Pattern, Preference, Readahead, Window};

/// The cached folios of a file.
#[derive(Clone, Default)]
struct File {
    folios: BTreeMap<u64, Order>,
    marked: BTreeSet<u64>,
    windows: Vec<Window>,
    misses: usize,
}

impl File {
    fn folio(&self, page: u64) -> Option<FilePages> {
        let (&start, &order) = self.folios.range(..=page).next_back()?;
        let folio = FilePages::new(start, start + order.pages());
        folio.contains(page).then_some(folio)
    }

    fn missing(&self, from: u64) -> u64 {
        let mut page = from;
        while let Some(folio) = self.folio(page) {
            page = folio.end;
        }
        page
    }

    fn cached_before(&self, page: u64) -> u64 {
        (0..page).rev().take_while(|&before| self.folio(before).is_some()).count() as u64
    }

    /// Adds a folio if its place is empty.
    fn stray(&mut self, page: u64, order: Order) {
        let block = FilePages::block(page, order);
        if (block.start..block.end).all(|page| self.folio(page).is_none()) {
            self.folios.insert(block.start, order);
        }
    }

    /// The loop over a window. `fails` tells whether there is no memory for a folio of an order.
    fn fill(
        &mut self,
        window: &Window,
        mut fails: impl FnMut(Order) -> bool,
    ) -> Result<Vec<FilePages>, u64> {
        let mut new = Vec::new();
        let mut at = window.pages.start;
        while at < window.pages.end {
            if let Some(folio) = self.folio(at) {
                at = folio.end;
                continue;
            }
            let next = self.folios.range(at..).next().map_or(u64::MAX, |(&start, _)| start);
            let mut order = window.order_at(at, Order::fitting(next - at).unwrap());
            while fails(order) {
                order = window.below(order).ok_or(at)?;
            }
            assert!(at + order.pages() <= next, "a folio over another");
            self.folios.insert(at, order);
            new.push(FilePages::new(at, at + order.pages()));
            at += order.pages();
        }
        if let Some(mark) = window.mark {
            self.marked.insert(self.folio(mark).unwrap().start);
        }
        self.windows.push(*window);
        Ok(new)
    }

    /// One read of a program.
    fn read(&mut self, ra: &mut Readahead, wanted: FilePages, bounds: &Bounds, pattern: Pattern) {
        let mut page = wanted.start;
        while page < wanted.end {
            let window = match self.folio(page) {
                None => {
                    self.misses += 1;
                    let rest = FilePages::new(page, wanted.end);
                    Some(ra.miss(rest, self.cached_before(page), bounds, pattern))
                }
                Some(folio) if self.marked.remove(&folio.start) => {
                    ra.marked(folio, self.missing(folio.end), bounds, pattern)
                }
                Some(_) => None,
            };
            if let Some(window) = window {
                self.fill(&window, |_| false).unwrap();
            }
            page = self.folio(page).expect("a miss reads what is wanted").end;
        }
        ra.read(wanted);
    }

    fn preferred(&self) -> Vec<u8> {
        self.windows.iter().map(|window| window.preferred().get()).collect()
    }

    fn cached(&self) -> u64 {
        self.folios.values().map(|order| order.pages()).sum()
    }
}

/// A file of `end` pages of 4 KiB: windows of 128 KiB, folios up to 2 MiB.
pub(super) fn file(end: u64) -> Bounds {
    Bounds { end, window: 32, smallest: Order::ZERO, sizes: OrderSet::from_bits(0x3ff) }
}

pub(super) fn shows(start: u64, end: u64) -> Mapped {
    let pages = FilePages::new(start, end);
    Mapped { pages, exec: false, huge: false, pattern: Pattern::Normal, preference: NONE }
}

pub(super) fn code(start: u64, end: u64) -> Mapped {
    Mapped { exec: true, ..shows(start, end) }
}

pub(super) fn prefers(area: &Mapped, preference: Preference) -> Mapped {
    Mapped { preference, ..*area }
}

pub(super) const BLOCK: Order = Order::new(9);
pub(super) const NONE: Preference = Preference { exec: OrderSet::EMPTY, huge: BLOCK };
pub(super) const ARM: Preference = Preference { exec: OrderSet::from_bits(1 << 4), huge: BLOCK };
const TIERS: Preference = Preference { exec: OrderSet::from_bits(1 << 4 | 1 << 9), huge: BLOCK };

#[test]
fn b1_a_stream_grows_by_two_orders_at_each_mark() {
    let (mut file_, mut ra, bounds) = (File::default(), Readahead::default(), file(4096));
    let bounds = Bounds { window: 2048, ..bounds };
    for page in 0..4096 {
        file_.read(&mut ra, FilePages::new(page, page + 1), &bounds, Pattern::Normal);
    }
    assert_eq!(file_.preferred()[..6], [0, 2, 4, 6, 8, 9]);
    assert!(file_.preferred()[5..].iter().all(|&order| order == 9));
    assert_eq!((file_.misses, file_.cached()), (1, 4096));
    let sizes: Vec<_> = file_.windows.iter().map(|window| window.pages.count()).collect();
    assert_eq!(sizes[..4], [4, 16, 60, 240], "windows that end aligned: {sizes:?}");
}

#[test]
fn b1_a_small_window_bounds_the_order_and_comes_to_full_size() {
    let (mut file_, mut ra, bounds) = (File::default(), Readahead::default(), file(1024));
    for page in 0..1024 {
        file_.read(&mut ra, FilePages::new(page, page + 1), &bounds, Pattern::Normal);
    }
    let full = FilePages::new(64, 96);
    assert!(file_.windows.iter().any(|w| w.pages == full && w.preferred() == Order::new(5)));
    assert!(file_.windows.iter().all(|w| w.pages.count() <= 32));
    assert_eq!(file_.misses, 1);
}

#[test]
fn b1_a_window_that_was_cut_to_end_aligned_does_not_make_the_next_smaller() {
    let (mut ra, bounds) = (Readahead::default(), file(1024));
    let mut window = ra.miss(FilePages::new(7, 8), 0, &file(1024), Pattern::Sequential);
    let mut ends = Vec::new();
    for _ in 0..5 {
        ends.push(window.pages.end);
        window = ra.marked(window.pages, window.pages.end, &bounds, Pattern::Normal).unwrap();
    }
    assert_eq!(ends, [11, 16, 32, 64, 96]);
}

#[test]
fn b1_a_read_that_follows_the_last_is_a_stream_even_if_nothing_is_cached() {
    let bounds = file(1024);
    let follows = |start| {
        let mut ra = Readahead::default();
        ra.read(FilePages::new(40, 50));
        ra.miss(FilePages::new(start, start + 2), 0, &bounds, Pattern::Normal).mark.is_some()
    };
    assert!(follows(50));
    assert!(follows(49), "the last read ended within a page");
    assert!(!follows(51) && !follows(48));
    assert!(follows(0), "so is one from the beginning");
}

#[test]
fn b1_with_a_hard_minimum_orders_grow_from_there() {
    let bounds = Bounds { smallest: Order::new(3), window: 4096, ..file(1 << 16) };
    let (mut file_, mut ra) = (File::default(), Readahead::default());
    for page in 0..2048 {
        file_.read(&mut ra, FilePages::new(page, page + 1), &bounds, Pattern::Normal);
    }
    assert_eq!(file_.preferred()[..4], [3, 5, 7, 9]);
}

#[test]
fn b1_a_touch_in_the_middle_of_a_marked_folio_continues_the_stream() {
    let (mut ra, bounds) = (Readahead::default(), file(1024));
    let first = ra.miss(FilePages::new(0, 16), 0, &bounds, Pattern::Normal);
    assert_eq!((first.pages, first.mark), (FilePages::new(0, 32), Some(16)));
    let next = ra.marked(FilePages::new(12, 20), 32, &bounds, Pattern::Normal).unwrap();
    assert_eq!((next.pages, next.mark), (FilePages::new(32, 64), Some(32)));
    assert_eq!(next.preferred(), Order::new(2));
}

#[test]
fn b1_random_reads_read_just_what_is_wanted() {
    let bounds = file(4096);
    let (mut ra, wanted) = (Readahead::default(), FilePages::new(512, 528));
    let window = ra.miss(wanted, 0, &bounds, Pattern::Normal);
    assert_eq!((window.pages, window.mark, window.preferred()), (wanted, None, Order::new(4)));
    let wanted = FilePages::new(0, 1);
    let window = ra.miss(wanted, 0, &bounds, Pattern::Random);
    assert_eq!((window.pages, window.mark), (wanted, None), "advised, even at the beginning");
    assert_eq!(ra.marked(wanted, 1, &bounds, Pattern::Random), None);
}

#[test]
fn b1_sequential_advice_needs_no_evidence_and_doubles_the_window() {
    let (mut ra, bounds) = (Readahead::default(), file(4096));
    let window = ra.miss(FilePages::new(512, 528), 0, &bounds, Pattern::Sequential);
    assert_eq!((window.pages, window.mark), (FilePages::new(512, 544), Some(528)));
    let next = ra.marked(FilePages::new(528, 529), 544, &bounds, Pattern::Sequential).unwrap();
    assert_eq!(next.pages, FilePages::new(544, 608));
}

#[test]
fn b1_a_stream_whose_state_was_lost_is_known_by_its_trace() {
    let (mut ra, bounds) = (Readahead::default(), file(4096));
    let window = ra.miss(FilePages::new(100, 101), 10, &bounds, Pattern::Normal);
    assert_eq!((window.pages, window.mark), (FilePages::new(100, 111), Some(110)));
    let window = ra.miss(FilePages::new(12, 13), 12, &bounds, Pattern::Normal);
    assert_eq!(window.pages, FilePages::new(12, 37), "cached from the file's beginning");
    let other = Readahead::default().marked(FilePages::new(8, 12), 20, &bounds, Pattern::Normal);
    let other = other.unwrap();
    assert_eq!((other.pages.start, other.preferred()), (20, Order::new(4)));
}

#[test]
fn b1_what_is_cached_far_ahead_is_enough() {
    let (mut ra, bounds) = (Readahead::default(), file(4096));
    assert_eq!(ra.marked(FilePages::new(8, 12), 60, &bounds, Pattern::Normal), None);
    assert_eq!(ra.marked(FilePages::new(8, 12), 4096, &bounds, Pattern::Normal), None);
    let off = Bounds { window: 0, ..bounds };
    assert_eq!(ra.marked(FilePages::new(8, 12), 12, &off, Pattern::Normal), None);
}

#[test]
fn b1_a_read_larger_than_the_window_is_read_at_once_and_so_are_the_next() {
    let (mut ra, bounds) = (Readahead::default(), file(4096));
    let window = ra.miss(FilePages::new(0, 256), 0, &bounds, Pattern::Normal);
    assert_eq!((window.pages, window.mark), (FilePages::new(0, 256), Some(128)));
    assert_eq!(window.preferred(), Order::new(8));
    let next = ra.marked(FilePages::new(0, 256), 256, &bounds, Pattern::Normal).unwrap();
    assert_eq!(next.pages, FilePages::new(256, 512));
}

#[test]
fn b1_the_next_window_begins_after_ones_own_however_far_one_has_looked() {
    let (mut ra, bounds) = (Readahead::default(), file(4096));
    ra.miss(FilePages::new(0, 256), 0, &bounds, Pattern::Normal);
    let next = ra.marked(FilePages::new(128, 136), 136 + 32, &bounds, Pattern::Normal).unwrap();
    assert_eq!((next.pages, next.mark), (FilePages::new(256, 512), Some(256)));
}

#[test]
fn b1_at_the_end_of_the_file_there_is_no_mark() {
    let (mut ra, bounds) = (Readahead::default(), file(20));
    let window = ra.miss(FilePages::new(0, 16), 0, &bounds, Pattern::Normal);
    assert_eq!((window.pages, window.mark), (FilePages::new(0, 20), None));
    let block = Bounds { smallest: Order::new(3), ..bounds };
    let window = ra.miss(FilePages::new(17, 18), 0, &block, Pattern::Random);
    assert_eq!(window.pages, FilePages::new(16, 24), "the hard minimum reaches beyond");
}

#[test]
fn b1_random_faults_stop_reading_around_and_hits_bring_it_back() {
    let (mut ra, bounds, area) = (Readahead::default(), file(1 << 20), shows(0, 1 << 20));
    for at in 0..u64::from(MANY_MISSES) {
        let window = ra.fault(at * 1000 + 16, &area, &bounds);
        assert_eq!(window.pages, FilePages::new(at * 1000, at * 1000 + 32));
        assert_eq!(window.mark, Some(at * 1000 + 24));
    }
    for _ in 0..20 {
        assert_eq!(ra.fault(7, &area, &bounds).pages, FilePages::new(7, 8));
    }
    ra.hit(200, &code(0, 100));
    assert_eq!(ra.fault(7, &area, &bounds).pages.count(), 1, "hits in code do not count");
    ra.hit(22, &area);
    assert_eq!(ra.fault(7, &area, &bounds).pages, FilePages::new(0, 32));
    for _ in 0..5000 {
        ra.fault(7, &area, &bounds);
    }
    ra.hit(950, &area);
    assert_eq!(ra.fault(7, &area, &bounds).pages.count(), 32, "misses are forgotten");
}

#[test]
fn b1_a_faults_advice_is_decided_in_order() {
    let (bounds, off) = (file(4096), Bounds { window: 0, ..file(4096) });
    let area = |huge, exec, pattern| Mapped { huge, exec, pattern, ..shows(0, 4096) };
    let fault = |area: &Mapped, bounds: &Bounds| {
        let window = Readahead::default().fault(600, &prefers(area, ARM), bounds);
        (window.pages.start, window.pages.end, window.mark, window.preferred().get())
    };
    use Pattern::{Normal, Random, Sequential};
    let huge = (512, 1536, Some(1024), 9);
    assert_eq!(fault(&area(true, false, Normal), &off), huge, "even with readahead off");
    assert_eq!(fault(&area(true, true, Sequential), &bounds), huge);
    assert_eq!(fault(&area(true, true, Random), &bounds), (512, 1024, None, 9));
    assert_eq!(fault(&area(false, false, Random), &bounds), (600, 601, None, 0));
    assert_eq!(fault(&area(false, true, Sequential), &off), (600, 601, None, 0));
    assert_eq!(fault(&area(false, false, Sequential), &bounds), (600, 604, Some(601), 0));
    assert_eq!(fault(&area(false, true, Normal), &off), (600, 601, None, 0));
    assert_eq!(fault(&area(false, false, Normal), &bounds), (584, 616, Some(608), 0));
    let small = Bounds { sizes: OrderSet::from_bits(1), ..bounds };
    assert_eq!(fault(&area(true, false, Normal), &small), (584, 616, Some(608), 0));
}

#[test]
fn b1_a_huge_area_is_followed_in_huge_windows() {
    let (mut ra, bounds) = (Readahead::default(), file(1 << 20));
    let area = Mapped { huge: true, ..shows(0, 1 << 20) };
    ra.fault(600, &area, &bounds);
    let next = ra.marked(FilePages::new(1024, 1536), 1536, &bounds, Pattern::Normal).unwrap();
    assert_eq!((next.pages, next.preferred()), (FilePages::new(1536, 2560), BLOCK));
}

#[test]
fn b7_the_largest_tier_that_fits_area_and_file_is_taken() {
    let fault = |page, area: &Mapped, end| {
        let window = Readahead::default().fault(page, &prefers(area, TIERS), &file(end));
        (window.pages.start, window.pages.end, window.preferred().get())
    };
    assert_eq!(fault(600, &code(0, 2000), 4096), (512, 1024, 9));
    assert_eq!(fault(600, &code(513, 2000), 4096), (576, 640, 4));
    assert_eq!(fault(600, &code(0, 1023), 4096), (576, 640, 4));
    assert_eq!(fault(600, &code(0, 2000), 1000), (576, 640, 4));
    let window = Readahead::default().fault(600, &prefers(&code(0, 2000), TIERS), &only_pages());
    assert_eq!(window.below(BLOCK), Some(Order::new(4)), "the tiers are steps on the way down");
    assert_eq!(window.below(Order::new(4)), Some(Order::ZERO));
}

fn only_pages() -> Bounds {
    Bounds { sizes: OrderSet::from_bits(1), ..file(4096) }
}

#[test]
fn b3_each_step_down_is_one_allowed_order_and_ends_at_the_hard_minimum() {
    let bounds =
        Bounds { smallest: Order::new(2), sizes: OrderSet::from_bits(0b1011_0101), ..file(4096) };
    let window = Window::exactly(FilePages::new(0, 256), &bounds);
    let steps: Vec<_> =
        core::iter::successors(Some(window.preferred()), |&order| window.below(order))
            .map(Order::get)
            .collect();
    assert_eq!(steps, [7, 5, 4, 2]);
    assert_eq!(window.order_at(3 * 32, BLOCK), Order::new(5));
    assert_eq!(window.order_at(8, BLOCK), Order::new(2), "order 3 is not allowed");
}

fn any_bounds() -> impl Strategy<Value = Bounds> {
    let window = prop_oneof![Just(0), 1..200u64, Just(32), Just(512)];
    (1..3000u64, window, 0..5u8, any::<u32>()).prop_map(|(end, window, smallest, sizes)| Bounds {
        end,
        window,
        smallest: Order::new(smallest),
        sizes: OrderSet::from_bits(sizes & 0x7ff),
    })
}

fn any_state() -> impl Strategy<Value = Readahead> {
    let near = any::<(u16, u16)>().prop_map(|(a, b)| [u64::from(a % 3000) | u64::from(b) << 48; 2]);
    prop_oneof![
        Just(Readahead::default()),
        any::<[u64; 2]>().prop_map(Readahead::from_words),
        near.prop_map(Readahead::from_words),
    ]
}

fn any_pattern() -> impl Strategy<Value = Pattern> {
    prop_oneof![Just(Pattern::Normal), Just(Pattern::Sequential), Just(Pattern::Random)]
}

/// A fault within the file: bounds, the page, and its area.
fn any_fault() -> impl Strategy<Value = (Bounds, u64, Mapped)> {
    let exec = prop_oneof![Just(0), Just(1 << 4), Just(1 << 4 | 1 << 9), 0..0x7ffu32];
    (any_bounds(), any::<u64>(), 0..600u64, 1..600u64, any::<[bool; 2]>(), any_pattern(), exec)
        .prop_map(|(bounds, page, left, right, [x, huge], pattern, exec)| {
            let page = page % bounds.end;
            let pages = FilePages::new(page.saturating_sub(left), page + right);
            let preference = Preference { exec: OrderSet::from_bits(exec), huge: BLOCK };
            let mapped = Mapped { pages, exec: x, huge, pattern, preference };
            (bounds, page, mapped)
        })
}

/// Any window that any reader may get, and the page that it must hold.
fn any_window() -> impl Strategy<Value = (Bounds, u64, Window)> {
    let read = (any_state(), any_bounds(), any::<[u64; 2]>(), 1..700u64, any_pattern());
    let read = read.prop_map(|(mut ra, bounds, [at, before], count, pattern)| {
        let at = at % bounds.end;
        let wanted = FilePages::new(at, at + count);
        (bounds, at, ra.miss(wanted, before % (at + 1), &bounds, pattern))
    });
    let fault = (any_state(), any_fault()).prop_map(|(mut ra, (bounds, page, mapped))| {
        (bounds, page, ra.fault(page, &mapped, &bounds))
    });
    let marked = (any_state(), any_bounds(), any::<u64>(), 0..10u8, 0..100u64, any_pattern());
    let marked =
        marked.prop_filter_map("no window", |(mut ra, bounds, at, order, more, pattern)| {
            let folio = FilePages::block(at % bounds.end, Order::new(order).max(bounds.smallest));
            let missing = (folio.end + more).next_multiple_of(bounds.smallest.pages());
            let window = ra.marked(folio, missing, &bounds, pattern)?;
            Some((bounds, window.pages.start, window))
        });
    prop_oneof![read, fault, marked]
}

/// Folios that are cached already, of sizes that the file may have.
fn populated(bounds: &Bounds, strays: &[(u64, u8)]) -> File {
    let mut file = File::default();
    for &(at, order) in strays {
        file.stray(at % bounds.end, Order::new(order).max(bounds.smallest));
    }
    file
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn i2_windows_hold_the_page_and_lie_in_the_file((bounds, page, window) in any_window()) {
        let unit = bounds.smallest.pages();
        let end = bounds.end.next_multiple_of(unit);
        prop_assert!(window.pages.contains(page), "{window:?}");
        prop_assert!(window.pages.start % unit == 0 && window.pages.end % unit == 0);
        prop_assert!(window.pages.end <= end);
        prop_assert_eq!(window.sizes.smallest(), Some(bounds.smallest));
        if let Some(mark) = window.mark {
            prop_assert!(window.pages.contains(mark) && window.pages.end < bounds.end);
        }
    }

    #[test]
    fn i2_exec_windows_lie_in_the_area(
        mut ra in any_state(),
        (bounds, page, mapped) in any_fault(),
    ) {
        let mapped = Mapped { exec: true, huge: false, pattern: Pattern::Normal, ..mapped };
        let window = ra.fault(page, &mapped, &bounds);
        let unit = bounds.smallest.pages();
        let around = FilePages::new(
            mapped.pages.start / unit * unit,
            mapped.pages.end.next_multiple_of(unit),
        );
        prop_assert!(window.pages.contains(page));
        prop_assert!(around.covers(window.pages), "{window:?}");
        prop_assert_eq!(window.mark, None);
    }

    #[test]
    fn i2_folios_are_aligned_and_lie_in_the_window(
        (bounds, page, window) in any_window(),
        strays in vec((any::<u64>(), 0..10u8), 0..20),
        fails in any::<u64>(),
    ) {
        let mut file = populated(&bounds, &strays);
        let mut bits = fails;
        let folios = file.fill(&window, |order| {
            bits = bits.rotate_left(1);
            bits & 1 != 0 && order > bounds.smallest
        });
        let folios = folios.expect("i3: a preference is soft");
        prop_assert!(file.folio(page).is_some());
        prop_assert!(file.missing(window.pages.start) >= window.pages.end);
        for folio in folios {
            let order = Order::fitting(folio.count()).unwrap();
            prop_assert_eq!(folio.start % folio.count(), 0);
            prop_assert!(window.pages.covers(folio));
            prop_assert!(window.sizes.contains(order));
        }
    }

    #[test]
    fn i3_what_can_be_read_in_smallest_folios_is_read((bounds, page, window) in any_window()) {
        let mut file = File::default();
        prop_assert!(file.fill(&window, |order| order > bounds.smallest).is_ok());
        prop_assert!(file.folio(page).is_some());
        let start = window.pages.start;
        prop_assert_eq!(File::default().fill(&window, |_| true), Err(start), "the minimum is hard");
    }

    #[test]
    fn b3_large_folios_come_back_after_a_failure_and_a_page_in_the_way(
        (bounds, _, window) in any_window(),
        stray in any::<u64>(),
        fails_at in 0..40usize,
    ) {
        let mut file = populated(&bounds, &[(stray % bounds.end, 0)]);
        let before = file.clone();
        let (mut tries, mut failed) = (0, false);
        let folios = file.fill(&window, |order| {
            tries += 1;
            failed |= tries == fails_at && order > bounds.smallest;
            tries == fails_at && order > bounds.smallest
        });
        let large = window.preferred();
        let folios: Vec<_> = folios.unwrap().into_iter().filter(|f| f.count() == large.pages())
            .collect();
        let free = |block: FilePages| (block.start..block.end).all(|p| before.folio(p).is_none());
        let first = window.pages.start.next_multiple_of(large.pages());
        let blocks = (first..window.pages.end).step_by(large.pages() as usize)
            .map(|at| FilePages::block(at, large))
            .filter(|&block| window.pages.covers(block) && free(block));
        let small = blocks.filter(|block| !folios.contains(block)).count();
        prop_assert!(small <= usize::from(failed), "all but the block of the failure are large");
    }

    #[test]
    fn b1_streams_read_each_page_once_and_miss_once(
        bounds in any_bounds(),
        steps in vec(1..40u64, 1..100),
    ) {
        let bounds = Bounds { window: bounds.window.max(8), ..bounds };
        let (mut file, mut ra, mut at) = (File::default(), Readahead::default(), 0);
        for step in steps.iter().cycle() {
            let wanted = FilePages::new(at, (at + step).min(bounds.end));
            file.read(&mut ra, wanted, &bounds, Pattern::Normal);
            at = wanted.end;
            if at == bounds.end {
                break;
            }
        }
        let most = steps.iter().max().unwrap().max(&bounds.window).next_power_of_two();
        prop_assert_eq!(file.cached(), bounds.end.next_multiple_of(bounds.smallest.pages()));
        let unit = bounds.smallest.pages();
        prop_assert!(file.windows.iter().all(|w| w.pages.count() <= most + 2 * unit));
        if steps.iter().all(|&step| step <= bounds.window / 2) {
            prop_assert_eq!(file.misses, 1, "{:?}", file.windows);
        }
    }

    #[test]
    fn b1_two_streams_in_one_file_do_not_disturb_each_other(gap in 100..1000u64) {
        let (mut file_, bounds) = (File::default(), file(gap * 2));
        let (mut one, mut two) = (Readahead::default(), Readahead::default());
        for page in 0..gap {
            file_.read(&mut one, FilePages::new(page, page + 1), &bounds, Pattern::Normal);
            let page = gap + page;
            file_.read(&mut two, FilePages::new(page, page + 1), &bounds, Pattern::Normal);
        }
        prop_assert_eq!(file_.cached(), gap * 2);
        prop_assert!(file_.misses <= 4, "{}", file_.misses);
    }

    #[test]
    fn b1_the_state_packs_into_two_words_without_loss(words in any::<[u64; 2]>()) {
        prop_assert_eq!(Readahead::from_words(words).to_words(), words);
    }
}
