//! Documents: the README and the guide show code as it is, and links lead somewhere.
//!
//! The guide names each piece of code by its file and by the beginning of its first line:
//!
//! ```text
//!   <!-- tidy: code examples/tiny/src/board.rs impl Hardware for Board -->
//! ```
//!
//! The piece goes on to the line that closes it: the next with the same indentation that begins
//! with a closing bracket, or the same line if it ends with a semicolon. Comments and attributes
//! directly above belong to it.

use std::fs;
use std::path::Path;

use super::{Finding, Tree, sizes};

const README: &str = "README.md";
const EXAMPLE: &str = "crates/mm/examples/embed.rs";
const MARKER: &str = "<!-- tidy: embed -->";
const BEGIN: &str = "// README: from here";
const END: &str = "// README: to here";
const GUIDE: &str = "docs/embedding.md";
const CODE: &str = "<!-- tidy: code ";

pub(crate) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    if let (Some(readme), Some(example)) = (tree.file(README), tree.file(EXAMPLE)) {
        let line = readme.lines().position(|line| line.trim() == MARKER).map_or(1, |at| at + 2);
        let sentence = match (fenced(readme), shown(example)) {
            (None, _) => format!("no block of code follows `{MARKER}`."),
            (_, None) => format!("{EXAMPLE} has no `fn main` to show."),
            (Some((_, _, code)), Some(part)) if code == part => String::new(),
            _ => format!("the code differs from {EXAMPLE}: run `cargo xtask readme`."),
        };
        if !sentence.is_empty() {
            findings.push(Finding::new(README, line, "readme-code", sentence));
        }
    }
    if let Some(guide) = tree.file(GUIDE) {
        let code = |name: &str| tree.file(name).map(str::to_owned);
        for (line, sentence) in guided(guide, &code).1 {
            findings.push(Finding::new(GUIDE, line, "readme-code", sentence));
        }
    }
    links(tree, findings);
}

/// Copies the example's code into the README, and pieces of code into the guide.
///
/// # Errors
/// A sentence that says which part is missing, or which file cannot be read or written.
pub fn write_readme(root: &Path) -> Result<(), String> {
    let read = |name: &str| {
        fs::read_to_string(root.join(name)).map_err(|error| format!("{name}: {error}"))
    };
    let (readme, example) = (read(README)?, read(EXAMPLE)?);
    let part = shown(&example).ok_or(format!("{EXAMPLE} has no `fn main` to show."))?;
    let (start, end, _) = fenced(&readme).ok_or(format!("{README} has no block for the code."))?;
    let text = format!("{}{part}{}", &readme[..start], &readme[end..]);
    fs::write(root.join(README), text).map_err(|error| format!("{README}: {error}"))?;
    let (text, wrong) = guided(&read(GUIDE)?, &|name| read(name).ok());
    match wrong.into_iter().find(|(_, sentence)| !sentence.contains(STALE)) {
        Some((line, sentence)) => Err(format!("{GUIDE}:{line}: {sentence}")),
        None => fs::write(root.join(GUIDE), text).map_err(|error| format!("{GUIDE}: {error}")),
    }
}

/// Code that has changed is no other fault of the guide.
const STALE: &str = "run `cargo xtask readme`.";

/// The guide with all its pieces of code copied anew, and what is wrong with it as it is: lines and
/// sentences. `code` gives a file's content.
pub(crate) fn guided(
    guide: &str,
    code: &dyn Fn(&str) -> Option<String>,
) -> (String, Vec<(usize, String)>) {
    let (mut text, mut wrong, mut wanted) = (String::new(), Vec::new(), None);
    let mut lines = guide.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        text += &format!("{line}\n");
        if let Some(place) = line.strip_prefix(CODE).and_then(|rest| rest.strip_suffix(" -->")) {
            wanted = Some(place);
        } else if line.starts_with("```")
            && let Some(place) = wanted.take()
        {
            let shown = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
            let shown: String = shown.map(|line| format!("{line}\n")).collect();
            let (file, first) = place.split_once(' ').unwrap_or((place, ""));
            let found = code(file).and_then(|source| piece(&source, first));
            match &found {
                Some(found) if *found == shown => {}
                Some(_) => wrong.push((at + 1, format!("the code differs from {file}: {STALE}"))),
                None => wrong.push((at, format!("`{file}` has no `{first}`."))),
            }
            text += &format!("{}```\n", found.unwrap_or(shown));
        }
    }
    wrong.extend(wanted.map(|place| (1, format!("no block of code follows `{place}`."))));
    (text, wrong)
}

/// The piece of `source` whose first line begins with `first`, without common indentation.
pub(crate) fn piece(source: &str, first: &str) -> Option<String> {
    let lines: Vec<&str> = source.lines().collect();
    let found = lines.iter().position(|line| line.trim_start().starts_with(first))?;
    let indent = |line: &str| line.len() - line.trim_start().len();
    let above = lines[..found].iter().rev().take_while(|line| {
        let text = line.trim_start();
        indent(line) == indent(lines[found]) && (text.starts_with("//") || text.starts_with("#["))
    });
    let start = found - above.filter(|line| !line.starts_with("//!")).count();
    let closes = |line: &&str| {
        indent(line) == indent(lines[found]) && line.trim_start().starts_with(['}', ')', ']', '"'])
    };
    let end = match lines[found].ends_with(';') {
        true => found,
        false => found + 1 + lines[found + 1..].iter().position(closes)?,
    };
    Some(dedent(&lines[start..=end].join("\n")))
}

/// The code in the README's marked block, with the byte range it takes.
pub(crate) fn fenced(readme: &str) -> Option<(usize, usize, &str)> {
    let marker = readme.find(MARKER)?;
    let start = marker + readme[marker..].find("```rust\n")? + "```rust\n".len();
    let end = start + readme[start..].find("```")?;
    Some((start, end, &readme[start..end]))
}

/// The part of the example that the README shows: what stands between the two marks, or else all
/// of `fn main`.
pub(crate) fn shown(example: &str) -> Option<String> {
    if let Some((_, rest)) = example.split_once(BEGIN) {
        let (part, _) = rest.split_once(END)?;
        return Some(dedent(part));
    }
    let tokens = super::lex::trees(example);
    let at = (0..tokens.len()).find(|&at| {
        super::lex::is_ident(&tokens, at, "fn") && super::lex::is_ident(&tokens, at + 1, "main")
    })?;
    let end = sizes::body(&tokens, at)?.span_close().end().line;
    let start = super::lex::line(&tokens[at]);
    let lines: Vec<&str> = example.lines().skip(start - 1).take(end + 1 - start).collect();
    Some(dedent(&lines.join("\n")))
}

/// The lines without blank ones at both ends and without the blanks all of them begin with.
fn dedent(part: &str) -> String {
    let lines: Vec<&str> = part.lines().map(str::trim_end).collect();
    let is_blank = |line: &&&str| line.is_empty();
    let first = lines.iter().take_while(is_blank).count();
    let last = lines.len() - lines.iter().rev().take_while(is_blank).count();
    let lines = lines.get(first..last).unwrap_or_default();
    let indent = |line: &&str| line.len() - line.trim_start().len();
    let least = lines.iter().filter(|line| !line.is_empty()).map(indent).min().unwrap_or(0);
    lines.iter().map(|line| format!("{}\n", line.get(least..).unwrap_or_default())).collect()
}

/// `dead-link`: a relative link in a document that leads nowhere.
fn links(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, text) in tree.files.iter().filter(|(path, _)| path.ends_with(".md")) {
        for (at, line) in text.lines().enumerate() {
            for link in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let file = link.split('#').next().unwrap_or_default();
                if file.is_empty() || file.contains("://") {
                    continue;
                }
                if !tree.exists(&resolve(path, file)) {
                    let sentence = format!("the link leads to `{file}`, which is not there.");
                    findings.push(Finding::new(path, at + 1, "dead-link", sentence));
                }
            }
        }
    }
}

/// The file a link in `document` leads to.
pub(crate) fn resolve(document: &str, link: &str) -> String {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}
