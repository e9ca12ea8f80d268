//! The other CPUs: found in ACPI's MADT, started by INIT and two start-up interrupts.

use core::arch::global_asm;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use acpi::madt::{Madt, MadtEntry};
use acpi::{AcpiHandler, AcpiTables, HpetInfo, PhysicalMapping};
use quire::arch::Arch;
use quire::hw::ForeignFrames;
use quire::units::{CpuId, FrameSpan, MemoryType, PhysAddr};
use raw_cpuid::{CpuId as Features, ExtendedFeatures, FeatureInfo};
use spin::Once;

use super::{DIRECT, Format, apic, clock, local, space};
use crate::isa::{Facts, MAX_CPUS};

/// The page in the first MiB where a CPU begins, in real mode.
const PAGE: u8 = 8;

/// The stack of the CPU that is being started.
pub(super) static NEXT_STACK: AtomicU64 = AtomicU64::new(0);
static NEXT: AtomicUsize = AtomicUsize::new(0);
static RUNNING: AtomicUsize = AtomicUsize::new(1);
static COUNT: AtomicUsize = AtomicUsize::new(1);
static APICS: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(0) }; MAX_CPUS];
static MAIN: Once<fn(CpuId) -> !> = Once::new();

global_asm!(
    r#"
    .pushsection .rodata
    .code16
    .balign 16
start_page:
    cli
    xor ax, ax
    mov ds, ax
    .byte 0x66, 0x0f, 0x01, 0x16 // lgdt with a 32-bit base, from the address that follows
    .word 0x8000 + start_gdt_pointer - start_page
    mov eax, 0x11
    mov cr0, eax
    .byte 0x66, 0xea         // a far jump to 32-bit code
    .long 0x8000 + start_32 - start_page
    .word 8
    .code32
start_32:
    mov ax, 16
    mov ds, ax
    mov es, ax
    mov ss, ax
    xor edi, edi
    mov eax, offset boot_long
    jmp eax
    .balign 8
start_gdt:
    .quad 0
    .quad 0x00cf9b000000ffff
    .quad 0x00cf93000000ffff
start_gdt_pointer:
    .word 23
    .long 0x8000 + start_gdt - start_page
start_page_end:
    .code64
    .popsection
    "#
);

unsafe extern "C" {
    static start_page: u8;
    static start_page_end: u8;
}

/// Reads ACPI's tables through the direct map.
#[derive(Clone)]
struct Direct;

impl AcpiHandler for Direct {
    /// # Safety
    /// As the trait demands: there is such a table.
    unsafe fn map_physical_region<T>(&self, at: usize, size: usize) -> PhysicalMapping<Self, T> {
        let address = (DIRECT as usize + at) as *mut T;
        let address = NonNull::new(address).unwrap_or(NonNull::dangling());
        // SAFETY: the firmware's tables lie below 4 GiB, which the boot tables map.
        unsafe { PhysicalMapping::new(at, address, size, size, self.clone()) }
    }

    fn unmap_physical_region<T>(_: &PhysicalMapping<Self, T>) {}
}

/// Notes the CPUs of the firmware's table; the one that runs this is the first.
pub(super) fn find(rsdp: u64) {
    let own = local::own_apic();
    APICS[0].store(own, Ordering::Relaxed);
    // SAFETY: the loader says where the table's root is, and mapping is as above.
    let tables = unsafe { AcpiTables::from_rsdp(Direct, rsdp as usize) };
    let Ok(tables) = tables else { return };
    if let Ok(hpet) = HpetInfo::new(&tables) {
        HPET.store(hpet.base_address as u64, Ordering::Relaxed);
    }
    let Ok(madt) = tables.find_table::<Madt>() else { return };
    let mut count = 1;
    for entry in madt.get().entries() {
        let (apic, flags) = match entry {
            MadtEntry::LocalApic(entry) => (u32::from(entry.apic_id), entry.flags),
            MadtEntry::LocalX2Apic(entry) => (entry.x2apic_id, entry.flags),
            _ => continue,
        };
        if flags & 1 != 0 && apic != own && count < MAX_CPUS {
            APICS[count].store(apic, Ordering::Relaxed);
            count += 1;
        }
    }
    COUNT.store(count, Ordering::Relaxed);
}

/// The physical address of the HPET; 0: there is none.
static HPET: AtomicU64 = AtomicU64::new(0);

/// The registers of a clock, which programs may read: the HPET (IA-PC HPET specification, §2.3).
pub fn clock_page() -> Option<ForeignFrames> {
    let address = HPET.load(Ordering::Relaxed);
    let span = FrameSpan::new(PhysAddr::new(address).pfn(Format::PAGE_SHIFT), 1);
    // SAFETY: 1. the firmware says that these are registers, and the kernel uses them for nothing.
    // 2. programs only read them (see `calls::map_file`), which has no effect.
    (address != 0).then(|| unsafe { ForeignFrames::new(span, MemoryType::Device) })
}

/// How many CPUs there are.
pub fn cpu_count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

/// Starts the other CPUs, each at `main`; those that do not answer within a second are given up.
pub fn start_cpus(main: fn(CpuId) -> !) {
    apic::route_console();
    MAIN.call_once(|| main);
    let bytes = (&raw const start_page_end).addr() - (&raw const start_page).addr();
    let to = (DIRECT + u64::from(PAGE) * 4096) as *mut u8;
    // SAFETY: the first MiB is RAM that is not in use; the code is as long as its symbols say.
    unsafe { to.copy_from_nonoverlapping(&raw const start_page, bytes) };
    for (number, apic) in APICS.iter().enumerate().take(cpu_count()).skip(1) {
        NEXT.store(number, Ordering::Relaxed);
        NEXT_STACK.store(local::stack_end(number), Ordering::Release);
        apic::start(apic.load(Ordering::Relaxed), PAGE);
        let end = super::now() + 1_000_000_000;
        while RUNNING.load(Ordering::Acquire) <= number {
            if super::now() > end {
                log!("CPU {number} does not start; {number} CPUs are used");
                COUNT.store(number, Ordering::Relaxed);
                return;
            }
            clock::wait(1000);
        }
    }
}

/// A CPU's first Rust, on its own stack.
pub(super) extern "C" fn join() -> ! {
    let number = NEXT.load(Ordering::Relaxed);
    local::init(number, apic::init());
    space::kernel_root(space::kernel_table());
    RUNNING.store(number + 1, Ordering::Release);
    match MAIN.get() {
        Some(main) => main(CpuId::new(number)),
        None => super::power_off(3),
    }
}

/// Features of the boot CPU that others lack, for the log.
pub fn facts() -> Facts<5> {
    let features = Features::new();
    let has = |bit: fn(&FeatureInfo) -> bool| features.get_feature_info().is_some_and(|f| bit(&f));
    let extended = features.get_extended_feature_info();
    let has_more = |bit: fn(&ExtendedFeatures) -> bool| extended.as_ref().is_some_and(bit);
    Facts([
        ("tags", space::tags().into()),
        ("rep movsb", has_more(ExtendedFeatures::has_rep_movsb_stosb).into()),
        ("avx", has(FeatureInfo::has_avx).into()),
        ("rdrand", has(FeatureInfo::has_rdrand).into()),
        ("la57", has_more(ExtendedFeatures::has_la57).into()),
    ])
}
