//! Plain English: patterns that a reader stumbles over, in comments, documents, messages and names
//! of tests.
//!
//! The table `english` in STYLE.md lists the files and directories that the rule holds for.
//! `cargo xtask english` looks at any other.

use std::path::Path;

use super::prose::{self, Word};
use super::{Finding, Tree, table};

const RULE: &str = "english";
const DOCUMENT: &str = "STYLE.md";

/// Words that open a clause in the place of a subject.
const OPENERS: [&str; 5] = ["who", "whoever", "whose", "whom", "what"];

/// After `That`, these begin a clause; a noun would not.
const AFTER_THAT: [&str; 9] = ["there", "it", "they", "the", "a", "an", "no", "nothing", "each"];

/// Participles that do not end in `ed` and open an inverted sentence.
const PARTICIPLES: [&str; 29] = [
    "bound",
    "bought",
    "broken",
    "brought",
    "built",
    "chosen",
    "done",
    "drawn",
    "driven",
    "found",
    "given",
    "gone",
    "held",
    "hidden",
    "kept",
    "known",
    "left",
    "lost",
    "made",
    "meant",
    "seen",
    "sent",
    "shown",
    "spent",
    "taken",
    "thrown",
    "told",
    "understood",
    "written",
];

/// Participles that are also an imperative: `Read it` is an order, `Read is` an inversion.
const AMBIGUOUS: [&str; 7] = ["read", "put", "set", "cut", "split", "run", "shut"];

/// Words that end in `ed` and are no participles.
const NOUNS: [&str; 7] = ["embed", "exceed", "hundred", "indeed", "proceed", "speed", "succeed"];

/// Persons in the place of callers, CPUs and processes, with a plainer word.
const PERSONS: [(&str, &str); 12] = [
    ("nobody", "no caller, nothing"),
    ("somebody", "a caller, another CPU"),
    ("anybody", "any caller"),
    ("someone", "a caller, a developer"),
    ("anyone", "any caller"),
    ("whoever", "a caller that"),
    ("nobody's", "unused, unowned"),
    ("somebody's", "a caller's"),
    ("he", "it, they"),
    ("him", "it, them"),
    ("his", "its, their"),
    ("himself", "itself, themselves"),
];

pub(crate) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let Some(rows) = tree.file(DOCUMENT).and_then(|text| table::rows(text, RULE)) else {
        findings.push(Finding::new(DOCUMENT, 1, RULE, "the table `english` is missing."));
        return;
    };
    let mut listed = Vec::new();
    for row in &rows {
        for path in row.codes(0) {
            if !tree.exists(&path) {
                let sentence = format!("there is no `{path}`.");
                findings.push(Finding::new(DOCUMENT, row.line, RULE, sentence));
            }
            listed.push(path);
        }
    }
    findings.extend(in_paths(tree, &listed));
}

/// The findings in the files at or below `paths` of the workspace at `root`, listed or not; in all
/// files, where no path is given.
///
/// # Errors
/// A sentence that names the path that cannot be read.
pub fn look(root: &Path, paths: &[String]) -> Result<Vec<Finding>, String> {
    let tree = Tree::load(root)?;
    let mut paths: Vec<String> =
        paths.iter().map(|path| path.trim_start_matches("./").to_owned()).collect();
    if let Some(path) = paths.iter().find(|path| !tree.exists(path)) {
        return Err(format!("there is no `{path}` in the workspace"));
    }
    if paths.is_empty() {
        paths.push(String::new());
    }
    let mut findings = in_paths(&tree, &paths);
    findings.sort();
    findings.dedup();
    Ok(findings)
}

/// The findings in the files at or below `paths`; an empty path stands for the workspace.
fn in_paths(tree: &Tree, paths: &[String]) -> Vec<Finding> {
    let lies_below = |file: &str| {
        paths.iter().any(|path| {
            let path = path.trim_end_matches('/');
            let rest = file.strip_prefix(path);
            path.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    };
    let files = tree.files.iter().filter(|(path, _)| lies_below(path));
    files.flat_map(|(path, text)| in_text(path, text)).collect()
}

/// The findings in one file.
pub(crate) fn in_text(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for sentence in prose::sentences(path, text) {
        let mut find = |line, sentence| findings.push(Finding::new(path, line, RULE, sentence));
        opening(&sentence, &mut find);
        inversions(&sentence, &mut find);
        words(&sentence, &mut find);
    }
    findings
}

/// A clause in the place of the subject at the beginning of the sentence.
fn opening(sentence: &[Word], find: &mut dyn FnMut(usize, String)) {
    let [first, second, ..] = sentence else { return };
    let is_question = sentence.last().is_some_and(|word| word.raw.contains('?'));
    let stem = first.raw.trim_start_matches(|c| c != '{' && !char::is_alphanumeric(c));
    let stem = stem.to_lowercase();
    let stem = stem.split(|c| c != '{' && !char::is_alphanumeric(c)).next().unwrap_or_default();
    let is_opener = OPENERS.contains(&stem) && sentence.len() > 2;
    let is_that = first.raw == "That" && AFTER_THAT.contains(&second.plain.as_str());
    if (is_opener || is_that) && !is_question {
        let sentence = format!("a sentence opens with `{}`: name the actor first.", first.raw);
        find(first.line, sentence);
    }
}

/// A participle in front of its subject, at the beginning or after a colon or semicolon.
fn inversions(sentence: &[Word], find: &mut dyn FnMut(usize, String)) {
    for (at, pair) in sentence.windows(2).enumerate() {
        let begins = at == 0 || sentence[at - 1].raw.ends_with([':', ';']);
        let (first, second) = (&pair[0], pair[1].plain.as_str());
        let name = first.plain.as_str();
        let is_plain = first.raw.to_lowercase() == name;
        let is_participle = PARTICIPLES.contains(&name)
            || name.len() > 4 && name.ends_with("ed") && !NOUNS.contains(&name);
        let is_verb = matches!(second, "is" | "are" | "was" | "were");
        let is_pronoun = matches!(second, "it" | "they" | "he" | "both" | "neither")
            && sentence.get(at + 2).is_some_and(|third| {
                matches!(third.plain.as_str(), "is" | "are" | "was" | "were" | "has" | "have")
            });
        let is_inverted =
            is_participle && (is_verb || is_pronoun) || AMBIGUOUS.contains(&name) && is_verb;
        if begins && is_plain && is_inverted {
            let sentence =
                format!("`{} {second}` is turned round: name the actor first.", first.raw);
            find(first.line, sentence);
        }
    }
}

/// Words that stand for a number or a person.
fn words(sentence: &[Word], find: &mut dyn FnMut(usize, String)) {
    for (at, word) in sentence.iter().enumerate() {
        let next = sentence.get(at + 1).map_or("", |word| word.plain.as_str());
        if word.plain == "so" && matches!(next, "many" | "much") {
            find(word.line, format!("`so {next}` hides a number: name it."));
        }
        if let Some((name, better)) = PERSONS.iter().find(|(name, _)| *name == word.plain) {
            find(word.line, format!("`{name}` is no actor here: say {better}."));
        }
    }
}
