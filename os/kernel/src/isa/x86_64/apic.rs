//! Local APICs, and the one line of the I/O APIC that is used: the console's.
//!
//! Source: SDM volume 3A, chapter *APIC*. The registers are used in memory and not as MSRs
//! (x2APIC): QEMU counts instructions (`-icount`) only where a device is read as a device.

use quire::units::CpuId;
use x86_64::instructions::interrupts;
use x86_64::instructions::port::Port;
use x86_64::registers::model_specific::Msr;

use super::{DIRECT, clock, disk, flush, local};
use crate::isa::taken::{self, Reason};

const TIMER: u8 = 0x20;
/// Another CPU wants translations dropped, or a barrier.
pub(super) const FLUSH: u8 = 0x21;
const WAKE: u8 = 0x22;
const CONSOLE: u8 = 0x24;
pub(super) const DISK: u8 = 0x25;
pub(super) const SPURIOUS: u8 = 0xff;

/// The I/O APIC's registers.
pub(super) const IO_APIC: u64 = 0xfec0_0000;

/// The local APIC's registers; each CPU sees its own.
pub(super) const LOCAL_APIC: u64 = 0xfee0_0000;

const ID: u64 = 0x20;
const END: u64 = 0xb0;
const SPURIOUS_VECTOR: u64 = 0xf0;
const COMMAND: u64 = 0x300;
const COMMAND_TARGET: u64 = 0x310;
const TIMER_VECTOR: u64 = 0x320;
const TIMER_START: u64 = 0x380;
const TIMER_LEFT: u64 = 0x390;
const TIMER_DIVIDE: u64 = 0x3e0;
const MASKED: u32 = 1 << 16;
/// A command has not been taken yet.
const SENDING: u32 = 1 << 12;

fn read(register: u64) -> u32 {
    // SAFETY: a register of the local APIC, mapped as a device at the direct map.
    unsafe { ((DIRECT + LOCAL_APIC + register) as *const u32).read_volatile() }
}

fn write(register: u64, value: u32) {
    // SAFETY: as above; what is written here is what the manual gives these registers.
    unsafe { ((DIRECT + LOCAL_APIC + register) as *mut u32).write_volatile(value) }
}

/// Gives a command to the CPU whose APIC is `apic`.
fn command(apic: u32, command: u32) {
    // Two stores, and an interrupt between them might send a command of its own.
    interrupts::without_interrupts(|| {
        write(COMMAND_TARGET, apic << 24);
        write(COMMAND, command);
        while read(COMMAND) & SENDING != 0 {
            core::hint::spin_loop();
        }
    });
}

/// Switches this CPU's APIC on; returns its number.
pub(super) fn init() -> u32 {
    let mut base = Msr::new(0x1b);
    // SAFETY: IA32_APIC_BASE: enabled, where it is after reset.
    unsafe { base.write(LOCAL_APIC | base.read() & 0x100 | 1 << 11) };
    write(SPURIOUS_VECTOR, 0x100 | u32::from(SPURIOUS));
    write(TIMER_DIVIDE, 0b1011);
    write(TIMER_VECTOR, u32::from(TIMER));
    write(TIMER_START, 0);
    read(ID) >> 24
}

/// Sends the console's interrupt (line 4) to CPU 0, and silences the old controllers.
pub(super) fn route_console() {
    for port in [0x21, 0xa1] {
        // SAFETY: masks all lines of the 8259s, which are not in use.
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
    match vector {
        FLUSH => flush::serve(),
        DISK => disk::serve(),
        _ => {}
    }
    taken::count(match vector {
        FLUSH => Reason::Flush,
        WAKE => Reason::Wake,
        TIMER => Reason::Timer,
        _ => Reason::Device,
    });
    if vector != SPURIOUS {
        write(END, 0);
    }
}

/// Whether an interrupt concerns the scheduler: time, a wake, input.
pub(super) fn is_news(vector: u8) -> bool {
    !matches!(vector, FLUSH | SPURIOUS)
}

/// Sends `vector` to the CPU whose APIC is `apic`. That CPU sees earlier stores: a store to a
/// device comes after them.
pub(super) fn send(apic: u32, vector: u8) {
    command(apic, 0x4000 | u32::from(vector));
}

/// Sends INIT, then twice the number of a page where the CPU is to begin.
pub(super) fn start(apic: u32, page: u8) {
    command(apic, 0x4500);
    clock::wait(10_000_000);
    for _ in 0..2 {
        command(apic, 0x4600 | u32::from(page));
        clock::wait(200_000);
    }
}

/// Makes a CPU leave user mode, or wake.
pub fn interrupt(cpu: CpuId) {
    send(local::apic_of(cpu.index()), WAKE);
}

/// Sleeps until an interrupt, unless there is work, or an interrupt that was served in the kernel
/// since the last `run` or `idle`.
pub fn idle(has_work: &dyn Fn() -> bool) {
    interrupts::disable();
    match local::take_news() || has_work() {
        true => interrupts::enable(),
        false => interrupts::enable_and_hlt(),
    }
}

/// Interrupts this CPU at `time`, or not.
pub fn alarm(time: Option<u64>) {
    let ticks = time.map_or(0, |time| clock::timer_ticks(time.saturating_sub(super::now())));
    write(TIMER_START, ticks as u32);
}

/// How far the timer counts while `action` runs. Without an interrupt.
pub(super) fn timed(action: impl FnOnce()) -> u64 {
    write(TIMER_VECTOR, MASKED);
    write(TIMER_START, u32::MAX);
    action();
    let left = read(TIMER_LEFT);
    write(TIMER_START, 0);
    write(TIMER_VECTOR, u32::from(TIMER));
    u64::from(u32::MAX - left)
}
