//! The space that this CPU translates by.
//!
//! The upper half of every root table is the kernel's, and the same in all. Where the CPU tags
//! translations (PCID), those of a space that is left stay; else `CR3` drops them.

use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use quire::arch::Arch;
use quire::tags::Entered;
use quire::units::Pfn;
use raw_cpuid::CpuId as Features;
use x86_64::registers::control::{Cr4, Cr4Flags};

use super::{DIRECT, Format, KERNEL_HALF};

/// The physical address of the kernel's root table.
static KERNEL: AtomicU64 = AtomicU64::new(0);
static TAGGED: AtomicBool = AtomicBool::new(false);

/// With this bit `CR3` keeps what is tagged with the new space's number.
const KEEP: u64 = 1 << 63;

/// The first entry of a root table that is the kernel's.
const FIRST: usize = (KERNEL_HALF >> 39 & 511) as usize;

fn set(value: u64) {
    // SAFETY: a root table; its upper half maps the kernel as the present one does.
    unsafe { asm!("mov cr3, {}", in(reg) value, options(nostack, preserves_flags)) };
}

/// The value of `CR3`.
pub(super) fn current() -> u64 {
    let value: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr3", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// Whether translations are tagged.
pub(super) fn is_tagged() -> bool {
    TAGGED.load(Ordering::Relaxed)
}

/// From now on this CPU uses the kernel's final tables.
pub fn kernel_root(root: Pfn) {
    let address = root.get() << 12;
    KERNEL.store(address, Ordering::Relaxed);
    set(address);
    let features = Features::new();
    let has_pcid = features.get_feature_info().is_some_and(|f| f.has_pcid());
    let has_invpcid = features.get_extended_feature_info().is_some_and(|f| f.has_invpcid());
    let tagged = has_pcid && has_invpcid;
    // SAFETY: `CR3` names tag 0, as SDM volume 3A §4.10.1 demands of it now.
    unsafe { Cr4::update(|flags| flags.set(Cr4Flags::PCID, tagged)) };
    TAGGED.store(tagged, Ordering::Relaxed);
}

/// The kernel's root table, for CPUs that come later.
pub(super) fn kernel_table() -> Pfn {
    Pfn::new(KERNEL.load(Ordering::Relaxed) >> 12)
}

/// Entries of a root table that are the kernel's, with their places.
pub fn root_template() -> impl Iterator<Item = (usize, u64)> {
    let root = (DIRECT + KERNEL.load(Ordering::Relaxed)) as *const u64;
    // SAFETY: the kernel's root table; its words never change.
    (FIRST..512).map(move |at| (at, unsafe { root.add(at).read() }))
}

/// How many tags there are.
pub fn tags() -> u32 {
    if is_tagged() { 1 << Format::ASID_BITS } else { 1 }
}

/// Makes a space the current one. Its translations are kept unless a flush came while this CPU was
/// elsewhere. Those under tag 0 are never kept: it is the tag of all spaces where they have none of
/// their own.
pub fn enter(root: Pfn, entered: Entered) {
    let tag = u64::from(entered.asid.0);
    if tag != 0 && entered.must_flush {
        drop_all();
    }
    let keeps = tag != 0 && !entered.joined;
    set(root.get() << 12 | tag | if keeps { KEEP } else { 0 });
}

/// Makes no space the current one.
pub fn leave(keeps: bool) {
    set(KERNEL.load(Ordering::Relaxed) | if keeps && is_tagged() { KEEP } else { 0 });
}

/// Drops this CPU's translations of all tags, but for global ones. Once for each generation of
/// tags.
#[cold]
fn drop_all() {
    let nothing = [0_u64; 2];
    // SAFETY: losing translations changes nothing but time; the CPU has the instruction where
    // translations are tagged.
    unsafe {
        asm!("invpcid {}, [{}]", in(reg) 3_u64, in(reg) &nothing,
             options(nostack, readonly, preserves_flags));
    }
}
