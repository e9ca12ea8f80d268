//! The tests of Linux that run here: those about memory management that need only a small machine
//! without devices or modules.

/// A test program of `tools/testing/selftests/mm`, with its arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Program {
    /// Its own name, and a word for its arguments where it runs several times.
    pub name: &'static str,
    /// The name of its source without `.c`.
    pub source: &'static str,
    /// Its arguments.
    pub args: &'static [&'static str],
    /// Further files that it consists of.
    pub parts: &'static [&'static str],
    /// The library that it needs besides the C library.
    pub library: Option<&'static str>,
    /// Seconds that it may take on a busy machine.
    pub seconds: u64,
}

const fn program(name: &'static str, seconds: u64) -> Program {
    Program { name, source: name, args: &[], parts: &[], library: None, seconds }
}

/// One of several runs of a program.
const fn with(
    name: &'static str,
    source: &'static str,
    args: &'static [&'static str],
    seconds: u64,
) -> Program {
    Program { source, args, ..program(name, seconds) }
}

/// One about `userfaultfd`.
const fn watched(name: &'static str, seconds: u64) -> Program {
    Program { parts: &["uffd-common.c"], ..program(name, seconds) }
}

/// A run of the stress test of `userfaultfd` with one kind of memory.
const fn stress(name: &'static str, args: &'static [&'static str]) -> Program {
    Program { source: "uffd-stress", args, ..watched(name, 480) }
}

/// One about protection keys.
const fn keys(name: &'static str, seconds: u64) -> Program {
    Program { parts: &["pkey_util.c"], ..program(name, seconds) }
}

/// One that is linked with a library.
const fn linked(name: &'static str, library: &'static str, seconds: u64) -> Program {
    Program { library: Some(library), ..program(name, seconds) }
}

/// A run of the test of KSM.
const fn merging(name: &'static str, args: &'static [&'static str]) -> Program {
    Program { source: "ksm_tests", args, ..linked(name, "numa", 120) }
}

/// All, from the least demanding on. Some have another name in newer sources.
pub(super) const PROGRAMS: [Program; 69] = [
    program("map_fixed_noreplace", 60),
    program("madv_populate", 60),
    program("map_populate", 60),
    program("mkdirty", 60),
    program("mremap_test", 240),
    program("mremap_dontunmap", 60),
    program("mlock2-tests", 60),
    linked("mlock-random-test", "cap", 60),
    program("on-fault-limit", 60),
    program("soft-dirty", 60),
    program("droppable", 180),
    program("mdwe_test", 120),
    program("mseal_test", 60),
    program("mrelease_test", 60),
    program("prctl_thp_disable", 60),
    program("process_madv", 60),
    program("merge", 60),
    program("guard-regions", 120),
    program("pfnmap", 60),
    program("gup_longterm", 120),
    program("gup_test", 60),
    program("va_high_addr_switch", 60),
    linked("memfd_secret", "cap", 60),
    keys("protection_keys", 240),
    keys("pkey_sighandler_tests", 60),
    program("compaction_test", 240),
    program("memory-failure", 60),
    linked("migration", "numa", 120),
    linked("rmap", "numa", 60),
    program("hmm-tests", 60),
    merging("ksm_tests:huge", &["-H", "-s", "100"]),
    merging("ksm_tests:time", &["-P", "-s", "100"]),
    merging("ksm_tests:merge", &["-M", "-p", "10"]),
    merging("ksm_tests:unmerge", &["-U"]),
    merging("ksm_tests:zero", &["-Z", "-p", "10", "-z", "0"]),
    merging("ksm_tests:zero-pages", &["-Z", "-p", "10", "-z", "1"]),
    program("ksm_functional_tests", 120),
    program("split_huge_page_test", 300),
    program("folio_split_race_test", 300),
    with("transhuge-stress", "transhuge-stress", &["-d", "10"], 240),
    program("hugepage-mmap", 60),
    program("hugepage-shm", 60),
    program("map_hugetlb", 60),
    program("hugepage-mremap", 120),
    program("hugepage-vmemmap", 60),
    program("hugetlb-mmap", 60),
    program("hugetlb-shm", 60),
    program("hugetlb-mremap", 120),
    program("hugetlb-vmemmap", 60),
    program("hugetlb-madvise", 120),
    program("hugetlb-read-hwpoison", 60),
    program("hugetlb-soft-offline", 60),
    program("hugetlb_fault_after_madv", 240),
    program("hugetlb_madv_vs_map", 120),
    program("hugetlb_dio", 120),
    program("thuge-gen", 120),
    program("pagemap_ioctl", 240),
    watched("uffd-unit-tests", 480),
    stress("uffd-stress", &["anon", "20", "16"]),
    stress("uffd-stress:shmem", &["shmem", "20", "16"]),
    stress("uffd-stress:shmem-private", &["shmem-private", "20", "16"]),
    stress("uffd-stress:hugetlb", &["hugetlb", "128", "32"]),
    stress("uffd-stress:hugetlb-private", &["hugetlb-private", "128", "32"]),
    watched("uffd-wp-mremap", 480),
    program("khugepaged", 300),
    with("khugepaged:order-2", "khugepaged", &["-s", "2"], 300),
    with("khugepaged:shmem", "khugepaged", &["all:shmem"], 300),
    with("khugepaged:shmem-order-4", "khugepaged", &["-s", "4", "all:shmem"], 300),
    program("cow", 600),
];

/// The files that all are linked with, as far as there are such: the last two are one, before and
/// after it got another name.
pub(super) const COMMON: [&str; 3] = ["vm_util.c", "thp_settings.c", "hugepage_settings.c"];

#[cfg(test)]
mod tests {
    use super::PROGRAMS;

    #[test]
    fn each_program_is_run_once() {
        for (at, program) in PROGRAMS.iter().enumerate() {
            assert!(PROGRAMS[..at].iter().all(|other| other.name != program.name), "{program:?}");
        }
    }
}
