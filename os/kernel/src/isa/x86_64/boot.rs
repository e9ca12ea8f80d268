//! From the loader to [`crate::start`].
//!
//! PVH enters in 32-bit mode without paging, `ebx` pointing at the start info. The first tables
//! map the lowest 4 GiB three times, in blocks of 2 MiB: where they are (to go on), at
//! [`DIRECT`](super::DIRECT), and the first GiB at [`IMAGE`](super::IMAGE). They stay for the other
//! CPUs, which come through the same door; the kernel's final tables replace them on each CPU.

use core::arch::global_asm;

use pvh::start_info::{MemmapTableEntry, MemmapType, ModlistEntry, StartInfo};

use super::{DIRECT, apic, clock, console, cpus, disk, local};
use crate::isa::Boot;

global_asm!(
    r#"
    .pushsection .note.pvh, "a", @note
    .balign 4
    .long 4, 4, 18           // XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .long pvh_start
    .popsection

    .pushsection .boot, "awx", @progbits
    .code32
    .globl pvh_start
pvh_start:
    cld
    mov edi, ebx             // the start info, for later
    mov esp, offset boot_stack_end
    // Four page directories: 2048 blocks of 2 MiB, present, writable, large.
    mov eax, 0x83
    xor edx, edx
    mov ecx, offset boot_directories
2:  mov [ecx], eax
    mov [ecx + 4], edx
    add ecx, 8
    add eax, 0x200000
    jnc 2b
    .globl boot_long
    // Also the other CPUs come here, with edi = 0 and tables made.
boot_long:
    mov eax, cr4
    or eax, 0x6a0            // PAE, PGE, OSFXSR, OSXMMEXCPT
    mov cr4, eax
    mov eax, offset boot_root
    mov cr3, eax
    mov ecx, 0x277           // PAT: WB, WC, UC-, UC, and WB, WT, UC-, UC as after reset
    mov eax, 0x00070106
    mov edx, 0x00070406
    wrmsr
    mov ecx, 0xc0000080      // EFER: system calls, long mode, no-execute
    rdmsr
    or eax, 0x901
    wrmsr
    mov eax, 0x80010033      // CR0: paging, write protection, FPU
    mov cr0, eax
    lgdt [boot_gdt_pointer]
    .byte 0xea               // a far jump: the assembler knows none in this syntax
    .long boot_64
    .word 8
    .code64
boot_64:
    xor eax, eax
    mov ds, ax
    mov es, ax
    mov ss, ax
    mov fs, ax
    mov gs, ax
    test edi, edi
    jz 3f
    mov rsp, offset {first_stack}
    add rsp, {stack_end}
    xor ebp, ebp
    mov rax, offset {boot}
    call rax
    ud2
3:  mov rax, offset {next_stack}
    mov rsp, [rax]
    xor ebp, ebp
    mov rax, offset {join}
    call rax
    ud2

    .balign 8
boot_gdt:
    .quad 0
    .quad 0x00af9b000000ffff // 64-bit code
boot_gdt_pointer:
    .word 15
    .long boot_gdt
    .balign 4096
    .globl boot_root
boot_root:
    .quad boot_low + 3
    .fill 255, 8, 0
    .quad boot_low + 3
    .fill 254, 8, 0
    .quad boot_high + 3
boot_low:
    .quad boot_directories + 3
    .quad boot_directories + 0x1003
    .quad boot_directories + 0x2003
    .quad boot_directories + 0x3003
    .fill 508, 8, 0
boot_high:
    .fill 510, 8, 0
    .quad boot_directories + 3
    .quad 0
boot_directories:
    .fill 4 * 512, 8, 0
    .fill 64, 8, 0
boot_stack_end:
    .popsection
    "#,
    first_stack = sym local::STACKS,
    stack_end = const local::FIRST_STACK_END,
    next_stack = sym cpus::NEXT_STACK,
    boot = sym boot,
    join = sym cpus::join,
);

/// The boot CPU's first Rust.
extern "C" fn boot(start_info: u32) -> ! {
    console::init();
    let at = |address: u64| (DIRECT + address) as *const u8;
    // SAFETY: the loader says where it put the structure, below 4 GiB, which is mapped; nothing
    // writes it any more.
    let info = unsafe { StartInfo::from_ptr(at(start_info.into()).cast()) };
    let Some(info) = info else { panic!("the loader's start info has the wrong magic number") };
    let mut boot = Boot {
        ram: [(0, 0); 8],
        image: image(),
        initrd: (0, 0),
        keep: (0, 0),
        command_line: command_line(info.cmdline_paddr),
    };
    // SAFETY: as above: an array of that many entries.
    let map = unsafe {
        core::slice::from_raw_parts(
            at(info.memmap_paddr).cast::<MemmapTableEntry>(),
            info.memmap_entries as usize,
        )
    };
    let usable = map.iter().filter(|entry| entry.ty() == MemmapType::Ram).filter_map(whole_pages);
    for (slot, piece) in boot.ram.iter_mut().zip(usable) {
        *slot = piece;
    }
    if info.nr_modules > 0 {
        // SAFETY: as above.
        let module = unsafe { &*at(info.modlist_paddr).cast::<ModlistEntry>() };
        boot.initrd = (module.paddr, module.size);
    }
    local::init(0, apic::init());
    clock::init();
    cpus::find(info.rsdp_paddr);
    disk::find();
    crate::start(boot)
}

/// The whole pages of a piece of memory above the first MiB, which belongs to the firmware.
fn whole_pages(entry: &MemmapTableEntry) -> Option<(u64, u64)> {
    let start = entry.addr.next_multiple_of(4096).max(1 << 20);
    let end = (entry.addr + entry.size) & !4095;
    (start < end).then(|| (start, end - start))
}

/// The physical bytes of the kernel's image.
fn image() -> (u64, u64) {
    unsafe extern "C" {
        static __image_start: u8;
        static __image_end: u8;
    }
    let start = (&raw const __image_start).addr() as u64;
    (start, (&raw const __image_end).addr() as u64 - super::IMAGE - start)
}

/// The kernel's command line; empty when it is missing or no UTF-8.
fn command_line(address: u64) -> &'static str {
    if address == 0 {
        return "";
    }
    // SAFETY: the loader says where it put the string, below 4 GiB, ended by a zero; nothing writes
    // it, and `memory` keeps the first MiB and all that is not RAM out of use.
    let text = unsafe { core::ffi::CStr::from_ptr((DIRECT + address) as *const _) };
    text.to_str().unwrap_or("")
}
