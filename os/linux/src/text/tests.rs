//! Golden texts: lines that a Linux 6.18 printed, or that its format prescribes.

use std::string::String;

use super::*;
use crate::Errno;
use crate::exec::Rights;
use crate::files::Text;

fn printed(print: impl FnOnce(&mut Text) -> crate::Result<()>) -> String {
    let mut out = Text::new();
    print(&mut out).unwrap();
    String::from_utf8(out.bytes().to_vec()).unwrap()
}

const AREA: AreaLine<'static> = AreaLine {
    start: 0x5618_5009_1000,
    end: 0x5618_5009_3000,
    rights: Rights { read: true, write: false, execute: false },
    shared: false,
    offset: 0,
    device: (0xfe, 0),
    inode: 247_026,
    name: b"/usr/bin/cat",
};

#[test]
fn an_area_is_told_as_linux_tells_it() {
    let text = "561850091000-561850093000 r--p 00000000 fe:00 247026                     \
                /usr/bin/cat\n";
    assert_eq!(printed(|out| AREA.print(out)), text);
    let rights = Rights { read: true, write: true, execute: false };
    let (start, end) = (0x7f42_bff8_0000, 0x7f42_c004_4000);
    let bare = AreaLine { start, end, rights, device: (0, 0), inode: 0, name: b"", ..AREA };
    let text = "7f42bff80000-7f42c0044000 rw-p 00000000 00:00 0 \n";
    assert_eq!(printed(|out| bare.print(out)), text);
    let (start, end) = (0x40_0000, 0x40_1000);
    let rights = Rights { read: true, write: false, execute: true };
    let low = AreaLine { start, end, rights, shared: true, offset: 0x2000, ..bare };
    assert_eq!(printed(|out| low.print(out)), "00400000-00401000 r-xs 00002000 00:00 0 \n");
}

#[test]
fn a_newline_in_a_name_does_not_end_the_line() {
    let text = printed(|out| AreaLine { name: b"/a\nb", ..AREA }.print(out));
    assert!(text.ends_with(" /a\\012b\n"), "{text}");
}

#[test]
fn smaps_has_all_lines_in_linux_order() {
    let held = Held {
        rss: 8 << 10,
        pss: 2 << 10,
        shared_clean: 8 << 10,
        referenced: 8 << 10,
        file_huge: 4 << 10,
        ..Held::default()
    };
    let flags = ["rd", "mr", "mw", "me"].into_iter();
    let text = printed(|out| held.print(out, 8 << 10, 4 << 10, false, flags));
    assert_eq!(text, SMAPS);
}

const SMAPS: &str = "\
Size:                  8 kB
KernelPageSize:        4 kB
MMUPageSize:           4 kB
Rss:                   8 kB
Pss:                   2 kB
Pss_Dirty:             0 kB
Shared_Clean:          8 kB
Shared_Dirty:          0 kB
Private_Clean:         0 kB
Private_Dirty:         0 kB
Referenced:            8 kB
Anonymous:             0 kB
KSM:                   0 kB
LazyFree:              0 kB
AnonHugePages:         0 kB
ShmemPmdMapped:        0 kB
FilePmdMapped:         4 kB
Shared_Hugetlb:        0 kB
Private_Hugetlb:       0 kB
Swap:                  0 kB
SwapPss:               0 kB
Locked:                0 kB
THPeligible:           0
VmFlags: rd mr mw me \n";

#[test]
fn a_rollup_adds_areas_and_keeps_their_flags() {
    let one = Held { rss: 1000, pss: 512, pss_anon: 512, locked: 24, ..Held::default() };
    let sum = one.and(&one).and(&Held { rss: 48, pss_shmem: 3 << 20, ..Held::default() });
    let text = printed(|out| sum.print_rollup(out));
    let begin = "Rss:                   2 kB\nPss:                   1 kB\n\
                 Pss_Dirty:             0 kB\nPss_Anon:              1 kB\n\
                 Pss_File:              0 kB\nPss_Shmem:          3072 kB\n\
                 Shared_Clean:          0 kB\n";
    assert!(text.starts_with(begin), "{text}");
    assert!(text.ends_with("SwapPss:               0 kB\nLocked:                0 kB\n"), "{text}");
    assert!(!text.contains("Size") && !text.contains("VmFlags"));
}

#[test]
fn a_sum_forgets_no_field() {
    let one = Held {
        rss: 1,
        pss: 2,
        pss_dirty: 3,
        pss_anon: 4,
        pss_file: 5,
        pss_shmem: 6,
        shared_clean: 7,
        shared_dirty: 8,
        private_clean: 9,
        private_dirty: 10,
        referenced: 11,
        anonymous: 12,
        lazy_free: 13,
        anon_huge: 14,
        shmem_huge: 15,
        file_huge: 16,
        locked: 17,
        swap: 18,
        shared_reserved: 19,
        private_reserved: 20,
    };
    assert_eq!(one.and(&Held::default()), one);
    assert_eq!(Held::default().and(&one), one);
}

fn stat() -> Stat<'static> {
    Stat {
        id: 31587,
        name: b"cat",
        state: 'R',
        parent: 31566,
        group: 31567,
        session: 28172,
        ran: 14,
        children_ran: 16,
        faults: (124, 11),
        threads: 2,
        began: 280_608,
        total: 3_796_992,
        resident_pages: 358,
        stack: 140_724_484_392_128,
        signals: [1, 2, u64::MAX, 4],
        cpu: 1,
        heap: 94_898_812_809_216,
        args: 47..48,
        envs: 48..50,
        status: 0x0900,
    }
}

#[test]
fn stat_has_52_fields_each_in_its_place() {
    let text = printed(|out| stat().print(out));
    let fields: std::vec::Vec<&str> = text.trim_end().split(' ').collect();
    assert_eq!(fields.len(), 52);
    assert!(text.ends_with('\n'));
    // Numbered from 1, as in the manual page.
    for (field, value) in [
        (1, "31587"),
        (2, "(cat)"),
        (3, "R"),
        (4, "31566"),
        (5, "31567"),
        (6, "28172"),
        (8, "-1"),
        (10, "124"),
        (11, "11"),
        (14, "14"),
        (16, "16"),
        (18, "20"),
        (20, "2"),
        (22, "280608"),
        (23, "3796992"),
        (24, "358"),
        (25, "18446744073709551615"),
        (28, "140724484392128"),
        (31, "1"),
        (32, "2"),
        (33, "2147483647"),
        (34, "4"),
        (38, "17"),
        (39, "1"),
        (47, "94898812809216"),
        (48, "47"),
        (49, "48"),
        (50, "48"),
        (51, "50"),
        (52, "2304"),
    ] {
        assert_eq!(fields[field - 1], value, "field {field}");
    }
}

#[test]
fn statm_counts_pages() {
    let page = 4096;
    let sizes = Sizes {
        total: 927 * page,
        anon: 29 * page,
        shared: 404 * page,
        code: 5 * page,
        data: 252 * page,
        stack: 33 * page,
        locked: 0,
        swap: 0,
        reserved: 8 * page,
    };
    assert_eq!(printed(|out| sizes.print(out, page)), "927 433 404 5 0 285 0\n");
}

fn status() -> Status<'static> {
    let sizes = Sizes {
        total: 3708 << 10,
        anon: 120 << 10,
        shared: 0,
        code: 20 << 10,
        data: 1008 << 10,
        stack: 132 << 10,
        locked: 0,
        swap: 12 << 10,
        reserved: 2 << 20,
    };
    Status {
        name: b"cat",
        umask: 0o22,
        state: ('R', "running"),
        may: &crate::credentials::ROOT,
        pid: 7,
        tid: 8,
        parent: 1,
        group: 6,
        session: 5,
        descriptors: 64,
        memory: Some((sizes, Peaks { total: 0, resident: 1780 << 10, tables: 44 << 10 })),
        thp: true,
        threads: 1,
        signals_max: 1024,
        masks: Masks { blocked: 0x1_0000, ..Masks::default() },
        cpus: 2,
        switches: (3, 4),
    }
}

const STATUS: &str = "\
Name:\tcat
Umask:\t0022
State:\tR (running)
Tgid:\t7
Ngid:\t0
Pid:\t8
PPid:\t1
TracerPid:\t0
Uid:\t0\t0\t0\t0
Gid:\t0\t0\t0\t0
FDSize:\t64
Groups:\t \nNStgid:\t7
NSpid:\t8
NSpgid:\t6
NSsid:\t5
Kthread:\t0
VmPeak:\t    3708 kB
VmSize:\t    3708 kB
VmLck:\t       0 kB
VmPin:\t       0 kB
VmHWM:\t    1780 kB
VmRSS:\t     120 kB
RssAnon:\t     120 kB
RssFile:\t       0 kB
RssShmem:\t       0 kB
VmData:\t    1008 kB
VmStk:\t     132 kB
VmExe:\t      20 kB
VmLib:\t       0 kB
VmPTE:\t      44 kB
VmSwap:\t      12 kB
HugetlbPages:\t    2048 kB
CoreDumping:\t0
THP_enabled:\t1
untag_mask:\t0xffffffffffffffff
Threads:\t1
SigQ:\t0/1024
SigPnd:\t0000000000000000
ShdPnd:\t0000000000000000
SigBlk:\t0000000000010000
SigIgn:\t0000000000000000
SigCgt:\t0000000000000000
CapInh:\t0000000000000000
CapPrm:\t000001ffffffffff
CapEff:\t000001ffffffffff
CapBnd:\t000001ffffffffff
CapAmb:\t0000000000000000
NoNewPrivs:\t0
Seccomp:\t0
Seccomp_filters:\t0
Cpus_allowed:\t3
Cpus_allowed_list:\t0-1
Mems_allowed:\t1
Mems_allowed_list:\t0
voluntary_ctxt_switches:\t3
nonvoluntary_ctxt_switches:\t4
";

#[test]
fn status_has_the_lines_of_linux() {
    assert_eq!(printed(|out| status().print(out)), STATUS);
}

#[test]
fn a_process_that_ended_has_no_memory_lines() {
    let ended = Status { memory: None, state: ('Z', "zombie"), cpus: 1, ..status() };
    let text = printed(|out| ended.print(out));
    assert!(text.contains("State:\tZ (zombie)\n") && text.contains("Cpus_allowed_list:\t0\n"));
    assert!(!text.contains("Vm") && !text.contains("THP_enabled"));
}

#[test]
fn the_active_choice_stands_in_brackets() {
    let words = ["always", "inherit", "madvise", "never"];
    let text = |active| printed(|out| choices(out, &words, active));
    assert_eq!(text(0), "[always] inherit madvise never\n");
    assert_eq!(text(3), "always inherit madvise [never]\n");
}

#[test]
fn a_write_is_one_word_or_number() {
    assert_eq!(word(b"never\n"), Ok("never"));
    assert_eq!(word(b"never\n\n"), Ok("never\n"));
    assert_eq!(word(b"\xff"), Err(Errno::EINVAL));
    assert_eq!(number(b"511\n"), Ok(511));
    assert_eq!(number(b"+7"), Ok(7));
    for wrong in [&b""[..], b"\n", b"-1", b"12a", b"0x10", b"1 2"] {
        assert_eq!(number(wrong), Err(Errno::EINVAL), "{wrong:?}");
    }
    assert_eq!(number(b"18446744073709551616"), Err(Errno::ERANGE));
}
