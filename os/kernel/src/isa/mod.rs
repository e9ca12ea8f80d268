//! The machine, once for each ISA: boot, traps, the registers of a program, interrupts, timer,
//! translations, console. All assembler of the kernel is below here.
//!
//! **Owns** all that the manuals prescribe. **Key types**: [`Context`] (a program's registers),
//! [`Trap`] (the reason it stopped). **Never** knows processes or files. **Next room**: `memory`.
//!
//! One idea shapes all of it: *to run a program is a function call*. [`run`] leaves for user mode
//! and returns when the program stops for any reason. So there is one kernel stack for each CPU,
//! none for each thread; a call that must wait is left and made again later; and no lock, no
//! pointer and no half-done work survives a wait.
//!
//! ```text
//!   run(&mut context) ──► user mode ──► system call, fault, interrupt ──► Trap
//!        ▲                                                                  │
//!        └────────────── the loop of this CPU (`task::run`) ◄───────────────┘
//! ```
//!
//! Interrupts are on nearly always, in the kernel, too: other CPUs wait for our acknowledgement of
//! a flush. This is safe, as handlers touch nothing but atomics of this module.
//!
//! Each ISA's module has the same items; this list is the contract.
//!
//! | item | promise |
//! |---|---|
//! | `Format` | the page-table format, an [`Arch`](quire::arch::Arch) |
//! | `DIRECT` | the virtual address of physical address 0: all RAM is visible there, writable, never executable |
//! | `RAM_START` | below this physical address nothing is RAM, and looking there may have effects |
//! | `IMAGE` | the distance from a physical address within the kernel's image to the address it runs at; may be `DIRECT` |
//! | `devices()` | physical addresses and lengths of the devices to map at `DIRECT`; some may have no bytes |
//! | `DEVICE_FLAGS` | `Attrs` that leaves of devices in the kernel's half have besides their rights |
//! | `USER_END` | the end of a program's address space, in bytes |
//! | `MACHINE` | the answer of `uname -m` |
//! | `Context` | see below; aligned as its vector state needs |
//! | `run(&mut Context) -> Trap` | runs the program; interrupts are on before and after. An interrupt that was served in the kernel since the last `run` or `idle` makes it return at once, so that none is missed between a last look and the way out. The context's vector state is *not* touched: it stays in the CPU, see `load_vectors` |
//! | `Context::start(entry, stack)` | zeroed registers but for these two |
//! | `Context::call() -> Call` | number and six arguments of the system call it stopped at |
//! | `Context::answer(value: isize)` | puts the call's result, or `-errno`, into its register |
//! | `Context::again(&Call)` | it will make that call anew: the program counter is back at the instruction, number and arguments are in their registers |
//! | `Context::{sp, set_sp, set_thread_pointer}` | registers |
//! | `Context::save_vectors()`, `load_vectors()` | between this CPU's vector registers and the context: called when threads switch, and `save` before a context is cloned |
//! | `Context::deliver`, `handled` | start a signal's handler, go on after it |
//! | `cpu() -> CpuId` | the CPU that runs this; it stays the same, since kernel code does not migrate |
//! | `start_cpus(main: fn(CpuId) -> !)` | starts the others; each calls `main` on a stack of its own, set up as the boot CPU is; returns when all have begun |
//! | `cpu_count()` | how many CPUs there are, at most [`MAX_CPUS`] |
//! | `kernel_root(Pfn)` | from now on the kernel's half is under this root; the table that boot used is given up |
//! | `root_template()` | words of a new space's root table that are the kernel's: pairs (index, word). Empty where the halves have a root each |
//! | `tags()` | how many tags of spaces all CPUs have, tag 0 included, which is the kernel's |
//! | `enter(root, Entered)` | makes a space the current one of this CPU, with the flush that [`Entered`](quire::tags::Entered) asks for |
//! | `KEEPS` | a CPU that leaves a space goes on to hold its translations, and `enter` drops them only if a flush came meanwhile; else it drops them always |
//! | `leave(keeps)` | makes no space current; unless it `keeps` them, translations under tag 0 are dropped |
//! | `flush(&Flush)` | all of [`Hardware::flush`](quire::hw::Hardware::flush), other CPUs included |
//! | `publish()` | the barrier after a store to a table, so that walkers see it |
//! | `publish_code(FrameSpan)` | all of [`Hardware::publish_code`](quire::hw::Hardware::publish_code), other CPUs included |
//! | `features() -> (u64, u64)` | `AT_HWCAP` and `AT_HWCAP2` |
//! | `clears()` | the ways to clear memory, a [`Chosen`](quire::hw::Chosen) |
//! | `serialize_others(&CpuSet)` | a full barrier on each of these CPUs (`membarrier`) |
//! | `facts() -> impl Display` | features of the boot CPU that others lack, for the log |
//! | `profile()` | [`Profile`](quire::hw::Profile) |
//! | `interrupt(CpuId)` | makes that CPU leave user mode, or wake from `idle` |
//! | `idle(&dyn Fn() -> bool)` | sleeps until an interrupt, unless the function (called with interrupts off) says that there is work; interrupts are on afterwards |
//! | `now() -> u64` | nanoseconds since boot, monotonic, the same on all CPUs |
//! | `clock_page()` | a page of a clock's registers, which programs may read: the right to map it |
//! | `realtime() -> u64` | nanoseconds since 1970 at about boot, from the machine's clock |
//! | `time_base() -> TimeBase` | the numbers with which both count |
//! | `vdso() -> Code` | position-independent code with which programs do the same |
//! | `alarm(Option<u64>)` | interrupts this CPU at that time, or not |
//! | `random() -> Option<u64>` | from the CPU's source of random numbers |
//! | `put(&[u8])`, `take() -> Option<u8>` | the console; input also interrupts CPU 0 |
//! | `DiskPort`, `disk::<Hal>(number) -> Option<DiskPort>` | how a driver talks to a disk below [`DISKS_MAX`], if there is one of that number; asked for once of each |
//! | `listen_to_disk(number)` | lets it interrupt the boot CPU, which runs this; after its driver was set up |
//! | `take_disk_news() -> bool` | whether any has interrupted since that was last asked |
//! | `power_off(status: u8) -> !` | ends the machine; the emulator's exit status tells `status` |
//! | `copy_user(to, from, bytes) -> usize` | unsafe: copies where one side is the program's memory, and returns how many bytes were *not* copied, when `disk::resolve` said no |
//! | `frames(&mut dyn FnMut(u64))` | return addresses of the calling chain, innermost first |
//!
//! `taken` counts interrupts, and is the same for all.
//!
//! Boot ends by calling [`crate::start`] on the boot CPU, on its final stack, with interrupts off
//! (the first `idle` or `run` turns them on), with all of low RAM mapped at `DIRECT`.

use core::fmt;

use quire::units::Access;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "riscv64")]
mod riscv64;
mod taken;
mod vdso;
#[cfg(any(target_arch = "aarch64", target_arch = "riscv64"))]
mod virt;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
#[cfg(target_arch = "riscv64")]
pub use riscv64::*;
pub use taken::{Reason, taken};
pub use vdso::TimeBase;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;

/// The most CPUs that are used; more are left alone.
pub const MAX_CPUS: usize = 16;

/// The most disks that are used; more are left alone. They are numbered in the order of the
/// emulator's command line.
pub const DISKS_MAX: usize = 4;

/// Bytes of a CPU's kernel stack; below it lies a page that is not mapped.
pub const STACK_BYTES: usize = 64 << 10;

/// Features that only some CPUs have: names, each with a number; 0 is none.
pub struct Facts<const COUNT: usize>([(&'static str, u64); COUNT]);

impl<const COUNT: usize> fmt::Display for Facts<COUNT> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(at, (name, number))| {
            let before = if at == 0 { "" } else { ", " };
            write!(f, "{before}{name} {number}")
        })
    }
}

/// A system call as the program made it.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Which, by this ISA's numbers.
    pub number: usize,
    /// Its six arguments; those that it does not have are noise.
    pub args: [usize; 6],
}

/// The reason a program stopped.
#[derive(Clone, Copy, Debug)]
pub enum Trap {
    /// A system call.
    Call,
    /// No translation allowed `access` to `address`.
    Fault {
        /// Which address, as the program has it.
        address: u64,
        /// The access that it tried.
        access: Access,
    },
    /// An interrupt, which has been served: another thread may have to run.
    Interrupt,
    /// The program caused a signal.
    Signal {
        /// Which signal (SIGILL, SIGFPE, SIGTRAP, SIGBUS, SIGSEGV), by Linux's numbers.
        number: u8,
        /// Its `si_code`.
        code: i32,
        /// Its `si_addr`.
        address: u64,
    },
}

/// The loader's description of the machine.
#[derive(Debug)]
pub struct Boot {
    /// RAM: address and length in bytes of each piece, ascending, not overlapping; whole pages.
    pub ram: [(u64, u64); 8],
    /// The physical bytes of the kernel's image, with all of its data.
    pub image: (u64, u64),
    /// The physical address and length of the initramfs; no bytes when there is none.
    pub initrd: (u64, u64),
    /// Another piece that must not be overwritten: address and length; no bytes when there is none.
    pub keep: (u64, u64),
    /// The kernel's command line.
    pub command_line: &'static str,
}
