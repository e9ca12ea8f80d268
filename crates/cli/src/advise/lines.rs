//! The exact lines that bring a setting about.

use super::linux::{Setting, Word};

const FOLDER: &str = "/sys/kernel/mm/transparent_hugepage";

/// Lines for one way to set something, with the way.
pub(super) struct Lines {
    pub(super) way: &'static str,
    pub(super) lines: Vec<String>,
}

/// All ways to bring `setting` about, for pages of `page` bytes.
pub(super) fn lines(setting: &Setting, page: u64) -> Vec<Lines> {
    let switches = setting.switches(page);
    let inherits = setting.sizes.contains(&Word::Inherit);
    let top = inherits.then(|| (format!("{FOLDER}/enabled"), switches.top));
    let size = |(bytes, word): &(u64, String)| (file(*bytes), word.clone());
    let all: Vec<(String, String)> =
        top.into_iter().chain(switches.sizes.iter().map(size)).collect();
    let shell = shell(&all);
    let unit = shell.iter().map(|line| format!("ExecStartPre=+/bin/sh -c '{line}'"));
    vec![
        Lines { way: "Until the next boot, as root", lines: shell.clone() },
        Lines {
            way: "At each boot, in /etc/tmpfiles.d/folios.conf",
            lines: all.iter().map(|(file, word)| format!("w {file} - - - - {word}")).collect(),
        },
        Lines {
            way: "When a unit starts, in its drop-in (it holds for the whole machine)",
            lines: std::iter::once("[Service]".to_owned()).chain(unit).collect(),
        },
        Lines { way: "For one process", lines: process(setting, page) },
    ]
}

/// The file of the switch for folios of `bytes`.
fn file(bytes: u64) -> String {
    format!("{FOLDER}/hugepages-{}kB/enabled", bytes >> 10)
}

/// One line for each word, with all files that get it.
fn shell(all: &[(String, String)]) -> Vec<String> {
    let words = all.iter().map(|(_, word)| word).collect::<std::collections::BTreeSet<_>>();
    let line = |word: &String| {
        let files = all.iter().filter(|(_, own)| own == word).map(|(file, _)| file.as_str());
        format!("echo {word} | tee {}", files.collect::<Vec<_>>().join(" "))
    };
    words.into_iter().map(line).collect()
}

/// How one process gets the sizes, or keeps out of them.
fn process(setting: &Setting, page: u64) -> Vec<String> {
    let orders = (0..setting.sizes.len()).filter(|order| setting.sizes[*order] != Word::Never);
    let advised: Vec<_> = orders.map(|order| (file(page << order), "madvise".to_owned())).collect();
    if advised.is_empty() {
        let call = "prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);  /* before exec; children inherit it */";
        return vec![call.to_owned()];
    }
    let mut lines = shell(&advised);
    lines.push("madvise(start, length, MADV_HUGEPAGE);  /* for each large area */".to_owned());
    let glibc =
        "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 PROGRAM  # the same for glibc's malloc, where";
    lines.push(format!("{glibc} {FOLDER}/enabled is madvise"));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(setting: Setting, way: usize) -> String {
        lines(&setting, 4096).remove(way).lines.join("\n")
    }

    #[test]
    fn f1_lines_name_each_switch_with_its_word() {
        let setting = Setting::never().with(4, Word::Always);
        let sysfs = text(setting, 0);
        assert!(sysfs.contains(&format!("echo always | tee {FOLDER}/hugepages-64kB/enabled\n")));
        assert!(sysfs.contains("echo never | tee") && sysfs.contains("hugepages-2048kB/enabled"));
        assert_eq!(sysfs.matches("enabled").count(), 8);
        assert!(text(setting, 1).contains("hugepages-64kB/enabled - - - - always"));
        assert!(text(setting, 2).starts_with("[Service]\nExecStartPre=+/bin/sh"));
        assert!(text(setting, 3).contains("MADV_HUGEPAGE"));
        assert!(text(Setting::never(), 3).contains("PR_SET_THP_DISABLE"));
    }

    #[test]
    fn f1_a_size_that_inherits_needs_the_switch_of_all_sizes() {
        let setting = Setting { top: Word::Madvise, ..Setting::never().with(9, Word::Inherit) };
        assert!(text(setting, 0).contains(&format!("echo madvise | tee {FOLDER}/enabled\n")));
    }
}
