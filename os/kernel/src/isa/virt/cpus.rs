//! CPUs together: their start, barriers that one asks of others, and the notes that interrupts
//! leave for their CPU.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

use quire::units::{CpuId, CpuSet};
use spin::Once;

use crate::isa::{MAX_CPUS, cpu, cpu_count};

/// The function that the other CPUs call.
static MAIN: Once<fn(CpuId) -> !> = Once::new();

/// How many CPUs run.
static BEGUN: AtomicUsize = AtomicUsize::new(1);

/// How often a barrier was asked of each CPU, and up to which of these it has made them.
static ASKED: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
static MADE: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];

/// Whether an interrupt was served in the kernel and not answered yet.
static KICKED: [AtomicBool; MAX_CPUS] = [const { AtomicBool::new(false) }; MAX_CPUS];

/// Calls `start` for each CPU but the first, and returns when all have begun to run `main`.
pub(in crate::isa) fn start(main: fn(CpuId) -> !, start: impl Fn(usize)) {
    MAIN.call_once(|| main);
    let count = cpu_count();
    (1..count).for_each(start);
    while BEGUN.load(Ordering::Acquire) < count {
        core::hint::spin_loop();
    }
}

/// This CPU, set up by now, does what it was started for.
pub(in crate::isa) fn begun() -> ! {
    BEGUN.fetch_add(1, Ordering::AcqRel);
    let Some(main) = MAIN.get() else { panic!("a CPU runs that was never started") };
    main(cpu())
}

/// A full barrier on each of `cpus`, this one included, between what the caller did before and
/// what it does afterwards. `ask` interrupts a CPU so that it calls [`make_barrier`]. With
/// interrupts on, as others may want the same of this CPU.
pub(in crate::isa) fn serialize(cpus: &CpuSet, ask: impl Fn(CpuId)) {
    fence(Ordering::SeqCst);
    let (count, own) = (cpu_count(), cpu());
    let mut wanted = [0; MAX_CPUS];
    for cpu in cpus.iter().filter(|cpu| cpu.index() < count && *cpu != own) {
        wanted[cpu.index()] = ASKED[cpu.index()].fetch_add(1, Ordering::SeqCst) + 1;
        ask(cpu);
    }
    for (made, &wanted) in MADE.iter().zip(&wanted) {
        while made.load(Ordering::SeqCst) < wanted {
            core::hint::spin_loop();
        }
    }
    fence(Ordering::SeqCst);
}

/// The interrupt that asks for a barrier: it serves each CPU that asked before this reads the
/// number.
pub(in crate::isa) fn make_barrier() {
    let number = cpu().index();
    let asked = ASKED[number].load(Ordering::SeqCst);
    fence(Ordering::SeqCst);
    MADE[number].fetch_max(asked, Ordering::SeqCst);
}

/// Leaves the note that an interrupt was served in the kernel.
pub(in crate::isa) fn kick() {
    KICKED[cpu().index()].store(true, Ordering::Relaxed);
}

/// Takes the note. With interrupts off.
#[inline]
pub(in crate::isa) fn take_kick() -> bool {
    let kicked = &KICKED[cpu().index()];
    // Only this CPU writes it, and its interrupts are off.
    let was = kicked.load(Ordering::Relaxed);
    if was {
        kicked.store(false, Ordering::Relaxed);
    }
    was
}
