//! The format both ways, and damaged texts.

use proptest::prelude::*;

use super::*;

const TEXT: &str = "\
quire recording 1
program a.out
note counts to ten
page 4096
file 20000 a.out
segment r-- 0 4000 0
segment r-x 4096 10000 8192
segment rw- 14096 904 22288
file 5 lib c.so
touches 4
r 0 0
x 0 1 3
? 1 0
w 0 4
";

#[test]
fn a_recording_reads_back_from_its_print() {
    let recording: Recording = TEXT.parse().unwrap();
    assert_eq!(recording.to_string(), TEXT);
    assert_eq!((recording.pages(), recording.text_pages()), (6, 3));
    assert_eq!(recording.files[1].name, "lib c.so");
    assert_eq!(recording.touches[1], Touch { kind: Kind::Exec, file: 0, first: 1, count: 3 });
}

#[test]
fn pages_that_follow_each_other_become_one_run() {
    let mut recording: Recording = TEXT.parse().unwrap();
    recording.touches.clear();
    for (kind, file, page) in [
        (Kind::Exec, 0, 1),
        (Kind::Exec, 0, 2),
        (Kind::Read, 0, 3),
        (Kind::Read, 1, 4),
        (Kind::Read, 1, 3),
        (Kind::Read, 1, 5),
    ] {
        recording.touch(kind, file, page);
    }
    let counts: Vec<u64> = recording.touches.iter().map(|touch| touch.count).collect();
    assert_eq!(counts, [2, 1, 1, 1, 1]);
}

/// The sentence about [`TEXT`] with one thing changed.
fn damage(from: &str, to: &str) -> String {
    assert!(TEXT.contains(from), "{from}");
    TEXT.replacen(from, to, 1).parse::<Recording>().unwrap_err().to_string()
}

#[test]
fn damage_is_told_in_one_sentence_that_names_the_line() {
    for (from, to, says) in [
        ("quire", "quiet", "it is no recording"),
        ("recording 1", "recording 2", "of version 2"),
        ("program", "progam", "line 2 should read `program NAME`"),
        ("page 4096", "page many", "line 4 should read `page BYTES`"),
        ("page 4096", "page 4095", "line 4: pages have a power of two"),
        ("page 4096", "page 512", "line 4: pages have a power of two"),
        ("file 20000 a.out", "file 20000", "line 5 should read `file BYTES NAME`"),
        ("file 20000", "file -1", "line 5 should read `file BYTES NAME`"),
        ("file 20000", "file 9999999999999999999", "line 5 reaches beyond"),
        ("r-- 0 4000 0", "r-- 0 4000", "line 6 should read `segment"),
        ("r-- 0 4000 0", "r-- 0 4000 0 0", "line 6 should read `segment"),
        ("r-- 0", "x-- 0", "line 6 should read `segment"),
        ("r-- 0", "r--- 0", "line 6 should read `segment"),
        ("4096 10000 8192", "4096 19000 8192", "line 7 reaches beyond the end of its file"),
        ("r-- 0 4000", "r-- 18446744073709551615 2", "line 6 reaches beyond"),
        ("4096 10000 8192", "4096 10000 8193", "line 7: offset and address differ"),
        ("touches 4\n", "", "line 10 should read `touches LINES`"),
        ("touches 4", "touches", "line 10 should read `touches LINES`"),
        ("touches 4", "touches 3", "it has 4 lines of touches and says that there are 3"),
        ("x 0 1 3", "y 0 1 3", "line 12 should read `KIND"),
        ("x 0 1 3", "x 0 1 0", "line 12 should read `KIND"),
        ("x 0 1 3", "x 0", "line 12 should read `KIND"),
        ("x 0 1 3", "x 0 1 3 4", "line 12 should read `KIND"),
        ("x 0 1 3", "x 2 1 3", "line 12: there is no file 2"),
        ("x 0 1 3", "x 0 1 5", "line 12: the file has no page 5"),
        ("x 0 1 3", "x 0 1 18446744073709551615", "line 12: the file has no page"),
        ("x 0 1 3", "x 0 0 3", "line 12: page 0 was touched before"),
    ] {
        let found = damage(from, to);
        assert!(found.contains(says) && !found.contains('\n'), "{from} -> {to}: {found}");
    }
}

#[test]
fn a_recording_that_was_cut_off_is_damaged() {
    for line in 0..TEXT.lines().count() {
        let cut: String = TEXT.split_inclusive('\n').take(line).collect();
        let says = cut.parse::<Recording>().unwrap_err().to_string();
        match line {
            0 => assert!(says.contains("no recording"), "{says}"),
            1..10 => assert!(says.contains(&format!("it ends in line {}", line + 1)), "{says}"),
            _ => assert!(says.contains("says that there are 4"), "{says}"),
        }
    }
}

proptest! {
    #[test]
    fn any_text_reads_or_is_refused_without_panic(text in ".*") {
        let _ = text.parse::<Recording>();
    }

    #[test]
    fn any_change_of_a_byte_reads_or_is_refused_without_panic(at in 0..TEXT.len(), byte: u8) {
        let mut bytes = TEXT.as_bytes().to_vec();
        bytes[at] = byte;
        let _ = String::from_utf8_lossy(&bytes).parse::<Recording>();
    }
}
