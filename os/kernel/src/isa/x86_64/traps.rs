//! Crossing between kernel and program.
//!
//! A program's traps store its registers in its [`Context`] and return from [`run`]. Traps of the
//! kernel itself are interrupts, which are served where they strike, and page faults in the one
//! instruction that copies program memory; anything else is a bug.

use core::arch::{global_asm, naked_asm};
use core::cell::UnsafeCell;
use core::mem::offset_of;

use quire::units::Access;
use x86_64::registers::control::Cr2;

use super::context::{BY_CALL, Context};
use super::local::{FRAME_END, KERNEL_CODE, KERNEL_SP, NEWS, SCRATCH, USER_CODE, USER_DATA};
use super::{apic, local, user};
use crate::isa::Trap;

const PAGE_FAULT: u64 = 14;
const DOUBLE_FAULT: usize = 8;
const FRAME_BYTES: usize = offset_of!(Context, fault);
const VECTOR: usize = offset_of!(Context, vector);

global_asm!(
    r#"
    .pushsection .text
    .macro SAVE
    push rax; push rcx; push rdx; push rsi; push rdi; push rbp; push rbx; push r8
    push r9; push r10; push r11; push r12; push r13; push r14; push r15
    .endm
    .macro RESTORE
    pop r15; pop r14; pop r13; pop r12; pop r11; pop r10; pop r9; pop r8
    pop rbx; pop rbp; pop rdi; pop rsi; pop rdx; pop rcx; pop rax
    .endm

    .balign 16
trap_stubs:
    .set number, 0
    .rept 256
    .balign 16
    // With these the CPU pushes an error code.
    .if number == 8 || (number >= 10 && number <= 14) || number == 17 || number == 21
    .elseif number == 29 || number == 30
    .else
    push 0
    .endif
    push number
    jmp trap
    .set number, number + 1
    .endr

trap:
    test byte ptr [rsp + 24], 3
    jz 2f
    swapgs
    SAVE
    jmp 3f
2:  SAVE
    cld
    mov rdi, rsp
    call {kernel_trap}
    RESTORE
    add rsp, 16
    iretq

.globl trap_call
trap_call:
    swapgs
    mov gs:[{SCRATCH}], rsp
    mov rsp, gs:[{FRAME_END}]
    push {USER_DATA}
    push gs:[{SCRATCH}]
    push r11
    push {USER_CODE}
    push rcx
    push 0
    push {BY_CALL}
    SAVE
3:  mov rsp, gs:[{KERNEL_SP}]
    push 0x202               // interrupts on; direction and alignment flags off
    popfq
    pop r15; pop r14; pop r13; pop r12; pop rbx; pop rbp
    ret
    .popsection
    "#,
    kernel_trap = sym kernel_trap,
    SCRATCH = const SCRATCH,
    FRAME_END = const FRAME_END,
    KERNEL_SP = const KERNEL_SP,
    USER_DATA = const USER_DATA,
    USER_CODE = const USER_CODE,
    BY_CALL = const BY_CALL,
);

unsafe extern "C" {
    fn trap_stubs();
    fn trap_call();
}

/// Where `syscall` enters.
pub(super) fn entry() -> u64 {
    trap_call as *const () as u64
}

/// Leaves for user mode; comes back with the program's registers in `context`.
///
/// # Safety
/// The context is this thread's, and no other code uses it meanwhile.
#[unsafe(naked)]
unsafe extern "C" fn leave_kernel(context: *mut Context) {
    naked_asm!(
        "push rbp; push rbx; push r12; push r13; push r14; push r15",
        "lea rax, [rdi + {FRAME_BYTES}]",
        "cli",
        "cmp qword ptr gs:[{NEWS}], 0",
        "jne 3f",
        "mov gs:[{KERNEL_SP}], rsp",
        "mov gs:[{FRAME_END}], rax",
        "mov rsp, rdi",
        "cmp qword ptr [rdi + {VECTOR}], {BY_CALL}",
        "jne 2f",
        // From a system call: `sysret` takes rip from rcx and flags from r11.
        "pop r15; pop r14; pop r13; pop r12; add rsp, 8; pop r10; pop r9; pop r8",
        "pop rbx; pop rbp; pop rdi; pop rsi; pop rdx; add rsp, 8; pop rax",
        "mov rcx, [rsp + 16]",
        "mov r11, [rsp + 32]",
        "mov rsp, [rsp + 40]",
        "swapgs",
        "sysretq",
        "2: pop r15; pop r14; pop r13; pop r12; pop r11; pop r10; pop r9; pop r8",
        "pop rbx; pop rbp; pop rdi; pop rsi; pop rdx; pop rcx; pop rax",
        "add rsp, 16",
        "swapgs",
        "iretq",
        // As if the interrupt had come just now.
        "3: mov qword ptr gs:[{NEWS}], 0",
        "mov qword ptr [rdi + {VECTOR}], {SERVED}",
        "sti",
        "pop r15; pop r14; pop r13; pop r12; pop rbx; pop rbp",
        "ret",
        NEWS = const NEWS,
        SERVED = const apic::SPURIOUS,
        FRAME_BYTES = const FRAME_BYTES,
        KERNEL_SP = const KERNEL_SP,
        FRAME_END = const FRAME_END,
        VECTOR = const VECTOR,
        BY_CALL = const BY_CALL,
    )
}

/// Runs the program until it stops.
#[inline]
pub fn run(context: &mut Context) -> Trap {
    // SAFETY: the exclusive borrow; the frame's selectors are the program's, by construction.
    unsafe { leave_kernel(context) };
    match context.vector {
        BY_CALL => Trap::Call,
        PAGE_FAULT => {
            let address = Cr2::read_raw();
            context.fault = address;
            Trap::Fault { address, access: accessed(context.error) }
        }
        vector if vector >= 32 => {
            apic::serve(vector as u8);
            Trap::Interrupt
        }
        vector => signal(vector, context),
    }
}

/// The access that a page fault's error code names (SDM volume 3A, §4.7).
fn accessed(error: u64) -> Access {
    match error {
        error if error & 1 << 4 != 0 => Access::Execute,
        error if error & 1 << 1 != 0 => Access::Write,
        _ => Access::Read,
    }
}

/// The signal for an exception, with Linux's `si_code` and address.
fn signal(vector: u64, context: &Context) -> Trap {
    const ILL: u8 = 4;
    const TRAP: u8 = 5;
    const BUS: u8 = 7;
    const FPE: u8 = 8;
    const SEGV: u8 = 11;
    /// `SI_KERNEL`: no more is known.
    const KERNEL: i32 = 0x80;
    let (number, code, address) = match vector {
        0 => (FPE, 1, context.rip),
        1 => (TRAP, 2, context.rip),
        3 => (TRAP, KERNEL, 0),
        4 | 5 | 13 | 11 => (SEGV, KERNEL, 0),
        6 => (ILL, 2, context.rip),
        16 | 19 => (FPE, 8, context.rip),
        17 => (BUS, 1, 0),
        12 => (BUS, KERNEL, 0),
        _ => (ILL, KERNEL, 0),
    };
    Trap::Signal { number, code, address }
}

/// The frame that the stubs push when the kernel itself is interrupted.
#[repr(C)]
struct Frame {
    general: [u64; 15],
    vector: u64,
    error: u64,
    rip: u64,
    cs: u64,
    flags: u64,
    rsp: u64,
    ss: u64,
}

/// A trap in the kernel, with interrupts off.
extern "C" fn kernel_trap(frame: &mut Frame) {
    match frame.vector {
        vector if vector >= 32 => {
            apic::serve(vector as u8);
            if apic::is_news(vector as u8) {
                local::note_news();
            }
        }
        PAGE_FAULT if user::is_copy(frame.rip) => {
            let address = Cr2::read_raw();
            // A fault may wait for other CPUs, and those for our acknowledgement of a flush.
            x86_64::instructions::interrupts::enable();
            if !crate::disk::resolve(address, accessed(frame.error)) {
                frame.rip = user::after_copy();
            }
            x86_64::instructions::interrupts::disable();
        }
        vector => panic!(
            "exception {vector} in the kernel: error {:#x}, rip {:#x}, rsp {:#x}, cr2 {:#x}",
            frame.error,
            frame.rip,
            frame.rsp,
            Cr2::read_raw()
        ),
    }
}

/// The interrupt descriptor table: two words for each vector (SDM volume 3A, §6.14.1).
struct Table(UnsafeCell<[[u64; 2]; 256]>);

// SAFETY: written by the boot CPU before others start; read by the hardware.
unsafe impl Sync for Table {}

static TABLE: Table = Table(UnsafeCell::new([[0; 2]; 256]));

/// Loads the interrupt descriptor table, which all CPUs share.
pub(super) fn init() {
    let table = TABLE.0.get();
    for number in 0..256 {
        let stub = trap_stubs as *const () as u64 + 16 * number as u64;
        // Present, interrupt gate; breakpoints and overflows are the program's to raise.
        let level = if number == 3 || number == 4 { 3 } else { 0 };
        let stack = u64::from(number == DOUBLE_FAULT);
        let low = stub & 0xffff
            | u64::from(KERNEL_CODE) << 16
            | stack << 32
            | (0x8e | level << 5) << 40
            | (stub >> 16 & 0xffff) << 48;
        // SAFETY: each CPU writes the same words, with its interrupts off.
        unsafe { (*table)[number] = [low, stub >> 32] };
    }
    let pointer = x86_64::structures::DescriptorTablePointer {
        limit: size_of::<[[u64; 2]; 256]>() as u16 - 1,
        base: x86_64::VirtAddr::from_ptr(table),
    };
    // SAFETY: the table is static, and its gates lead to the stubs.
    unsafe { x86_64::instructions::tables::lidt(&pointer) };
}
