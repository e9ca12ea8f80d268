//! The table of all pairs.

use super::changes::{CHANGES, Changes};
use super::place::On;
use super::takes::{TAKES, Takes};

/// The kinds of memory of which a pair has a scenario.
pub(super) fn kinds(takes: &Takes, changes: &Changes) -> impl Iterator<Item = On> + use<> {
    let (one, other) = (takes.on, changes.on);
    [On::Anon, On::File].into_iter().filter(move |&kind| one.has(kind) && other.has(kind))
}

/// Calls that have no row or column, and why.
const LEFT_OUT: [(&str, &str); 5] = [
    ("relieve a group", "pages out as `reclaim` does, of fewer spaces"),
    ("truncate, punch a hole", "take memory from a file for ever: `files.rs` has their scenarios"),
    ("memory that fails", "loses content, so that no word is due; `failed.rs` has its stories"),
    ("end a space", "no CPU runs in it any more; `leaving.rs` has its scenarios"),
    ("advise, seal", "change areas and no page table"),
];

fn table() -> String {
    use std::fmt::Write;

    let mut text = String::from(PREFACE);
    let columns = TAKES.map(|takes| takes.name);
    let _ = writeln!(text, "| | {} |", columns.join(" | "));
    let _ = writeln!(text, "|---|{}", "---|".repeat(columns.len()));
    for changes in &CHANGES {
        let _ = write!(text, "| {} |", changes.name);
        for takes in &TAKES {
            let both: Vec<_> = kinds(takes, changes).collect();
            let cell = match both[..] {
                [] => "–",
                [On::File] => "file",
                [_] => "anon",
                _ => "both",
            };
            let _ = write!(text, " {cell} |");
        }
        text.push('\n');
    }
    text.push_str(
        "\n–: one of the two is for anonymous memory only, the other for files only, so they never \
         meet on a page.\n\nNot in the table:\n\n",
    );
    for (call, why) in LEFT_OUT {
        let _ = writeln!(text, "* *{call}*: {why}.");
    }
    text
}

const PREFACE: &str = "\
# Pairs of calls that meet

`crates/sim/tests/shuttle/pairs` plays each call that takes memory back (columns) beside each call
that changes a space (rows), in many orders of their steps, while a third CPU has the translations
of all pages in its TLB. When the change returns, that CPU sees it, and nothing else. The cells name
the memory that the two meet on. `QUIRE_BLESS=1` in the environment of that test writes this file.

";

#[test]
fn the_table_of_pairs_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pairs.md");
    let table = table();
    if std::env::var_os("QUIRE_BLESS").is_some() {
        std::fs::write(path, &table).expect("the documents are there");
    }
    let is = std::fs::read_to_string(path).expect("the documents are there");
    assert_eq!(is, table, "run this test with QUIRE_BLESS=1");
}
