//! Page tables: Quire's `table` beside the crate page_table_multiarch, on x86-64 tables.
//!
//! A round maps 1 GiB by 4 KiB leaves into an empty tree, write-protects all of it, and unmaps it;
//! each of the three is a case, in nanoseconds of the thread's CPU time for each page. Both sides
//! make the 513 tables that they need while they map. Quire also frees them while it unmaps; the
//! other crate keeps them until the whole tree is dropped, outside of the measured time. Neither
//! flushes: on a host the other crate's flush does nothing, and the `Hardware` here does nothing
//! either.
//!
//! Not in the comparison: Quire locks each table that it changes and counts its entries, so that
//! several CPUs can share it; the other crate's tree has one owner.

use std::cell::RefCell;

use memory_addr::{PhysAddr, VirtAddr};
use page_table_multiarch::x86_64::X64PageTable;
use page_table_multiarch::{MappingFlags, PagingHandler};
use quire::arch::{Arch, Attrs, X86_64};
use quire::hw::{
    Chosen, DirectMap, Flush, Hardware, HasMemory, Memory, MemoryTypes, Profile, Ram, Reuse,
};
use quire::inject::{Gather, Phys, Tables, Target};
use quire::phys::{CpuCache, Slot, Zone};
use quire::tags::Tag;
use quire::units::{Asid, CpuId, FrameSpan, Order, PageSpan, Pfn, Prot, Vpn};
use rustix::time::{ClockId, clock_gettime};

use crate::report::Report;

/// 1 GiB.
const PAGES: u64 = 1 << 18;
const START: Vpn = Vpn::new(1 << 20);
/// The mapped memory; no code accesses it. It is one frame off alignment, so no larger leaf fits.
const FRAME: Pfn = Pfn::new((1 << 24) + 1);
/// RAM for tables.
const RAM_BYTES: usize = 8 << 20;
const PAGE_BYTES: usize = 4096;
const CPU: CpuId = CpuId::new(0);

/// The times of one round: mapping, protecting, unmapping.
type Times = [u64; 3];

/// Nanoseconds that this thread has run.
fn now() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Runs the three steps and times each.
fn timed(steps: [&mut dyn FnMut(); 3]) -> Times {
    steps.map(|step| {
        let began = now();
        step();
        now() - began
    })
}

/// Hardware that consists of memory alone.
struct Board<'r> {
    ram: Ram<DirectMap<'r>>,
}

impl<'r> HasMemory for Board<'r> {
    type Memory = Ram<DirectMap<'r>>;

    fn memory(&self) -> &Self::Memory {
        &self.ram
    }
}

impl Hardware for Board<'_> {
    fn flush(&self, _: &Flush<'_>) {}

    fn publish_code(&self, _: FrameSpan) {}

    fn cpu(&self) -> CpuId {
        CPU
    }

    fn profile(&self) -> Profile {
        Profile { contiguous: true, memory_types: MemoryTypes::ENTRIES, ..Profile::BASE }
    }
}

/// A round of Quire. The leaves are young and dirty; otherwise the hardware could change them.
fn quire(board: &Board<'_>, phys: &Phys<'_>) -> Times {
    let frame = || {
        let run = phys.alloc(CPU, Order::ZERO).expect("RAM for the tables");
        board.clear(&run, 0..1, Reuse::Soon);
        run
    };
    let tables = Tables::<X86_64, _>::found(board, phys.meta(), frame());
    let span = PageSpan::new(START, START.add(PAGES));
    let tag = Tag::new(Asid(1));
    let target = Target { tag: Some(&tag), root: tables.root() };
    let attrs = Attrs::user(Prot::RW) | Attrs::YOUNG | Attrs::DIRTY;
    let mut map = || {
        let (mut left, mut next, mut spare) = (span, FRAME, None);
        while tables.map(&mut left, &mut next, attrs, &mut spare).is_err() {
            spare = Some(frame());
        }
    };
    let mut protect = || {
        let mut gather = Gather::new();
        tables.protect(span, Prot::READ, &mut gather);
        gather.settle(phys, board, target);
    };
    let mut unmap = || {
        let mut gather = Gather::new();
        tables.take(span, &mut gather);
        tables.prune(span, PageSpan::new(Vpn::new(0), Vpn::new(X86_64::USER_PAGES)), &mut gather);
        gather.settle(phys, board, target);
    };
    let times = timed([&mut map, &mut protect, &mut unmap]);
    let mut gather = Gather::new();
    tables.free_root(&mut gather);
    gather.settle(phys, board, target);
    times
}

/// A frame's memory.
#[repr(align(4096))]
struct Page {
    _bytes: [u8; PAGE_BYTES],
}

thread_local! {
    /// Free frames.
    static FREE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Frames from the heap, which keeps freed frames; a physical address is the host's address.
struct Heap;

impl PagingHandler for Heap {
    fn alloc_frames(count: usize, _: usize) -> Option<PhysAddr> {
        assert_eq!(count, 1, "tables of this format are one frame each");
        let fresh = || {
            let page: *mut Page = Box::leak(Box::new(Page { _bytes: [0; PAGE_BYTES] }));
            page.expose_provenance()
        };
        let frame = FREE.with_borrow_mut(Vec::pop).unwrap_or_else(fresh);
        Some(PhysAddr::from(frame))
    }

    fn dealloc_frames(frame: PhysAddr, _: usize) {
        FREE.with_borrow_mut(|free| free.push(frame.as_usize()));
    }

    fn phys_to_virt(frame: PhysAddr) -> VirtAddr {
        VirtAddr::from(frame.as_usize())
    }
}

/// A round of the other crate.
fn multiarch() -> Times {
    let mut table = X64PageTable::<Heap>::try_new().expect("memory for the root");
    let start = VirtAddr::from(START.addr(X86_64::PAGE_SHIFT).get() as usize);
    let bytes = (PAGES as usize) * PAGE_BYTES;
    let frame = FRAME.addr(X86_64::PAGE_SHIFT).get() as usize;
    let to = |page: VirtAddr| PhysAddr::from(page.as_usize() - start.as_usize() + frame);
    let mut cursor = table.cursor();
    let rw = MappingFlags::USER | MappingFlags::READ | MappingFlags::WRITE;
    let read = MappingFlags::USER | MappingFlags::READ;
    let began = now();
    cursor.map_region(start, to, bytes, rw, false).expect("nothing is mapped yet");
    let mapped = now();
    cursor.protect_region(start, bytes, read).expect("all is mapped");
    let protected = now();
    cursor.unmap_region(start, bytes).expect("all is mapped");
    [mapped - began, protected - mapped, now() - protected]
}

/// Runs the comparison.
pub(crate) fn compare(report: &mut Report) {
    let mut memory = vec![1; RAM_BYTES + PAGE_BYTES];
    let start = memory.as_ptr().align_offset(PAGE_BYTES);
    let ram = &mut memory[start..start + RAM_BYTES];
    let (ram, frames) =
        DirectMap::new(ram, Pfn::new(0x100), X86_64::PAGE_SHIFT).expect("whole pages");
    let mut slots: Vec<Slot> = (0..frames.count()).map(|_| Slot::empty()).collect();
    let mut caches = [CpuCache::new()];
    let mut zones = [Zone::new(frames.span())];
    let phys = Phys::new(frames.start(), &mut slots, &mut caches, &mut zones).expect("sound");
    phys.add(frames).expect("the zone has all frames");
    let board = Board { ram: Ram::new(ram, Chosen::default_with_vectors()) };
    let mut taken = [(); 3].map(|()| [Vec::new(), Vec::new()]);
    for round in 0..=report.rounds() {
        let both = [quire(&board, &phys), multiarch()];
        // The first round finds cold caches and untouched memory.
        for (case, samples) in taken.iter_mut().enumerate().filter(|_| round > 0) {
            for (times, samples) in both.iter().zip(samples) {
                samples.push(times[case] as f64 / PAGES as f64);
            }
        }
    }
    for (case, [ours, theirs]) in ["map", "protect", "unmap"].iter().zip(taken) {
        let variants = vec![("quire", ours), ("page_table_multiarch", theirs)];
        report.samples("tables", &format!("{case}-1GiB-by-4KiB"), variants);
    }
}
