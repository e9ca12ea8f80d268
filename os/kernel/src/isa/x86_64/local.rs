//! Per-CPU data: number, stacks, descriptor tables.
//!
//! In the kernel the GS base points at the CPU's [`Local`]; in user mode it is the program's, and
//! `swapgs` exchanges the two at each crossing.

use core::arch::asm;
use core::cell::UnsafeCell;
use core::mem::{offset_of, size_of};

use quire::units::CpuId;
use x86_64::registers::control::{Cr4, Cr4Flags};
use x86_64::registers::model_specific::Msr;

use super::{context, traps, user};
use crate::isa::{MAX_CPUS, STACK_BYTES};

/// Selectors. The order is what `syscall` and `sysret` prescribe.
pub(super) const KERNEL_CODE: u16 = 0x08;
pub(super) const KERNEL_DATA: u16 = 0x10;
pub(super) const USER_DATA: u16 = 0x20 | 3;
pub(super) const USER_CODE: u16 = 0x28 | 3;
const TSS: u16 = 0x30;

const GUARD_BYTES: usize = 4096;

/// A CPU's stack, above a page that the final tables leave out.
#[repr(C, align(4096))]
pub(super) struct Stack([u8; GUARD_BYTES + STACK_BYTES]);

/// Where the first stack ends, from the beginning of [`STACKS`].
pub(super) const FIRST_STACK_END: usize = GUARD_BYTES + STACK_BYTES;

/// All CPUs' stacks: for each the usual one and one for double faults.
#[unsafe(link_section = ".stacks")]
pub(super) static mut STACKS: [[Stack; 2]; MAX_CPUS] =
    [const { [const { Stack([0; GUARD_BYTES + STACK_BYTES]) }; 2] }; MAX_CPUS];

/// One CPU's own data, found through its GS base.
#[repr(C, align(128))]
pub(super) struct Local {
    /// The kernel's stack while a program runs.
    pub(super) kernel_sp: u64,
    /// The program's stack pointer, for the two instructions in which there is nowhere else.
    pub(super) scratch: u64,
    /// An interrupt that concerns the scheduler was served in the kernel.
    pub(super) news: u64,
    number: u64,
    /// The number of the CPU's local APIC.
    pub(super) apic: u64,
    gdt: [u64; 8],
    gap: u32,
    tss: TaskState,
}

/// SDM volume 3A, §8.7: the 64-bit task-state segment.
#[repr(C, packed(4))]
struct TaskState {
    reserved: u32,
    /// Where the CPU pushes what it interrupts in user mode: the end of the context's frame.
    stacks: [u64; 3],
    reserved1: u64,
    interrupt_stacks: [u64; 7],
    reserved2: [u16; 5],
    io_map: u16,
}

const _: () = assert!(size_of::<TaskState>() == 104);

struct Locals([UnsafeCell<Local>; MAX_CPUS]);

// SAFETY: each CPU uses its own element only; others read its number and APIC once it runs.
unsafe impl Sync for Locals {}

static LOCALS: Locals = Locals(
    [const {
        UnsafeCell::new(Local {
            kernel_sp: 0,
            scratch: 0,
            news: 0,
            number: 0,
            apic: 0,
            gdt: [
                0,
                0x00af_9b00_0000_ffff,
                0x00cf_9300_0000_ffff,
                0,
                0x00cf_f300_0000_ffff,
                0x00af_fb00_0000_ffff,
                0,
                0,
            ],
            gap: 0,
            tss: TaskState {
                reserved: 0,
                stacks: [0; 3],
                reserved1: 0,
                interrupt_stacks: [0; 7],
                reserved2: [0; 5],
                io_map: 104,
            },
        })
    }; MAX_CPUS],
);

/// Offsets within [`Local`], for assembler.
pub(super) const KERNEL_SP: usize = offset_of!(Local, kernel_sp);
pub(super) const SCRATCH: usize = offset_of!(Local, scratch);
pub(super) const FRAME_END: usize = offset_of!(Local, tss) + offset_of!(TaskState, stacks);
pub(super) const NEWS: usize = offset_of!(Local, news);
const NUMBER: usize = offset_of!(Local, number);
const APIC: usize = offset_of!(Local, apic);

/// The CPU that runs this.
#[inline]
pub fn cpu() -> CpuId {
    let number: usize;
    // SAFETY: reads this CPU's own data through the GS base that `init` set.
    unsafe {
        asm!("mov {}, gs:[{}]", out(reg) number, const NUMBER,
             options(nostack, readonly, preserves_flags));
    }
    CpuId::new(number)
}

/// The local APIC of CPU `number`, once `init` has run there.
pub(super) fn apic_of(number: usize) -> u32 {
    // SAFETY: written before that CPU was announced, and constant since.
    unsafe { (*LOCALS.0[number].get()).apic as u32 }
}

/// This CPU's local APIC.
pub(super) fn own_apic() -> u32 {
    let apic: u64;
    // SAFETY: as in `cpu`.
    unsafe {
        asm!("mov {}, gs:[{}]", out(reg) apic, const APIC,
             options(nostack, readonly, preserves_flags));
    }
    apic as u32
}

/// Notes that an interrupt is news: the next `run` or `idle` returns at once.
pub(super) fn note_news() {
    // SAFETY: this CPU's own data.
    unsafe { asm!("mov qword ptr gs:[{}], 1", const NEWS, options(nostack, preserves_flags)) };
}

/// Whether there is news; none any more. With interrupts off.
pub(super) fn take_news() -> bool {
    let mut news = 0_u64;
    // SAFETY: as above.
    unsafe { asm!("xchg gs:[{}], {}", const NEWS, inout(reg) news, options(nostack)) };
    news != 0
}

/// The end of the stack of CPU `number`.
pub(super) fn stack_end(number: usize) -> u64 {
    (&raw const STACKS).addr() as u64 + (number * 2 * size_of::<Stack>() + FIRST_STACK_END) as u64
}

/// Whether two words at `address` lie on some kernel stack.
pub(super) fn on_stack(address: u64) -> bool {
    let start = (&raw const STACKS).addr() as u64;
    let Some(at) = address.checked_sub(start) else { return false };
    let within = at as usize % size_of::<Stack>();
    (at as usize) < size_of::<[[Stack; 2]; MAX_CPUS]>()
        && (GUARD_BYTES..=size_of::<Stack>() - 16).contains(&within)
}

#[repr(C, packed)]
struct Pointer {
    limit: u16,
    base: u64,
}

/// Makes this CPU number `number`: descriptor tables, system calls, the features in `CR4`.
pub(super) fn init(number: usize, apic: u32) {
    let local = LOCALS.0[number].get();
    // SAFETY: this CPU alone uses the element, and runs this once, with interrupts off.
    unsafe {
        (*local).number = number as u64;
        (*local).apic = apic.into();
        let tss = &raw mut (*local).tss;
        (*tss).interrupt_stacks[0] = stack_end(number) + size_of::<Stack>() as u64;
        let base = tss.addr() as u64;
        let limit = size_of::<TaskState>() as u64 - 1;
        // SDM volume 3A, §8.2.3: a 64-bit TSS descriptor, available.
        (*local).gdt[6] = limit | (base & 0xff_ffff) << 16 | 0x89 << 40 | (base >> 24 & 0xff) << 56;
        (*local).gdt[7] = base >> 32;
        let gdt = Pointer { limit: 63, base: (&raw const (*local).gdt).addr() as u64 };
        load_segments(&gdt);
        Msr::new(0xc000_0101).write(local.addr() as u64);
        Msr::new(0xc000_0102).write(0);
    }
    traps::init();
    system_calls();
    user::init();
    context::init();
}

/// Loads the descriptor tables and all selectors.
///
/// # Safety
/// `gdt` describes a table that stays, laid out as the selectors here say.
unsafe fn load_segments(gdt: &Pointer) {
    // SAFETY: the caller's promise; code and stack segments are flat before and after.
    unsafe {
        asm!(
            "lgdt [{gdt}]",
            "push {code}",
            "lea {at}, [rip + 2f]",
            "push {at}",
            "retfq",
            "2: mov ss, {data:x}",
            "mov ds, {zero:x}",
            "mov es, {zero:x}",
            "mov fs, {zero:x}",
            "mov gs, {zero:x}",
            "ltr {tss:x}",
            gdt = in(reg) gdt,
            code = in(reg) u64::from(KERNEL_CODE),
            data = in(reg) u64::from(KERNEL_DATA),
            zero = in(reg) 0_u64,
            tss = in(reg) u64::from(TSS),
            at = out(reg) _,
        );
    }
}

/// Lets `syscall` enter at [`traps::entry`] with interrupts off.
fn system_calls() {
    // Interrupt, trap, direction, alignment check and nested task flags are cleared on entry.
    const MASKED: u64 = 0x200 | 0x100 | 0x400 | 0x4_0000 | 0x4000;
    let star = u64::from(KERNEL_CODE) << 32 | (0x18 | 3) << 48;
    // SAFETY: STAR, LSTAR and FMASK as SDM volume 3A §5.8.8 describes; the entry point expects it.
    unsafe {
        Msr::new(0xc000_0081).write(star);
        Msr::new(0xc000_0082).write(traps::entry());
        Msr::new(0xc000_0084).write(MASKED);
        Cr4::update(|flags| flags.insert(Cr4Flags::PAGE_GLOBAL));
    }
}
