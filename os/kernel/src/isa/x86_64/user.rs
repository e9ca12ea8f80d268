//! Copying between the kernel and the program that this CPU runs.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicBool, Ordering};

use raw_cpuid::CpuId as Features;
use x86_64::registers::control::{Cr4, Cr4Flags};

/// Whether the CPUs keep the kernel off program memory unless it says so (SMAP).
static GUARDED: AtomicBool = AtomicBool::new(false);

/// Switches SMEP and SMAP on, which keep the kernel from running or touching program memory by
/// mistake.
pub(super) fn init() {
    let features = Features::new();
    let Some(features) = features.get_extended_feature_info() else { return };
    // SAFETY: the kernel's own memory is not marked as the program's; `copy_user` lifts the guard.
    unsafe {
        Cr4::update(|flags| {
            flags.set(Cr4Flags::SUPERVISOR_MODE_EXECUTION_PROTECTION, features.has_smep());
            flags.set(Cr4Flags::SUPERVISOR_MODE_ACCESS_PREVENTION, features.has_smap());
        });
    }
    GUARDED.store(features.has_smap(), Ordering::Relaxed);
}

/// Copies `bytes` bytes where one side is program memory; how many were not copied, when a page
/// could not be brought in.
///
/// # Safety
/// The kernel's side is valid for that, and no Rust object that something else refers to is
/// written. The program's side is below `USER_END`, all of it.
pub unsafe fn copy_user(to: *mut u8, from: *const u8, bytes: usize) -> usize {
    let guarded = GUARDED.load(Ordering::Relaxed);
    // SAFETY: STAC and CLAC only where CPUID reports SMAP; the copy is the caller's promise.
    unsafe {
        if guarded {
            asm!("stac", options(nomem, nostack));
        }
        let left = copy_user_bytes(to, from, bytes);
        if guarded {
            asm!("clac", options(nomem, nostack));
        }
        left
    }
}

global_asm!(
    ".pushsection .text",
    "copy_user_bytes:",
    "mov rcx, rdx",
    ".globl copy_user_bytes, copy_user_moves, copy_user_after",
    "copy_user_moves: rep movsb",
    "copy_user_after: mov rax, rcx",
    "ret",
    ".popsection"
);

unsafe extern "C" {
    fn copy_user_bytes(to: *mut u8, from: *const u8, bytes: usize) -> usize;
    fn copy_user_moves();
    fn copy_user_after();
}

/// Whether the instruction at `rip` is the one that copies.
pub(super) fn is_copy(rip: u64) -> bool {
    rip == copy_user_moves as *const () as u64
}

/// Where to go on when a page cannot be brought in; `rcx` says how many bytes are left.
pub(super) fn after_copy() -> u64 {
    copy_user_after as *const () as u64
}
