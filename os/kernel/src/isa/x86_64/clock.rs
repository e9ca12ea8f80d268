//! Time: the TSC and the APIC's timer, both measured against the PIT, which has a known rate.

use core::arch::x86_64::{_mm_lfence, _rdrand64_step, _rdtsc};
use core::sync::atomic::{AtomicU64, Ordering};

use raw_cpuid::CpuId as Features;
use x86_64::instructions::port::Port;

use super::apic;
use crate::isa::TimeBase;

/// The PIT's rate (Intel 8254): a third of the colour subcarrier's, times four.
const PIT_HZ: u64 = 1_193_182;
/// How long the others are measured, in the PIT's ticks: 10 ms.
const MEASURED: u64 = PIT_HZ / 100;

/// Nanoseconds for 2^32 ticks of the TSC.
static TSC_SCALE: AtomicU64 = AtomicU64::new(1 << 32);
static TSC_START: AtomicU64 = AtomicU64::new(0);
/// Ticks of the APIC's timer in 2^20 nanoseconds.
static TIMER_SCALE: AtomicU64 = AtomicU64::new(1);
static BOOTED: AtomicU64 = AtomicU64::new(0);

/// The counter, read after all that comes before, as programs read it, too: see `vdso`.
fn tsc() -> u64 {
    // SAFETY: a barrier, and a counter, that every x86-64 CPU has.
    unsafe {
        _mm_lfence();
        _rdtsc()
    }
}

/// Measures both, and reads the clock of the machine.
pub(super) fn init() {
    let start = tsc();
    let mut end = start;
    let timer = apic::timed(|| {
        pit(MEASURED as u16);
        end = tsc();
    });
    let ns = MEASURED * 1_000_000_000 / PIT_HZ;
    let scale = (u128::from(ns) << 32) / u128::from((end - start).max(1));
    TSC_SCALE.store(scale as u64, Ordering::Relaxed);
    TSC_START.store(start, Ordering::Relaxed);
    TIMER_SCALE.store((timer << 20) / ns, Ordering::Relaxed);
    BOOTED.store(seconds_of_rtc() * 1_000_000_000, Ordering::Relaxed);
}

/// Waits until channel 2 of the PIT has counted `ticks`.
fn pit(ticks: u16) {
    let mut gate = Port::<u8>::new(0x61);
    let mut count = Port::<u8>::new(0x42);
    // SAFETY: the PIT's channel 2 drives nothing but the speaker, which is off.
    unsafe {
        let open = gate.read() & !3;
        gate.write(open);
        // Channel 2, both bytes, mode 0: the output rises at zero.
        Port::<u8>::new(0x43).write(0xb0);
        count.write(ticks as u8);
        count.write((ticks >> 8) as u8);
        gate.write(open | 1);
        while gate.read() & 0x20 == 0 {}
    }
}

/// Nanoseconds since the boot CPU began to measure.
pub fn now() -> u64 {
    let ticks = tsc().wrapping_sub(TSC_START.load(Ordering::Relaxed));
    ((u128::from(ticks) * u128::from(TSC_SCALE.load(Ordering::Relaxed))) >> 32) as u64
}

/// The numbers with which [`now`] and [`realtime`] count.
pub fn time_base() -> TimeBase {
    TimeBase {
        start: TSC_START.load(Ordering::Relaxed),
        scale: TSC_SCALE.load(Ordering::Relaxed),
        realtime: realtime(),
    }
}

/// Ticks of the APIC's timer in `ns` nanoseconds; at least one, and what its register holds.
pub(super) fn timer_ticks(ns: u64) -> u64 {
    let ticks = (u128::from(ns) * u128::from(TIMER_SCALE.load(Ordering::Relaxed))) >> 20;
    ticks.clamp(1, u32::MAX.into()) as u64
}

/// Waits for `ns` nanoseconds.
pub(super) fn wait(ns: u64) {
    let end = now() + ns;
    while now() < end {
        core::hint::spin_loop();
    }
}

/// Nanoseconds since 1970 when the clock was started.
pub fn realtime() -> u64 {
    BOOTED.load(Ordering::Relaxed)
}

/// Seconds since 1970, from the battery-backed clock (Motorola MC146818), which keeps UTC here.
fn seconds_of_rtc() -> u64 {
    let read = |register: u8| {
        // SAFETY: selects and reads a register of the clock; NMIs stay off meanwhile.
        unsafe {
            Port::<u8>::new(0x70).write(0x80 | register);
            Port::<u8>::new(0x71).read()
        }
    };
    let all = || [0, 2, 4, 7, 8, 9, 0x32].map(read);
    // Two equal readings: none of them met an update.
    let mut times = all();
    for _ in 0..100 {
        let again = all();
        if again == times {
            break;
        }
        times = again;
    }
    let binary = read(0x0b) & 4 != 0;
    let value = |byte: u8| u64::from(if binary { byte } else { (byte >> 4) * 10 + (byte & 15) });
    let [second, minute, hour, day, month, year, century] = times.map(value);
    let century = if century == 0 { 20 } else { century };
    seconds(century * 100 + year, month, day) + hour * 3600 + minute * 60 + second
}

/// Seconds from 1970 to the beginning of a day of the Gregorian calendar.
fn seconds(year: u64, month: u64, day: u64) -> u64 {
    // Years that begin in March have their odd day at the end.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day;
    days.saturating_sub(719_469) * 86_400
}

/// A random number from the CPU, if it has a source.
pub fn random() -> Option<u64> {
    if !Features::new().get_feature_info()?.has_rdrand() {
        return None;
    }
    let mut number = 0;
    // SAFETY: CPUID reports the instruction.
    (0..10).any(|_| unsafe { draw(&mut number) }).then_some(number)
}

/// # Safety
/// The CPU has `rdrand`.
#[target_feature(enable = "rdrand")]
unsafe fn draw(number: &mut u64) -> bool {
    // SAFETY: the caller's promise. (Older compilers take the intrinsic for unsafe.)
    #[allow(unused_unsafe)]
    unsafe {
        _rdrand64_step(number) == 1
    }
}
