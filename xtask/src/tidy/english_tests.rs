//! The rule `english` finds each pattern, and leaves good sentences alone. The sentences stand in
//! text files beside this one, one for each line, so that the rule does not find them there.

use super::Finding;
use super::english::in_text;
use super::prose;

const BAD: &str = include_str!("english_bad.txt");
const GOOD: &str = include_str!("english_good.txt");

fn found(path: &str, text: &str) -> Vec<usize> {
    in_text(path, text).iter().map(|finding: &Finding| finding.line).collect()
}

#[test]
fn each_pattern_is_found() {
    for line in BAD.lines() {
        assert!(!found("a.md", line).is_empty(), "{line}");
        assert!(!found("a.rs", &format!("/// {line}\nfn f() {{}}\n")).is_empty(), "{line}");
        assert!(!found("a.c", &format!("int a; /* {line} */\n")).is_empty(), "{line}");
        assert!(!found("a.sh", &format!("# {line}\n")).is_empty(), "{line}");
        assert!(!found("a.toml", &format!("a = 1 # {line}\n")).is_empty(), "{line}");
        assert!(!found("a.rs", &format!("const A: &str = \"{line}\";\n")).is_empty(), "{line}");
    }
}

#[test]
fn good_sentences_are_left_alone() {
    for line in GOOD.lines() {
        assert!(found("a.md", line).is_empty(), "{line}");
        assert!(found("a.rs", &format!("/// {line}\nfn f() {{}}\n")).is_empty(), "{line}");
        assert!(found("a.sh", &format!("# {line}\n")).is_empty(), "{line}");
    }
}

#[test]
fn a_sentence_goes_on_over_comment_lines() {
    let (first, second) = BAD.lines().next().and_then(|line| line.split_once(' ')).unwrap();
    let text = format!("/// Good so far.\n/// All of it. {first}\n/// {second}\nfn f() {{}}\n");
    assert_eq!(found("a.rs", &text), [2]);
    let question = "// Good. What does\n// this say?";
    assert!(found("a.rs", question).is_empty());
    let lower = "// It is the one\n// who opens the file.\nfn f() {}\n";
    assert!(found("a.rs", lower).is_empty(), "the line begins so, and the sentence does not");
}

#[test]
fn code_and_drawings_are_left_alone() {
    let line = BAD.lines().next().unwrap();
    assert!(found("a.md", &format!("```text\n{line}\n```\n")).is_empty());
    assert!(found("a.md", &format!("Such as `{line}` here.\n")).is_empty());
    assert!(found("a.rs", &format!("//! ```text\n//! {line}\n//! ```\n")).is_empty());
}

#[test]
fn names_of_tests_are_read_as_sentences() {
    let text = format!("#[test]\nfn {}_is_found() {{}}\n", ["what", "breaks"].join("_"));
    assert_eq!(found("a.rs", &text), [2]);
    assert!(found("a.rs", "#[test]\nfn a_break_is_found() {}\n").is_empty());
}

#[test]
fn a_block_comment_of_c_is_one_text() {
    let sentences = prose::sentences("a.c", "/*\n * One is here.\n * Two goes\n * on.\n */\n");
    let lines: Vec<_> = sentences.iter().map(|words| (words[0].line, words.len())).collect();
    assert_eq!(lines, [(2, 3), (3, 3)]);
}
