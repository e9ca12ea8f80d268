//! The CPUs, as `cpuinfo` prints them: all like the one that runs this.

use quire_linux::Result;
use quire_linux::files::Text;

use crate::isa;

/// `cpuinfo`.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn show(out: &mut Text) -> Result<()> {
    (0..isa::cpu_count()).try_for_each(|cpu| machine::show(cpu, out))
}

#[cfg(target_arch = "x86_64")]
mod machine {
    //! The facts from the `cpuid` instruction (Intel SDM volume 2A, AMD APM volume 3).

    use quire_linux::Result;
    use quire_linux::files::Text;
    use raw_cpuid::{CpuId, cpuid};

    use crate::isa;

    /// Names of the bits of leaf 1, EDX.
    const BASE: &str = "fpu vme de pse tsc msr pae mce cx8 apic - sep mtrr pge mca cmov pat pse36 \
                        pn clflush - dts acpi mmx fxsr sse sse2 ss ht tm ia64 pbe";
    /// Leaf 1, ECX.
    const MORE: &str = "pni pclmulqdq dtes64 monitor ds_cpl vmx smx est tm2 ssse3 cid sdbg fma \
                        cx16 xtpr pdcm - pcid dca sse4_1 sse4_2 x2apic movbe popcnt \
                        tsc_deadline_timer aes xsave - avx f16c rdrand hypervisor";
    /// Leaf 7, EBX.
    const LATER: &str = "fsgsbase tsc_adjust sgx bmi1 hle avx2 - smep bmi2 erms invpcid rtm cqm - \
                         mpx rdt_a avx512f avx512dq rdseed adx smap avx512ifma - clflushopt clwb \
                         intel_pt avx512pf avx512er avx512cd sha_ni avx512bw avx512vl";
    /// Leaf 0x8000_0001, EDX: those that leaf 1 does not have.
    const EXTENDED: &str = "- - - - - - - - - - - syscall - - - - - - - mp nx - mmxext - - \
                            fxsr_opt pdpe1gb rdtscp - lm 3dnowext 3dnow";

    pub(super) fn show(cpu: usize, out: &mut Text) -> Result<()> {
        let id = CpuId::new();
        let vendor = id.get_vendor_info();
        let vendor = vendor.as_ref().map_or("", |vendor| vendor.as_str());
        out.print(format_args!("processor\t: {cpu}\nvendor_id\t: {vendor}\n"))?;
        if let Some(info) = id.get_feature_info() {
            let (family, model) = (info.family_id(), info.model_id());
            out.print(format_args!("cpu family\t: {family}\nmodel\t\t: {model}\n"))?;
            let brand = id.get_processor_brand_string();
            let brand = brand.as_ref().map_or("", |brand| brand.as_str().trim());
            out.print(format_args!("model name\t: {brand}\nstepping\t: {}\n", info.stepping_id()))?;
        }
        let cpus = isa::cpu_count();
        out.print(format_args!("physical id\t: 0\nsiblings\t: {cpus}\ncore id\t\t: {cpu}\n"))?;
        out.print(format_args!("cpu cores\t: {cpus}\napicid\t\t: {cpu}\n"))?;
        out.print(format_args!("fpu\t\t: yes\nfpu_exception\t: yes\ncpuid level\t: "))?;
        out.print(format_args!("{}\nwp\t\t: yes\nflags\t\t:", cpuid!(0).eax))?;
        flags(out)?;
        let sizes = id.get_processor_capacity_feature_info();
        let (physical, linear) = sizes.map_or((36, 48), |sizes| {
            // Tables of four levels, whatever the CPU could do.
            (sizes.physical_address_bits(), sizes.linear_address_bits().min(48))
        });
        out.print(format_args!("\naddress sizes\t: {physical} bits physical, {linear} bits "))?;
        out.push(b"virtual\npower management:\n\n")
    }

    fn flags(out: &mut Text) -> Result<()> {
        let first = cpuid!(1);
        let seven = if cpuid!(0).eax >= 7 { cpuid!(7).ebx } else { 0 };
        let extended = cpuid!(0x8000_0001).edx;
        let words = [(BASE, first.edx), (EXTENDED, extended), (MORE, first.ecx), (LATER, seven)];
        for (names, bits) in words {
            for (bit, name) in names.split_ascii_whitespace().enumerate() {
                if bits & 1 << bit != 0 && name != "-" {
                    out.print(format_args!(" {name}"))?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(target_arch = "aarch64")]
mod machine {
    //! The features that programs get at their start. The part number is missing: nothing here
    //! reads it.

    use quire_linux::Result;
    use quire_linux::files::Text;

    use crate::isa;

    /// Names of the bits of `AT_HWCAP`, from Linux's documentation (`arch/arm64/elf_hwcaps`).
    const NAMES: &str = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid \
                         asimdrdm jscvt fcma lrcpc dcpop sha3 sm3 sm4 asimddp sha512 sve asimdfhm \
                         dit uscat ilrcpc flagm ssbs sb paca pacg";

    pub(super) fn show(cpu: usize, out: &mut Text) -> Result<()> {
        out.print(format_args!("processor\t: {cpu}\nFeatures\t:"))?;
        let (bits, _) = isa::features();
        for (bit, name) in NAMES.split_ascii_whitespace().enumerate() {
            if bits & 1 << bit != 0 {
                out.print(format_args!(" {name}"))?;
            }
        }
        out.push(b"\nCPU architecture: 8\n\n")
    }
}

#[cfg(target_arch = "riscv64")]
mod machine {
    //! The features that programs get at their start, and the page-table format.

    use quire::arch::Arch;
    use quire_linux::Result;
    use quire_linux::files::Text;

    use crate::isa::{self, Format};

    pub(super) fn show(cpu: usize, out: &mut Text) -> Result<()> {
        let mmu = Format::NAME.rsplit('-').next().unwrap_or(Format::NAME);
        out.print(format_args!("processor\t: {cpu}\nhart\t\t: {cpu}\n"))?;
        out.print(format_args!("isa\t\t: rv64{}\nmmu\t\t: {mmu}\n\n", isa::LETTERS))
    }
}
