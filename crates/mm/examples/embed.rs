//! The smallest embedder: a board with one CPU and 32 MiB of RAM.
//!
//! An embedder does three things, and this file shows all of them:
//!
//! 1. implement [`Hardware`] for a type of its own (`Board`);
//! 2. lend memory for the metadata, and hand the RAM over ([`Parts`], [`Mm::add`]);
//! 3. give each space a root with the kernel's entries (`root`), and call the manager for what
//!    programs do (`tour`).
//!
//! The board's RAM is a slice of ordinary memory, so that this runs anywhere, without privileges:
//!
//! ```text
//! cargo run -p quire-mm --example embed
//! ```

use std::error::Error;
use std::sync::atomic::Ordering;

use quire::arch::{Arch, Attrs, X86_64};
use quire::fault::SizePolicy;
use quire::hw::{
    Chosen, DirectMap, Flush, FrameRun, Hardware, HasMemory, Memory, MemoryTypes, Profile, Ram,
    Reuse,
};
use quire::phys::{CpuCache, Slot, Zone};
use quire::space::Request;
use quire::stats::{Counters, Event};
use quire::units::{Access, Asid, CpuId, FrameSpan, Order, PageSpan, Pfn, Prot, Vpn};
use quire::{FolioMap, Mm, Parts};

/// 32 MiB of RAM, its first frame at 1 MiB, as on a PC.
const RAM_BYTES: usize = 32 << 20;
const FIRST: Pfn = Pfn::new(0x100);
const PAGE_BYTES: usize = 1 << X86_64::PAGE_SHIFT;

/// The board. RAM is all at one place, so that a [`DirectMap`] does most of the work.
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
    /// A kernel executes INVLPG here, sends an IPI to the other CPUs in `flush.cpus`, and waits for
    /// them. This board has no MMU and therefore no translations: it only prints.
    fn flush(&self, flush: &Flush<'_>) {
        println!("  flush    {:?} on CPUs {:?}", flush.pages, flush.cpus);
    }

    /// Nothing on x86-64; on arm64 and riscv64, cleaning and invalidating of caches.
    fn publish_code(&self, _: FrameSpan) {}

    fn cpu(&self) -> CpuId {
        CpuId::new(0)
    }

    fn profile(&self) -> Profile {
        Profile { contiguous: true, memory_types: MemoryTypes::ENTRIES, ..Profile::BASE }
    }
}

type Manager<'m> = Mm<'m, X86_64, Board<'m>>;

/// The last entry of a table.
const LAST: usize = 511;

/// The kernel's table: it shows the first GiB of memory at the top of the address space, in one
/// leaf. A kernel on a machine maps its image, too, each part with its rights.
fn kernel_half(mm: &Manager<'_>) -> Result<FrameRun, quire::Error> {
    let attrs = Attrs::READ | Attrs::WRITE | Attrs::GLOBAL | Attrs::YOUNG | Attrs::DIRTY;
    let gib = Order::new((30 - X86_64::PAGE_SHIFT) as u8);
    table_with(mm, X86_64::leaf(Pfn::new(0), X86_64::leaf_level(gib), attrs))
}

/// A root for a space: zeroes, and the kernel's entry, without which no CPU could run under it.
fn root(mm: &Manager<'_>, kernel: &FrameRun) -> Result<FrameRun, quire::Error> {
    table_with(mm, X86_64::table(kernel.start()))
}

/// A table of zeroes but for its last entry.
fn table_with(mm: &Manager<'_>, last: u64) -> Result<FrameRun, quire::Error> {
    let run = mm.phys().alloc(Order::ZERO).ok_or(quire::Error::NoMemory(Order::ZERO))?;
    mm.hardware().clear(&run, 0..1, Reuse::Soon);
    mm.hardware().ram.words(&run)[LAST].store(last, Ordering::Relaxed);
    Ok(run.dirtied())
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let mut memory = vec![0; RAM_BYTES + PAGE_BYTES];
    let start = memory.as_ptr().align_offset(PAGE_BYTES);
    // `frames` is the right to all of RAM. It exists once; without it no code can write a frame.
    let ram = &mut memory[start..start + RAM_BYTES];
    let (ram, frames) = DirectMap::new_zeroed(ram, FIRST, X86_64::PAGE_SHIFT)?;
    // The ways to clear each size: defaults for this CPU; `quire::hw::calibrate` measures them.
    tour(Board { ram: Ram::new(ram, Chosen::default_with_vectors()) }, frames)
}

fn tour(board: Board<'_>, frames: FrameRun) -> Result<(), Box<dyn Error>> {
    // README: from here
    // The library has no heap: it borrows 32 bytes for each frame, and a little for each CPU.
    let mut slots: Vec<Slot> = (0..frames.count()).map(|_| Slot::empty()).collect();
    let (mut caches, counters) = ([CpuCache::new()], [Counters::new()]);
    let mut zones = [Zone::new(frames.span())];
    let parts = Parts::new(frames.start(), &mut slots, &mut caches, &counters, &mut zones);
    let mm = Manager::new(&board, parts)?;
    mm.add(frames)?;

    // The kernel has tables of its own, and they are under every root.
    let kernel = kernel_half(&mm)?;
    let free = mm.phys().free_frames();

    // Use folios of 64 KiB, which is order 4 in pages of 4 KiB, wherever they fit.
    mm.policy().set_sizes("64K:always", X86_64::PAGE_SHIFT)?;
    assert_eq!(mm.policy().size(Order::new(4)), SizePolicy::Always);

    // A process, over a root with the kernel's half; it goes into CR3. Areas lie in the window.
    let window = PageSpan::new(Vpn::new(0x1000), Vpn::new(0x8000));
    let (mut process, mut other) = (None, None);
    let space = mm.space_in(&mut process, root(&mm, &kernel)?, Asid(1), window)?;
    space.enter(CpuId::new(0));

    // mmap: 256 KiB to read and write. This only records the area; no memory is taken.
    let area = mm.map(space, &Request::anon(64))?;
    assert_eq!(mm.resident(space), 0);

    // The program touches page 5 of it, and the trap handler calls `fault`: it maps one zeroed
    // folio of 16 pages, and the program goes on. One fault instead of sixteen.
    let got = mm.fault(space, area.start.add(5), Access::Write)?;
    println!("  fault    {got:?}");
    assert_eq!(mm.resident(space), 16);

    // `populate` maps all of an area ahead of its use, without a fault for each folio.
    println!("  populate {:?}", mm.populate(space, area)?);

    // A child with the same contents: a write of either copies what the other still has.
    let child = mm.fork_in(&mut other, space, root(&mm, &kernel)?, Asid(2))?;
    println!("  fork     {:?}", mm.fault(child, area.start, Access::Write)?);
    mm.destroy_in(&mut other);

    // When `protect` returns, no CPU can write these pages any more: the flush is over.
    let middle = PageSpan::new(area.start.add(20), area.start.add(28));
    mm.protect(space, middle, Prot::READ)?;
    let refused = mm.fault(space, middle.start, Access::Write);
    println!("  fault    {}", refused.expect_err("a store to read-only pages"));

    // When `unmap` returns, its pages are gone. A folio stays while other pages of it are mapped.
    mm.unmap(space, PageSpan::new(area.start.add(8), area.start.add(24)))?;
    assert_eq!(mm.resident(space), 48);

    // The space's memory by folio size; and the events that led there.
    mm.spaces().folio_map(space, report);
    let totals = mm.totals();
    for event in [Event::Fault, Event::EntriesMade, Event::EntriesCleared, Event::Flush] {
        println!("  {:<16} {:>4}", event.name(), totals.event(event));
    }

    // The process ends: after one flush, all memory is free again.
    mm.destroy_in(&mut process);
    assert_eq!(mm.phys().free_frames(), free);
    // README: to here
    Ok(())
}

/// One line for each area: its pages and rights, and how many pages are in folios of each size.
fn report(map: &FolioMap) {
    print!("  area     {:?} {:?}:", map.area.span, map.area.prot);
    for (order, size) in map.sizes.iter().enumerate().filter(|(_, size)| size.pages() > 0) {
        let kib = Order::new(order as u8).bytes(X86_64::PAGE_SHIFT) >> 10;
        let (whole, part) = (size.aligned + size.unaligned, size.partial);
        print!(" {kib} KiB folios: {whole} pages in whole ones, {part} in parts;");
    }
    println!(" {} resident", map.resident());
}
