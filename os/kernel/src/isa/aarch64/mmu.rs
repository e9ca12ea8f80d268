//! Roots, TLB flushes, and the features of the MMU.
//!
//! A program's root goes into TTBR0 with its ASID, the kernel's into TTBR1. Other CPUs hear of
//! flushes by broadcast (the `is` forms): they need no interrupt for it.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

use quire::arch::Arch;
use quire::hw::{Flush, MemoryTypes, Pieces, Profile, Transitions};
use quire::tags::Entered;
use quire::units::{PageSpan, Pfn};

use super::{DIRECT, Format, cpu, read_register, write_register};
use crate::isa::taken::{self, Reason};

/// More invalidations than this cost more than losing all of the space's translations.
const PIECES_MOST: u64 = 512;

/// From this number of pages on, one instruction for a range is tried first.
const RANGE_FROM: u64 = 4;

/// Unit of a range of scale 0, in pages: log2. Each scale adds [`RANGE_STEP`].
const RANGE_UNIT: u32 = 1;
const RANGE_STEP: u32 = 5;
/// Units in one range at most.
const RANGE_UNITS: u64 = 32;
/// The largest scale.
const RANGE_SCALE: u32 = 3;

/// A table without entries: the root of the programs' half while no program is there, and of the
/// kernel's for a moment while its root changes.
#[repr(C, align(4096))]
struct Empty([u64; 512]);

static EMPTY: Empty = Empty([0; 512]);

/// The kernel's root, by physical address; 0 while it is the boot tables'.
static KERNEL_ROOT: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    static __boot_root: u8;
    static __image_start: u8;
    static __image_end: u8;
}

/// The physical address of something in the image.
fn physical<T>(place: *const T) -> u64 {
    place.addr() as u64 - DIRECT
}

/// The physical bytes of the image: start and length.
pub(super) fn image() -> (u64, u64) {
    let (start, end) = (physical(&raw const __image_start), physical(&raw const __image_end));
    (start, end - start)
}

/// The root that another CPU begins with, by physical address.
pub(super) fn kernel_root_address() -> u64 {
    match KERNEL_ROOT.load(Ordering::Acquire) {
        0 => physical(&raw const __boot_root),
        root => root,
    }
}

/// From now on the kernel's half is under `root`. To be called before
/// [`start_cpus`](super::start_cpus), and while no space is entered.
///
/// The image is mapped in other sizes there than at boot, so the tables may not simply be
/// exchanged (§D8.16, break-before-make): for a moment this runs in the identity map, and the
/// kernel's half is empty.
///
/// # Panics
/// When the root is not below 2^48.
pub fn kernel_root(root: Pfn) {
    let address = root.get() << Format::PAGE_SHIFT;
    assert!(address >> 48 == 0, "the kernel's root is out of reach: {address:#x}");
    KERNEL_ROOT.store(address, Ordering::Release);
    let identity = physical(replace_root as *const ());
    publish();
    // SAFETY: the boot tables map the image at its physical address; `replace_root` touches no
    // memory while the kernel's half is empty, and interrupts are off.
    unsafe {
        asm!(
            "mrs    {daif}, daif",
            "msr    daifset, #0xf",
            "msr    ttbr0_el1, {boot}",
            "isb",
            "blr    {identity}",
            "msr    ttbr0_el1, x1",
            "isb",
            "tlbi   vmalle1",
            "dsb    nsh",
            "isb",
            "msr    daif, {daif}",
            daif = out(reg) _,
            boot = in(reg) physical(&raw const __boot_root),
            identity = in(reg) identity,
            in("x0") address,
            in("x1") physical(&raw const EMPTY),
            out("x30") _,
            options(nostack),
        );
    }
}

/// Puts the root at x0 into TTBR1, by way of the empty one at x1. Runs in the identity map.
///
/// # Safety
/// Runs at its physical address, with interrupts off; both roots are valid.
#[unsafe(naked)]
unsafe extern "C" fn replace_root() {
    core::arch::naked_asm!(
        "msr    ttbr1_el1, x1",
        "isb",
        "tlbi   vmalle1",
        "dsb    nsh",
        "isb",
        "msr    ttbr1_el1, x0",
        "isb",
        "ret",
    )
}

/// Nothing: the halves have a root each.
pub fn root_template() -> impl Iterator<Item = (usize, u64)> {
    core::iter::empty()
}

/// Physical spans of devices, addresses half-open: the kernel's root maps them at [`DIRECT`], as
/// devices.
pub fn devices() -> [(u64, u64); 1] {
    [(0, 1 << 30)]
}

/// How many ASIDs there are: ID_AA64MMFR0_EL1.ASIDBits is 2 where they have 16 bits, and then boot
/// has chosen these.
pub fn tags() -> u32 {
    let has_all = read_register!("id_aa64mmfr0_el1") >> 4 & 0xf == 2;
    1 << if has_all { Format::ASID_BITS } else { 8 }
}

/// Makes the space under `root` the current one of this CPU.
///
/// This CPU is listed as one that runs in the space before it walks the tables: a CPU that changes
/// them sees that and flushes here, or this CPU sees the change.
pub fn enter(root: Pfn, entered: Entered) {
    let tag = u64::from(entered.asid.0);
    if tag != 0 && entered.must_flush {
        flush_own();
    }
    if tag != 0 && entered.joined {
        // A flush came while this CPU was elsewhere, and only named the CPUs in the space.
        flush_space(tag << 48, Scope { own: true, leaves: false });
        // SAFETY: a barrier.
        unsafe { asm!("dsb nsh", options(nostack, preserves_flags)) };
    }
    // SAFETY: a barrier.
    unsafe { asm!("dsb ishst", options(nostack, preserves_flags)) };
    set_user_root(tag << 48 | root.get() << Format::PAGE_SHIFT);
    if tag == 0 {
        flush_own();
    }
}

/// Makes no space the current one of this CPU: ASID 0 with an empty table. No space has that ASID
/// unless all have it.
pub fn leave(keeps: bool) {
    set_user_root(physical(&raw const EMPTY));
    if !keeps {
        flush_own();
    }
}

fn set_user_root(value: u64) {
    // SAFETY: the kernel does not depend on the programs' half; its tables are the library's or
    // the empty one.
    unsafe { write_register!("ttbr0_el1", value) };
    // SAFETY: a barrier.
    unsafe { asm!("isb", options(nostack, preserves_flags)) };
}

/// Drops all translations of this CPU, the kernel's too.
#[cold]
pub(super) fn flush_own() {
    // SAFETY: losing translations changes nothing but time.
    unsafe { asm!("dsb nshst", "tlbi vmalle1", "dsb nsh", "isb", options(nostack)) };
}

/// Orders stores to tables before the walks of all CPUs, this one's included.
pub fn publish() {
    // SAFETY: barriers.
    unsafe { asm!("dsb ishst", "isb", options(nostack, preserves_flags)) };
}

/// The features that this machine's MMUs have.
pub fn profile() -> Profile {
    let features = cpu::features();
    Profile {
        transitions: if features.relaxed { Transitions::BbmLevel2 } else { Transitions::Base },
        contiguous: true,
        memory_types: MemoryTypes::ENTRIES,
        ..Profile::BASE
    }
}

/// One `tlbi` with an operand, in four forms: for all CPUs or this one, with or without what CPUs
/// keep of upper tables.
macro_rules! invalidate {
    ($operand:expr, $scope:expr, $all:literal, $all_leaves:literal, $own:literal,
     $own_leaves:literal) => {{
        let operand: u64 = $operand;
        if !$scope.own {
            taken::count(Reason::Flush);
        }
        // SAFETY: losing translations changes nothing but time.
        unsafe {
            match ($scope.own, $scope.leaves) {
                (false, false) => asm!(concat!($all, ", {}"), in(reg) operand, options(nostack)),
                (false, true) => {
                    asm!(concat!($all_leaves, ", {}"), in(reg) operand, options(nostack))
                }
                (true, false) => asm!(concat!($own, ", {}"), in(reg) operand, options(nostack)),
                (true, true) => {
                    asm!(concat!($own_leaves, ", {}"), in(reg) operand, options(nostack))
                }
            }
        }
    }};
}

/// The translations that go: of which space, and which.
#[derive(Clone, Copy)]
struct Scope {
    /// This CPU's only.
    own: bool,
    /// Of leaves only, not of upper tables.
    leaves: bool,
}

/// Drops translations on all CPUs of `flush.cpus`, and returns when it is done.
pub fn flush(flush: &Flush<'_>) {
    // SAFETY: barriers, here and below. The stores to tables come before the invalidation, and
    // before the look at the CPUs that run in the space: see `enter`.
    unsafe { asm!("dsb ishst", options(nostack, preserves_flags)) };
    let scope = Scope { own: flush.cpus.only(cpu::cpu()), leaves: !flush.tables };
    let asid = u64::from(flush.asid.0) << 48;
    match flush.pages {
        Some(pieces) => flush_pieces(asid, pieces, scope),
        None => flush_space(asid, scope),
    }
    if scope.own {
        // SAFETY: see above.
        unsafe { asm!("dsb nsh", "isb", options(nostack, preserves_flags)) };
    } else {
        // SAFETY: see above.
        unsafe { asm!("dsb ish", "isb", options(nostack, preserves_flags)) };
    }
}

fn flush_space(asid: u64, scope: Scope) {
    invalidate!(asid, scope, "tlbi aside1is", "tlbi aside1is", "tlbi aside1", "tlbi aside1");
}

fn flush_pieces(asid: u64, pieces: Pieces, scope: Scope) {
    let span = pieces.span();
    let ranged = pieces.count() > RANGE_FROM && cpu::features().ranges;
    if ranged && flush_range(asid, span, scope) {
        return;
    }
    if pieces.count() > PIECES_MOST {
        return flush_space(asid, scope);
    }
    for start in pieces.starts() {
        let operand = asid | start.get();
        invalidate!(operand, scope, "tlbi vae1is", "tlbi vale1is", "tlbi vae1", "tlbi vale1");
    }
}

/// One instruction for the pages of `span` and perhaps some behind them (FEAT_TLBIRANGE). False
/// when they are more than it can name.
fn flush_range(asid: u64, span: PageSpan, scope: Scope) -> bool {
    let (start, pages) = (span.start.get(), span.count());
    let unit = |scale: u32| 1 << (scale * RANGE_STEP + RANGE_UNIT);
    let Some(scale) = (0..=RANGE_SCALE).find(|&scale| pages <= RANGE_UNITS * unit(scale)) else {
        return false;
    };
    let number = pages.div_ceil(unit(scale)) - 1;
    let granule = 1 << 46; // 4 KiB
    let operand = asid | granule | u64::from(scale) << 44 | number << 39 | start;
    // RVAE1IS, RVALE1IS, RVAE1, RVALE1
    invalidate!(
        operand,
        scope,
        "sys #0, c8, c2, #1",
        "sys #0, c8, c2, #5",
        "sys #0, c8, c6, #1",
        "sys #0, c8, c6, #5"
    );
    true
}
