//! Documents: the README shows the example as it is, and links lead somewhere.

use std::fs;
use std::path::Path;

use super::{Finding, Tree, sizes};

const README: &str = "README.md";
const EXAMPLE: &str = "crates/mm/examples/embed.rs";
const MARKER: &str = "<!-- tidy: embed -->";
const BEGIN: &str = "// README: from here";
const END: &str = "// README: to here";

pub(crate) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    if let (Some(readme), Some(example)) = (tree.file(README), tree.file(EXAMPLE)) {
        let line = readme.lines().position(|line| line.trim() == MARKER).map_or(1, |at| at + 2);
        let sentence = match (fenced(readme), shown(example)) {
            (None, _) => format!("no block of code follows `{MARKER}`."),
            (_, None) => format!("{EXAMPLE} has no `fn main` to show."),
            (Some((_, _, code)), Some(part)) if code == part => return links(tree, findings),
            _ => format!("the code differs from {EXAMPLE}: run `cargo xtask readme`."),
        };
        findings.push(Finding::new(README, line, "readme-code", sentence));
    }
    links(tree, findings);
}

/// Copies the example's code into the README.
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
    fs::write(root.join(README), text).map_err(|error| format!("{README}: {error}"))
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
