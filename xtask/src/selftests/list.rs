//! The tests of Linux that run here: those about memory management that need only a small machine
//! without devices or modules.

/// A test program of `tools/testing/selftests/mm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Program {
    /// The name of its source without `.c`.
    pub name: &'static str,
    /// Its arguments.
    pub args: &'static [&'static str],
    /// Further files that it consists of.
    pub parts: &'static [&'static str],
    /// Seconds that it may take on a busy machine.
    pub seconds: u64,
}

const fn program(name: &'static str, seconds: u64) -> Program {
    Program { name, args: &[], parts: &[], seconds }
}

/// One about `userfaultfd`.
const fn watched(name: &'static str, args: &'static [&'static str], seconds: u64) -> Program {
    Program { name, args, parts: &["uffd-common.c"], seconds }
}

/// All, from the least demanding on.
pub(super) const PROGRAMS: [Program; 34] = [
    program("map_fixed_noreplace", 60),
    program("madv_populate", 60),
    program("map_populate", 60),
    program("mkdirty", 60),
    program("mremap_test", 180),
    program("mremap_dontunmap", 60),
    program("mlock2-tests", 60),
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
    program("split_huge_page_test", 300),
    Program { args: &["-d", "10"], ..program("transhuge-stress", 240) },
    program("hugepage-mmap", 60),
    program("hugepage-shm", 60),
    program("map_hugetlb", 60),
    program("hugepage-mremap", 120),
    program("hugetlb-madvise", 120),
    program("hugetlb_fault_after_madv", 120),
    program("hugetlb_madv_vs_map", 120),
    program("hugetlb_dio", 120),
    program("thuge-gen", 120),
    program("pagemap_ioctl", 240),
    watched("uffd-unit-tests", &[], 240),
    watched("uffd-stress", &["anon", "20", "16"], 240),
    watched("uffd-wp-mremap", &[], 120),
    program("khugepaged", 300),
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
