//! Local APICs in x2APIC mode, and the one line of the I/O APIC that is used: the console's.
//!
//! Source: SDM volume 3A, chapter *APIC*; §10.12 for the registers as MSRs.

use quire::units::CpuId;
use raw_cpuid::CpuId as Features;
use x86_64::instructions::interrupts;
use x86_64::instructions::port::Port;
use x86_64::registers::model_specific::Msr;

use super::{DIRECT, clock, flush, local};

const TIMER: u8 = 0x20;
/// Another CPU wants translations dropped, or a barrier.
pub(super) const FLUSH: u8 = 0x21;
const WAKE: u8 = 0x22;
const CONSOLE: u8 = 0x24;
const SPURIOUS: u8 = 0xff;

/// The I/O APIC's registers.
pub(super) const IO_APIC: u64 = 0xfec0_0000;

const ID: u32 = 0x802;
const END: u32 = 0x80b;
const SPURIOUS_VECTOR: u32 = 0x80f;
const COMMAND: u32 = 0x830;
const TIMER_VECTOR: u32 = 0x832;
const TIMER_START: u32 = 0x838;
const TIMER_LEFT: u32 = 0x839;
const TIMER_DIVIDE: u32 = 0x83e;
const MASKED: u64 = 1 << 16;

fn read(register: u32) -> u64 {
    // SAFETY: a register of the local APIC, which `init` has put into x2APIC mode.
    unsafe { Msr::new(register).read() }
}

fn write(register: u32, value: u64) {
    // SAFETY: as above; what is written here is what the manual gives these registers.
    unsafe { Msr::new(register).write(value) }
}

/// Switches this CPU's APIC on; returns its number.
pub(super) fn init() -> u32 {
    let has_x2apic = Features::new().get_feature_info().is_some_and(|f| f.has_x2apic());
    assert!(has_x2apic, "this CPU has no x2APIC; QEMU has it with -cpu max");
    let mut base = Msr::new(0x1b);
    // SAFETY: IA32_APIC_BASE: enabled, x2APIC mode.
    unsafe { base.write(base.read() | 3 << 10) };
    write(SPURIOUS_VECTOR, 0x100 | u64::from(SPURIOUS));
    write(TIMER_DIVIDE, 0b1011);
    write(TIMER_VECTOR, u64::from(TIMER));
    write(TIMER_START, 0);
    read(ID) as u32
}

/// Sends the console's interrupt (line 4) to CPU 0, and silences the old controllers.
pub(super) fn route_console() {
    for port in [0x21, 0xa1] {
        // SAFETY: masks all lines of the 8259s, which nobody uses.
        unsafe { Port::<u8>::new(port).write(0xff) };
    }
    let registers = (DIRECT + IO_APIC) as *mut u32;
    let set = |register: u32, value: u32| {
        // SAFETY: the I/O APIC's select and data registers, mapped as a device; only CPU 0 uses
        // them, once.
        unsafe {
            registers.write_volatile(register);
            registers.byte_add(0x10).write_volatile(value);
        }
    };
    set(0x10 + 2 * 4 + 1, local::own_apic() << 24);
    set(0x10 + 2 * 4, CONSOLE.into());
}

/// Serves an interrupt. Interrupts may be on or off; nothing here waits.
pub(super) fn serve(vector: u8) {
    if vector == FLUSH {
        flush::serve();
    }
    if vector != SPURIOUS {
        write(END, 0);
    }
}

/// Sends `vector` to the CPU whose APIC is `apic`.
pub(super) fn send(apic: u32, vector: u8) {
    // What was stored before must be seen by the CPU that is interrupted: WRMSR to an x2APIC
    // register does not wait for stores (SDM volume 3A, §10.12.3).
    // SAFETY: a fence.
    unsafe { core::arch::asm!("mfence", "lfence", options(nostack, preserves_flags)) };
    write(COMMAND, u64::from(apic) << 32 | u64::from(vector));
}

/// Sends INIT, then twice the address of a page where the CPU is to begin.
pub(super) fn start(apic: u32, page: u8) {
    let to = u64::from(apic) << 32;
    write(COMMAND, to | 0x4500);
    clock::wait(10_000_000);
    for _ in 0..2 {
        write(COMMAND, to | 0x4600 | u64::from(page));
        clock::wait(200_000);
    }
}

/// Makes a CPU leave user mode, or wake.
pub fn interrupt(cpu: CpuId) {
    send(local::apic_of(cpu.index()), WAKE);
}

/// Sleeps until an interrupt, unless there is work.
pub fn idle(has_work: &dyn Fn() -> bool) {
    interrupts::disable();
    match has_work() {
        true => interrupts::enable(),
        false => interrupts::enable_and_hlt(),
    }
}

/// Interrupts this CPU at `time`, or not.
pub fn alarm(time: Option<u64>) {
    let ticks = time.map_or(0, |time| clock::timer_ticks(time.saturating_sub(super::now())));
    write(TIMER_START, ticks);
}

/// How far the timer counts while `action` runs. Without an interrupt.
pub(super) fn timed(action: impl FnOnce()) -> u64 {
    write(TIMER_VECTOR, MASKED);
    write(TIMER_START, u32::MAX.into());
    action();
    let left = read(TIMER_LEFT);
    write(TIMER_START, 0);
    write(TIMER_VECTOR, u64::from(TIMER));
    u64::from(u32::MAX) - left
}
