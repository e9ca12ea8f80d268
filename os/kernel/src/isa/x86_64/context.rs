//! A program's registers.
//!
//! ```text
//!   offset 0                                            120      128    136              176
//!          ├─ r15 r14 r13 … rdx rcx rax (as pushed) ─────┼ vector ┼ error ┼ rip cs flags sp ss ┤
//! ```
//!
//! While the program runs, the end of this frame is where the CPU pushes what it interrupts: no
//! register is ever copied from a stack to here.

use core::arch::asm;

use raw_cpuid::CpuId as Features;
use x86_64::registers::control::{Cr0, Cr0Flags, Cr4, Cr4Flags};
use x86_64::registers::model_specific::Msr;
use x86_64::registers::xcontrol::{XCr0, XCr0Flags};

use super::local::{USER_CODE, USER_DATA};
use crate::isa::Call;

/// Bytes of x87, SSE and AVX state with its header (SDM volume 1, §13.4).
pub(crate) const VECTOR_BYTES: usize = 832;

/// The vector, in place of an exception's, of a program that made a system call.
pub(super) const BY_CALL: u64 = 0x100;

/// Flags a program may change: carry, parity, adjust, zero, sign, trap, direction, overflow,
/// alignment check, identification.
const USER_FLAGS: u64 = 0x24_0dd5;
const INTERRUPTS_ON: u64 = 0x202;

/// A program's registers. The order is the one in which traps push them.
#[repr(C, align(64))]
#[derive(Clone)]
pub struct Context {
    pub(crate) general: [u64; 15],
    pub(super) vector: u64,
    pub(super) error: u64,
    pub(crate) rip: u64,
    cs: u64,
    pub(crate) flags: u64,
    pub(crate) rsp: u64,
    ss: u64,
    /// The address of the last page fault.
    pub(crate) fault: u64,
    fs_base: u64,
    pub(crate) vectors: Vectors,
}

/// Vector state as `xsave` or `fxsave` write it.
#[repr(C, align(64))]
#[derive(Clone)]
pub(crate) struct Vectors(pub(crate) [u8; VECTOR_BYTES]);

/// Places of registers in `general`.
pub(crate) mod at {
    pub(crate) const R10: usize = 5;
    pub(crate) const R9: usize = 6;
    pub(crate) const R8: usize = 7;
    pub(crate) const RDI: usize = 10;
    pub(crate) const RSI: usize = 11;
    pub(crate) const RDX: usize = 12;
    pub(crate) const RAX: usize = 14;
}

const FS_BASE: u32 = 0xc000_0100;

/// Whether the CPU has `xsave`; the same on all CPUs.
static HAS_XSAVE: spin::Once<bool> = spin::Once::new();

/// Lets programs use vector registers.
pub(super) fn init() {
    let features = Features::new();
    let (xsave, avx) = features.get_feature_info().map_or((false, false), |features| {
        (features.has_xsave(), features.has_xsave() && features.has_avx())
    });
    // SAFETY: the kernel itself uses neither x87 nor vector registers.
    unsafe {
        Cr0::update(|flags| {
            flags.remove(Cr0Flags::EMULATE_COPROCESSOR | Cr0Flags::TASK_SWITCHED);
            flags.insert(Cr0Flags::MONITOR_COPROCESSOR | Cr0Flags::NUMERIC_ERROR);
        });
        Cr4::update(|flags| {
            flags.insert(Cr4Flags::OSFXSR | Cr4Flags::OSXMMEXCPT_ENABLE);
            flags.set(Cr4Flags::OSXSAVE, xsave);
        });
        if xsave {
            let mut on = XCr0Flags::X87 | XCr0Flags::SSE;
            on.set(XCr0Flags::AVX, avx);
            XCr0::write(on);
        }
    }
    HAS_XSAVE.call_once(|| xsave);
}

pub(crate) fn has_xsave() -> bool {
    HAS_XSAVE.get() == Some(&true)
}

impl Context {
    /// A program that begins at `entry` with its stack pointer at `stack`.
    pub fn start(entry: u64, stack: u64) -> Self {
        let mut vectors = Vectors([0; VECTOR_BYTES]);
        // Initial state: x87 control word 0x37f, MXCSR 0x1f80 (SDM volume 1, §8.1.5 and §11.6.4).
        vectors.0[..2].copy_from_slice(&0x37f_u16.to_le_bytes());
        vectors.0[24..28].copy_from_slice(&0x1f80_u32.to_le_bytes());
        if has_xsave() {
            vectors.0[512] = 0b11;
        }
        Self {
            general: [0; 15],
            vector: 0,
            error: 0,
            rip: entry,
            cs: USER_CODE.into(),
            flags: INTERRUPTS_ON,
            rsp: stack,
            ss: USER_DATA.into(),
            fault: 0,
            fs_base: 0,
            vectors,
        }
    }

    /// The system call it stopped at.
    #[inline]
    pub fn call(&self) -> Call {
        let get = |at: usize| self.general[at] as usize;
        Call {
            number: get(at::RAX),
            args: [
                get(at::RDI),
                get(at::RSI),
                get(at::RDX),
                get(at::R10),
                get(at::R8),
                get(at::R9),
            ],
        }
    }

    /// Puts a system call's result where the program expects it.
    #[inline]
    pub fn answer(&mut self, value: isize) {
        self.general[at::RAX] = value as u64;
    }

    /// Makes the program make the call anew. Its arguments are where they were.
    pub fn again(&mut self, call: &Call) {
        self.general[at::RAX] = call.number as u64;
        // `syscall` is two bytes long.
        self.rip -= 2;
    }

    /// The stack pointer.
    pub fn sp(&self) -> u64 {
        self.rsp
    }

    /// Sets the stack pointer.
    pub fn set_sp(&mut self, sp: u64) {
        self.rsp = sp;
    }

    /// The thread pointer: the base of FS.
    pub fn thread_pointer(&self) -> u64 {
        self.fs_base
    }

    /// Sets the thread pointer, also of the CPU if `self` is what it runs.
    pub fn set_thread_pointer(&mut self, address: u64) {
        self.fs_base = address;
    }

    /// Sets program counter and flags, from values that a program made up.
    pub(crate) fn set_place(&mut self, pc: u64, flags: u64) {
        self.rip = if pc < super::USER_END { pc } else { 0 };
        self.flags = flags & USER_FLAGS | INTERRUPTS_ON;
        // Not by `sysret`, which would spoil rcx and r11.
        self.vector = 0;
    }

    /// Saves this CPU's vector registers here.
    pub fn save_vectors(&mut self) {
        let area = self.vectors.0.as_mut_ptr();
        // SAFETY: the area is aligned to 64 and as large as the state that XCR0 enables.
        unsafe {
            match has_xsave() {
                true => asm!("xsave64 [{}]", in(reg) area, in("eax") 7, in("edx") 0),
                false => asm!("fxsave64 [{}]", in(reg) area),
            }
        }
    }

    /// Loads this CPU's vector registers and thread pointer from here.
    pub fn load_vectors(&mut self) {
        let area = self.vectors.0.as_ptr();
        // SAFETY: as above; the loaded state was saved, or checked when a program made it up.
        // FS_BASE is canonical, being below USER_END.
        unsafe {
            match has_xsave() {
                true => asm!("xrstor64 [{}]", in(reg) area, in("eax") 7, in("edx") 0),
                false => asm!("fxrstor64 [{}]", in(reg) area),
            }
            Msr::new(FS_BASE).write(self.fs_base);
        }
    }
}
