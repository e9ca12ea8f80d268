//! Allocators of frames: Quire's `phys` beside the two buddies of the crate
//! buddy_system_allocator.
//!
//! * Its `LockedHeap` keeps free blocks in linked lists, one for each order, and searches the list
//!   for the buddy of a freed block. The sweep over n, which takes n pages and then gives them
//!   back, is that of the crate's pull request 55, where the time for each pair grew with n. It
//!   grows where the pages come back shuffled; in order, the search ends at once.
//! * Its `LockedFrameAllocator` keeps a `BTreeSet` of frame numbers for each order, in heap memory.
//! * `quire-runs` is the sweep as a user of Quire would write it: n frames are one run.
//!
//! All variants are the forms that several CPUs can share, each with its own locks.
//!
//! Neither Quire nor `LockedFrameAllocator` touches a frame's memory, so their frames are numbers
//! only; the heap writes its links into free memory and gets real memory.

use std::alloc::Layout;
use std::hint::black_box;
use std::ptr::NonNull;

use buddy_system_allocator::{LockedFrameAllocator, LockedHeap};
use quire::hw::FrameRun;
use quire::inject::Phys;
use quire::phys::{CpuCache, Slot, Zone};
use quire::units::{CpuId, FrameSpan, Order, Pfn};

use crate::report::{Report, Variant};

/// 1 GiB of 4 KiB frames.
const FRAMES: u64 = 1 << 18;

/// About how many pairs a round has.
const PAIRS: usize = 20_000;

/// The operations that both sides perform.
trait Frames {
    type Block;
    fn take(&mut self, order: u8) -> Self::Block;
    fn give(&mut self, block: Self::Block, order: u8);
}

struct Quire<'a, 'm>(&'a Phys<'m>, CpuId);

impl Frames for Quire<'_, '_> {
    type Block = FrameRun;

    #[inline]
    fn take(&mut self, order: u8) -> FrameRun {
        self.0.alloc(self.1, Order::new(order)).expect("the bench stays within memory")
    }

    #[inline]
    fn give(&mut self, block: FrameRun, _: u8) {
        self.0.free(self.1, block);
    }
}

impl Frames for &LockedFrameAllocator {
    type Block = usize;

    #[inline]
    fn take(&mut self, order: u8) -> usize {
        self.lock().alloc(1 << order).expect("the bench stays within memory")
    }

    #[inline]
    fn give(&mut self, block: usize, order: u8) {
        self.lock().dealloc(block, 1 << order);
    }
}

/// A heap with memory of its own, as an allocator of pages.
struct Pages {
    heap: LockedHeap<32>,
    _memory: Vec<u8>,
}

/// Frames that `Pages` has.
const HEAP_FRAMES: usize = 1 << 14;

#[allow(unsafe_code)]
impl Pages {
    fn new() -> Self {
        let mut memory = vec![0u8; (HEAP_FRAMES + 1) << 12];
        let start = memory.as_mut_ptr().expose_provenance().next_multiple_of(1 << 12);
        let heap = LockedHeap::empty();
        // SAFETY: the range lies in `memory`, which lives as long as the heap and has no other
        // user.
        unsafe { heap.lock().init(start, HEAP_FRAMES << 12) };
        Self { heap, _memory: memory }
    }

    fn layout(order: u8) -> Layout {
        Layout::from_size_align(4096 << order, 4096).expect("a power of two")
    }
}

#[allow(unsafe_code)]
impl Frames for Pages {
    type Block = NonNull<u8>;

    #[inline]
    fn take(&mut self, order: u8) -> NonNull<u8> {
        self.heap.lock().alloc(Self::layout(order)).expect("the bench stays within memory")
    }

    #[inline]
    fn give(&mut self, block: NonNull<u8>, order: u8) {
        // SAFETY: the block came from `take` of the same heap with the same order.
        unsafe { self.heap.lock().dealloc(block, Self::layout(order)) };
    }
}

/// Takes one block and gives it back, over and over.
fn pairs<F: Frames>(frames: &mut F, order: u8) -> u64 {
    for _ in 0..PAIRS {
        let block = black_box(frames.take(order));
        frames.give(block, order);
    }
    PAIRS as u64
}

/// Takes as many blocks as `places` has numbers, puts each in its place, and gives them back from
/// the first place on.
fn sweep<F: Frames>(frames: &mut F, order: u8, places: &[usize]) -> u64 {
    let mut held: Vec<Option<F::Block>> = places.iter().map(|_| None).collect();
    let rounds = (PAIRS / places.len()).max(1);
    for _ in 0..rounds {
        for place in places {
            held[*place] = Some(frames.take(order));
        }
        for block in held.iter_mut().filter_map(Option::take) {
            frames.give(block, order);
        }
    }
    (rounds * places.len()) as u64
}

/// Takes `count` frames in as few runs as possible, and gives those back.
fn runs(phys: &Phys<'_>, count: u64) -> u64 {
    let cpu = CpuId::new(0);
    let rounds = PAIRS as u64 / count;
    let mut held = Vec::new();
    for _ in 0..rounds {
        let mut left = count;
        while left > 0 {
            let run =
                phys.alloc_run(cpu, Order::ZERO, left).expect("the bench stays within memory");
            left -= run.count();
            held.push(run);
        }
        held.drain(..).for_each(|run| phys.free(cpu, run));
    }
    rounds * count
}

/// The numbers below `count`, shuffled by a fixed linear congruential sequence (Knuth's MMIX).
fn shuffled(count: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..count).collect();
    let mut state = 1u64;
    for at in (1..count).rev() {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        places.swap(at, (state >> 33) as usize % (at + 1));
    }
    places
}

/// The right to frames that exist as numbers only.
#[allow(unsafe_code)]
fn numbers(span: FrameSpan) -> FrameRun {
    // SAFETY: 1. called once. 2. nothing in this program touches a frame's memory. 3. not zeroed.
    unsafe { FrameRun::mint(span, false) }
}

/// Both threads take and give single frames at once; the time is that of one thread's pair.
fn two_threads<F: Frames + Send>(each: [F; 2], places: &[usize]) -> u64 {
    std::thread::scope(|scope| {
        for mut frames in each {
            scope.spawn(move || (0..10).for_each(|_| _ = sweep(&mut frames, 0, places)));
        }
    });
    (PAIRS / places.len() * places.len()) as u64 * 10
}

/// Runs the comparison.
pub(crate) fn compare(report: &mut Report) {
    let mut slots: Vec<Slot> = (0..FRAMES).map(|_| Slot::empty()).collect();
    let mut caches = [const { CpuCache::new() }; 2];
    let all = FrameSpan::new(Pfn::new(0), FRAMES);
    let mut zones = [Zone::new(all)];
    let phys = Phys::new(all.start, &mut slots, &mut caches, &mut zones).expect("sound");
    phys.add(numbers(all)).expect("the zone has all frames");
    let tree = LockedFrameAllocator::<33>::new();
    tree.lock().add_frame(0, FRAMES as usize);
    one_thread(report, &phys, &mut &tree, &mut Pages::new());
    for count in [100, 1000, 5000] {
        let places: Vec<usize> = (0..count).collect();
        let ours = || two_threads([0, 1].map(|cpu| Quire(&phys, CpuId::new(cpu))), &places);
        let theirs = || two_threads([&tree, &tree], &places);
        let variants: Vec<Variant<'_>> = vec![("quire", Box::new(ours)), (TREE, Box::new(theirs))];
        report.case("buddy", &format!("2-threads-order-0-n-{count}"), variants);
    }
}

const HEAP: &str = "buddy_system_allocator-heap";
const TREE: &str = "buddy_system_allocator-frame";

fn one_thread(
    report: &mut Report,
    phys: &Phys<'_>,
    tree: &mut &LockedFrameAllocator,
    heap: &mut Pages,
) {
    let mut quire = Quire(phys, CpuId::new(0));
    for order in [0, 4, 9] {
        let variants: Vec<Variant<'_>> = vec![
            ("quire", Box::new(|| pairs(&mut quire, order))),
            (HEAP, Box::new(|| pairs(heap, order))),
            (TREE, Box::new(|| pairs(tree, order))),
        ];
        report.case("buddy", &format!("pair-order-{order}"), variants);
    }
    let sweeps = [(0, 100), (0, 500), (0, 1000), (0, 5000), (4, 500), (9, 20)];
    let ordered = sweeps.map(|(order, count)| ("sweep", order, (0..count).collect::<Vec<_>>()));
    let random = [100, 500, 1000, 5000].map(|count| ("shuffled", 0, shuffled(count)));
    for (name, order, places) in ordered.into_iter().chain(random) {
        let count = places.len();
        let mut variants: Vec<Variant<'_>> = vec![
            ("quire", Box::new(|| sweep(&mut quire, order, &places))),
            (HEAP, Box::new(|| sweep(heap, order, &places))),
            (TREE, Box::new(|| sweep(tree, order, &places))),
        ];
        if name == "sweep" && order == 0 {
            variants.push(("quire-runs", Box::new(|| runs(phys, count as u64))));
        }
        report.case("buddy", &format!("{name}-order-{order}-n-{count}"), variants);
    }
}
