//! x86-64: booted by a PVH note, local APICs, a clock made of the TSC.
//!
//! Sources: Intel SDM volume 3A (paging, interrupts, APIC), AMD APM volume 2; for the boot
//! protocol, Xen's PVH documentation.

mod apic;
mod boot;
mod clock;
mod console;
mod context;
mod cpus;
mod disk;
mod flush;
mod local;
mod signal;
mod space;
mod traps;
mod user;
mod vdso;

use quire::arch::x86_64::X86;
use quire::arch::{Attrs, memory_slots};
use quire::hw::{Chosen, MemoryTypes, Profile};
use quire::units::FrameSpan;
use x86_64::instructions::port::Port;

pub use apic::{alarm, idle, interrupt};
pub use clock::{now, random, realtime, time_base};
pub use console::{put, take};
pub use context::Context;
pub use cpus::{clock_page, cpu_count, facts, start_cpus};
pub use disk::{DiskPort, disk, listen_to_disk, take_disk_news};
pub use flush::{flush, publish, serialize_others};
pub use local::cpu;
pub use signal::SIGNAL_STACK_BYTES;
pub use space::{enter, kernel_root, leave, root_template, tags};
pub use traps::run;
pub use user::copy_user;
pub use vdso::vdso;

/// The page-table format: four levels. The PAT has WB, WC and UC in these entries; boot writes it.
pub type Format = X86<4, { memory_slots(0, 1, 3) }>;

/// Where physical address 0 is visible.
pub const DIRECT: u64 = 0xffff_8000_0000_0000;

/// Where RAM begins. The firmware's tables in the first MiB may be read, too.
pub const RAM_START: u64 = 0;

/// Where the kernel's image runs: its physical address plus this.
pub const IMAGE: u64 = 0xffff_ffff_8000_0000;

/// The first address of the kernel's half.
pub const KERNEL_HALF: u64 = DIRECT;

/// The end of what a program may map. The last page of the lower half stays free, as on Linux: a
/// `syscall` at its very end would return to an address that is not canonical.
pub const USER_END: u64 = 0x7fff_ffff_f000;

/// Leaves of devices in the kernel's half name the memory type.
pub const DEVICE_FLAGS: Attrs = Attrs::DEVICE;

/// A CPU that leaves a space keeps its translations.
pub const KEEPS: bool = true;

/// The answer of `uname -m`.
pub const MACHINE: &str = "x86_64";

/// Physical addresses and lengths of devices that the kernel reaches through the direct map.
pub fn devices() -> impl Iterator<Item = (u64, u64)> {
    [(apic::IO_APIC, 0x1000), (apic::LOCAL_APIC, 0x1000)].into_iter().chain(disk::spans())
}

/// The features of the CPUs.
pub fn profile() -> Profile {
    Profile { contiguous: true, memory_types: MemoryTypes::ENTRIES, ..Profile::BASE }
}

/// The CPU's features in the auxiliary vector: `AT_HWCAP` (CPUID leaf 1, EDX) and `AT_HWCAP2`.
pub fn features() -> (u64, u64) {
    // SAFETY: every x86-64 CPU has the instruction and the leaf.
    #[allow(unused_unsafe)]
    let leaf = unsafe { core::arch::x86_64::__cpuid(1) };
    (leaf.edx.into(), 0)
}

/// The ways to clear memory.
pub fn clears() -> Chosen {
    Chosen::default_for_cpu()
}

/// Makes what was written to frames visible to instruction fetches: nothing to do.
#[inline]
pub fn publish_code(_: FrameSpan) {}

/// Ends the machine: by the emulator's exit device, or else by the keyboard controller's reset.
pub fn power_off(status: u8) -> ! {
    // SAFETY: the device, where it is, ends the emulator; elsewhere no device listens at this port.
    unsafe { Port::new(0xf4).write(u32::from(status)) };
    // SAFETY: asks the keyboard controller to reset the CPU: nothing of ours goes on after that.
    unsafe { Port::new(0x64).write(0xfe_u8) };
    loop {
        x86_64::instructions::interrupts::disable();
        x86_64::instructions::hlt();
    }
}

/// Tells the return addresses of the calling chain, innermost first.
pub fn frames(tell: &mut dyn FnMut(u64)) {
    let mut frame: u64;
    // SAFETY: reads a register.
    unsafe { core::arch::asm!("mov {}, rbp", out(reg) frame, options(nomem, nostack)) };
    for _ in 0..64 {
        if frame < IMAGE || !frame.is_multiple_of(8) || !local::on_stack(frame) {
            return;
        }
        // SAFETY: the address is aligned and on a kernel stack, which is always mapped.
        let [next, back] = unsafe { *(frame as *const [u64; 2]) };
        if back < IMAGE {
            return;
        }
        tell(back);
        frame = next;
    }
}
