//! Roots, TLB flushes, and the features of the MMU.
//!
//! One root has both halves. A space's root goes into `satp` with its ASID; the kernel's own leaves
//! are global. Other CPUs are flushed by the firmware (SBI, RFENCE), which interrupts them in
//! machine mode: they obey wherever they are, also with their interrupts off.
//!
//! A CPU that enters a space fences first, whatever it holds of it. By the manual (SFENCE.VMA) a
//! store to a table is ordered before this CPU's walks by such a fence alone, and a CPU that
//! changed a table has flushed only those that it saw in the space. So a CPU that left is in no
//! space, and is not interrupted for it.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use quire::arch::Arch;
use quire::hw::extent::Backend;
use quire::hw::{Chosen, Flush, MemoryTypes, Pieces, Profile};
use quire::tags::Entered;
use quire::units::{FrameSpan, PageSpan, Pfn, Vpn};

use super::{DIRECT, Format, cpu};

/// `satp`: the mode of the format.
pub(super) const MODE: u64 = Format::LEVELS.len() as u64 + 5;
const MODE_AT: u32 = 60;
const ASID_AT: u32 = 44;
const ASID_MASK: u64 = (1 << Format::ASID_BITS) - 1;

/// More invalidations than this cost more than losing all of the space's translations.
const PIECES_MOST: u64 = 64;

/// Words of a table, and the first that is the kernel's.
const WORDS: usize = 512;
const KERNEL_FIRST: usize = WORDS / 2;

/// The kernel's root, by physical address.
static KERNEL_ROOT: AtomicU64 = AtomicU64::new(0);

/// How many ASIDs the CPUs have, once the kernel has its final root.
static ASIDS: AtomicU64 = AtomicU64::new(1);

unsafe extern "C" {
    static __image_start: u8;
    static __image_end: u8;
}

/// The physical bytes of the image: start and length.
pub(super) fn image() -> (u64, u64) {
    let physical = |place: *const u8| place.addr() as u64 - DIRECT;
    let (start, end) = (physical(&raw const __image_start), physical(&raw const __image_end));
    (start, end - start)
}

/// From now on the kernel's half is under `root`. To be called before
/// [`start_cpus`](super::start_cpus), and while no space is entered.
pub fn kernel_root(root: Pfn) {
    KERNEL_ROOT.store(root.get() << Format::PAGE_SHIFT, Ordering::Release);
    set_root(root.get() << Format::PAGE_SHIFT, ASID_MASK);
    ASIDS.store((satp() >> ASID_AT & ASID_MASK) + 1, Ordering::Relaxed);
    leave(true);
    flush_own();
}

/// How many ASIDs there are. Bits that a CPU lacks read as zero (*satp Register*); those that it
/// has are the low ones.
pub fn tags() -> u32 {
    ASIDS.load(Ordering::Relaxed) as u32
}

fn satp() -> u64 {
    let value;
    // SAFETY: reads a register.
    unsafe { asm!("csrr {}, satp", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// Words of a new space's root that are the kernel's, with their places.
pub fn root_template() -> impl Iterator<Item = (usize, u64)> {
    let root = (DIRECT + KERNEL_ROOT.load(Ordering::Acquire)) as *const u64;
    // SAFETY: the kernel's root table; its words never change.
    let words = (KERNEL_FIRST..WORDS).map(move |at| (at, unsafe { root.add(at).read() }));
    words.filter(|(_, word)| *word != 0)
}

/// Physical spans of devices, addresses half-open: the kernel's root maps them at [`DIRECT`].
pub fn devices() -> [(u64, u64); 1] {
    [(0, 1 << 31)]
}

/// Makes the space under `root` the current one of this CPU.
pub fn enter(root: Pfn, entered: Entered) {
    let asid = entered.asid.0;
    if asid != 0 && entered.must_flush {
        flush_own();
    }
    set_root(root.get() << Format::PAGE_SHIFT, asid.into());
    if asid == 0 || entered.joined {
        flush_space(asid);
    }
}

/// Makes no space the current one of this CPU: ASID 0, with the kernel's root. No space has that
/// ASID unless all have it.
pub fn leave(keeps: bool) {
    set_root(KERNEL_ROOT.load(Ordering::Acquire), 0);
    if !keeps {
        flush_space(0);
    }
}

fn set_root(address: u64, asid: u64) {
    let frame = address >> Format::PAGE_SHIFT;
    let value = MODE << MODE_AT | asid << ASID_AT | frame;
    // SAFETY: a root whose upper half maps the kernel as the present one does.
    unsafe { asm!("csrw satp, {}", in(reg) value, options(nostack, preserves_flags)) };
}

/// Drops all translations of this CPU, the kernel's too.
pub(super) fn flush_own() {
    // SAFETY: losing translations changes nothing but time.
    unsafe { asm!("sfence.vma", options(nostack, preserves_flags)) };
}

/// Nothing: stores to tables are releases, so that walkers see them in their order, and a walk that
/// is too early ends in a fault that finds its entry, and is answered with a flush.
#[inline]
pub fn publish() {}

/// Makes what was written to frames visible to instruction fetches of all CPUs. The instruction
/// names no address.
pub fn publish_code(_: FrameSpan) {
    fence_fetches();
}

/// Makes all that was written visible to instruction fetches of all CPUs.
pub fn fence_fetches() {
    fence(Ordering::SeqCst);
    // SAFETY: it orders this CPU's instruction fetches after its stores.
    unsafe { asm!("fence.i", options(nostack, preserves_flags)) };
    cpu::all_others(|harts| {
        let done = sbi_rt::remote_fence_i(harts);
        assert!(done.is_ok(), "the firmware does not fence: {done:?}");
    });
}

/// The features that this machine's MMUs have.
pub fn profile() -> Profile {
    let features = cpu::features();
    Profile {
        contiguous: features.folds,
        memory_types: match features.types {
            true => MemoryTypes::ENTRIES,
            false => MemoryTypes::PLATFORM,
        },
        ..Profile::BASE
    }
}

/// The ways to clear memory: Zicboz alone, where it is. The library would rather have stores.
pub fn clears() -> Chosen {
    let block = cpu::features().clear_block_bytes;
    // SAFETY: the device tree says that the CPUs have the instruction and its block's size; the
    // firmware lets the supervisor use all that the tree names.
    let blocks = block.and_then(|bytes| unsafe { Backend::zicboz(bytes) });
    blocks.map_or_else(Chosen::default_for_cpu, |blocks| Chosen::among(&[blocks]))
}

/// Drops translations on all CPUs of `flush.cpus`, and returns when it is done.
pub fn flush(flush: &Flush<'_>) {
    // Changes of the tables come before the question which CPUs are in the space: one that enters
    // it later reads the changed tables.
    fence(Ordering::SeqCst);
    // A fence with an address orders leaves alone.
    let pieces = flush.pages.filter(|pieces| !flush.tables && pieces.count() <= PIECES_MOST);
    let asid = flush.asid.0;
    let is_own = cpu::others(flush.cpus, |harts| {
        let (start, bytes) = pieces.map_or((0, usize::MAX), |pieces| {
            let PageSpan { start, end } = pieces.span();
            let bytes = end.offset_from(start) << Format::PAGE_SHIFT;
            (address(start) as usize, bytes as usize)
        });
        let done = sbi_rt::remote_sfence_vma_asid(harts, start, bytes, asid.into());
        assert!(done.is_ok(), "the firmware does not flush: {done:?}");
    });
    if is_own {
        match pieces {
            Some(pieces) => flush_pieces(asid, pieces),
            None => flush_space(asid),
        }
    }
}

fn address(page: Vpn) -> u64 {
    page.addr(Format::PAGE_SHIFT).get()
}

fn flush_space(asid: u16) {
    let asid = u64::from(asid);
    // SAFETY: losing translations changes nothing but time.
    unsafe { asm!("sfence.vma zero, {}", in(reg) asid, options(nostack, preserves_flags)) };
}

fn flush_pieces(asid: u16, pieces: Pieces) {
    let asid = u64::from(asid);
    for start in pieces.starts() {
        // SAFETY: losing translations changes nothing but time.
        unsafe {
            asm!("sfence.vma {}, {}", in(reg) address(start), in(reg) asid,
                 options(nostack, preserves_flags));
        }
    }
}
