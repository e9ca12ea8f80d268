//! Dropping translations, here and on other CPUs.
//!
//! A CPU that needs a flush writes a request, interrupts the others, flushes its own TLB meanwhile,
//! and waits until all have answered. Interrupts stay on, so that two CPUs that flush at once serve
//! each other.
//!
//! ```text
//!   requests[me]: what ──► waiting = CPUs ──► interrupts ──► own flush ──► waiting == 0?
//!                              each CPU: serve, then clears its bit ──────────┘
//! ```

use core::arch::asm;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use quire::hw::Flush;
use quire::units::CpuSet;

use super::{apic, local, space};
use crate::isa::MAX_CPUS;

/// Up to this number of pages are invalidated one by one; for more, the whole space is flushed.
const MOST: u64 = 32;

/// One CPU's request to others. The words are valid while `waiting` is not zero.
#[repr(align(128))]
struct Request {
    /// A bit for each CPU that has not answered.
    waiting: AtomicU32,
    /// The address of the root table with the space's tag; 0 asks for a barrier alone.
    space: AtomicU64,
    start: AtomicU64,
    /// How many blocks; 0 is all of the space.
    count: AtomicU64,
    /// Bytes from one block to the next.
    step: AtomicU64,
}

static REQUESTS: [Request; MAX_CPUS] = [const {
    Request {
        waiting: AtomicU32::new(0),
        space: AtomicU64::new(0),
        start: AtomicU64::new(0),
        count: AtomicU64::new(0),
        step: AtomicU64::new(0),
    }
}; MAX_CPUS];

/// A flush request, as numbers.
#[derive(Clone, Copy)]
struct Drop {
    space: u64,
    start: u64,
    count: u64,
    step: u64,
}

impl Drop {
    fn of(flush: &Flush<'_>) -> Self {
        let space = flush.root.get() << 12 | u64::from(flush.asid.0);
        match flush.pages.filter(|pieces| pieces.count() <= MOST) {
            Some(pieces) => Self {
                space,
                start: pieces.span().start.get() << 12,
                count: pieces.count(),
                step: pieces.stride().pages() << 12,
            },
            None => Self { space, start: 0, count: 0, step: 0 },
        }
    }

    /// Drops it on this CPU.
    fn obey(self) {
        if self.space == 0 {
            return;
        }
        let current = space::current() & !0xfff & !(1 << 63) == self.space & !0xfff;
        match (space::is_tagged(), current) {
            (_, true) if self.count > 0 => self.each(|at| {
                // SAFETY: dropping a translation changes nothing but time. All intermediate
                // entries of the space go as well (SDM volume 3A, §4.10.4.1).
                unsafe { asm!("invlpg [{}]", in(reg) at, options(nostack, preserves_flags)) };
            }),
            (true, _) if self.count > 0 => self.each(|at| self.by_tag(0, at)),
            (true, _) => self.by_tag(1, 0),
            (false, true) => reload(),
            // Left, and all of it dropped when it was.
            (false, false) => {}
        }
    }

    fn each(self, drop: impl Fn(u64)) {
        (0..self.count).for_each(|block| drop(self.start + block * self.step));
    }

    /// `invpcid`: kind 0 drops one address, kind 1 all of a tag.
    fn by_tag(self, kind: u64, address: u64) {
        let what = [self.space & 0xfff, address];
        // SAFETY: as above; the CPU has the instruction where translations are tagged.
        unsafe {
            asm!("invpcid {}, [{}]", in(reg) kind, in(reg) &what,
                 options(nostack, readonly, preserves_flags));
        }
    }
}

/// Drops all that is not global.
fn reload() {
    // SAFETY: writes back what was read.
    unsafe {
        asm!("mov {at}, cr3", "mov cr3, {at}", at = out(reg) _,
             options(nostack, preserves_flags));
    }
}

/// Flushes the pages of `flush` on all its CPUs. Changes of the tables come before the question
/// which CPUs are in the space: the library has put a fence between them. A CPU that enters the
/// space later reads the changed tables.
pub fn flush(flush: &Flush<'_>) {
    ask(flush.cpus, Drop::of(flush));
}

/// A barrier on each of `cpus`.
pub fn serialize_others(cpus: &CpuSet) {
    fence(Ordering::SeqCst);
    ask(cpus, Drop { space: 0, start: 0, count: 0, step: 0 });
}

fn ask(cpus: &CpuSet, what: Drop) {
    let me = local::cpu();
    if cpus.only(me) {
        return what.obey();
    }
    let request = &REQUESTS[me.index()];
    // The set is read once: CPUs come and go meanwhile, and each CPU that this one waits for must
    // be interrupted. One that has gone answers all the same.
    let others = cpus.iter().filter(|cpu| *cpu != me);
    let mask = others.fold(0, |mask, cpu| mask | 1_u32 << cpu.index());
    request.space.store(what.space, Ordering::Relaxed);
    request.start.store(what.start, Ordering::Relaxed);
    request.count.store(what.count, Ordering::Relaxed);
    request.step.store(what.step, Ordering::Relaxed);
    request.waiting.store(mask, Ordering::Release);
    let mut left = mask;
    while left != 0 {
        apic::send(local::apic_of(left.trailing_zeros() as usize), apic::FLUSH);
        left &= left - 1;
    }
    if cpus.contains(me) {
        what.obey();
    }
    while request.waiting.load(Ordering::Acquire) != 0 {
        core::hint::spin_loop();
    }
}

/// Serves the requests of other CPUs.
pub(super) fn serve() {
    let own = 1_u32 << local::cpu().index();
    for request in &REQUESTS {
        if request.waiting.load(Ordering::Acquire) & own != 0 {
            let what = Drop {
                space: request.space.load(Ordering::Relaxed),
                start: request.start.load(Ordering::Relaxed),
                count: request.count.load(Ordering::Relaxed),
                step: request.step.load(Ordering::Relaxed),
            };
            what.obey();
            request.waiting.fetch_and(!own, Ordering::AcqRel);
        }
    }
}

/// Stores to tables are seen by walkers in the order of the program: nothing to do.
#[inline]
pub fn publish() {}
