//! Where `unsafe` may stand, and that each has its argument: the table `unsafe` in
//! docs/safety/inventory.md, and `unsafe-in-tests` for tests that mint frames of their own.

use proc_macro2::TokenTree;

use super::{Finding, Source, Tree, lex, table};

const DOCUMENT: &str = "docs/safety/inventory.md";
const PLACE: &str = "unsafe-place";
const ARGUED: &str = "unsafe-argued";

pub(crate) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let document = tree.file(DOCUMENT).unwrap_or_default();
    let Some(mut rows) = table::rows(document, "unsafe") else {
        findings.push(Finding::new(DOCUMENT, 1, PLACE, "the table `unsafe` is missing."));
        return;
    };
    rows.extend(table::rows(document, "unsafe-in-tests").unwrap_or_default());
    let mut named = Vec::new();
    for row in &rows {
        for path in row.codes(0) {
            let plain = path.trim_end_matches("/**");
            if !tree.exists(plain) {
                let sentence = format!("there is no `{plain}`.");
                findings.push(Finding::new(DOCUMENT, row.line, PLACE, sentence));
            }
            named.push(path);
        }
    }
    for source in &tree.sources {
        source_rules(source, named.iter().any(|name| covers(name, &source.path)), findings);
    }
}

fn covers(name: &str, path: &str) -> bool {
    match name.strip_suffix("/**") {
        Some(dir) => path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/')),
        None => name == path,
    }
}

/// The rules for one source; `named` says whether it is in the inventory.
pub(crate) fn source_rules(source: &Source, named: bool, findings: &mut Vec<Finding>) {
    let lines: Vec<&str> = source.text.lines().collect();
    lex::each_level(&source.tokens, &mut |trees| {
        for at in 0..trees.len() {
            let line = lex::line(&trees[at]);
            let is_unsafe = lex::is_ident(trees, at, "unsafe");
            let lifts = lex::is_ident(trees, at, "unsafe_code") && lifted(&lines, line);
            if (is_unsafe || lifts) && !named {
                let sentence = format!("`unsafe` outside the files named in {DOCUMENT}.");
                findings.push(Finding::new(&source.path, line, PLACE, sentence));
            } else if is_unsafe && needs_argument(trees, at) && !argued(&lines, line) {
                let sentence = "no `SAFETY:` comment or `# Safety` section says why this holds.";
                findings.push(Finding::new(&source.path, line, ARGUED, sentence));
            }
        }
    });
}

fn lifted(lines: &[&str], line: usize) -> bool {
    let text = lines.get(line - 1).copied().unwrap_or_default();
    text.contains("allow") || text.contains("expect")
}

/// Attributes (`#[unsafe(naked)]`), types (`unsafe fn(u8)`) and declarations of what is elsewhere
/// (`unsafe extern "C" { … }`) state nothing to argue for: who uses these argues.
fn needs_argument(trees: &[TokenTree], at: usize) -> bool {
    let is_type = lex::is_ident(trees, at + 1, "fn")
        && !matches!(trees.get(at + 2), Some(TokenTree::Ident(_)));
    let is_attribute = matches!(trees.get(at + 1), Some(TokenTree::Group(group))
        if group.delimiter() == proc_macro2::Delimiter::Parenthesis);
    let is_declaration = lex::is_ident(trees, at + 1, "extern")
        && [at + 2, at + 3].iter().any(|&at| matches!(trees.get(at), Some(TokenTree::Group(_))));
    !is_type && !is_attribute && !is_declaration
}

/// Whether the comment above the statement or item that holds `line` argues for it.
fn argued(lines: &[&str], line: usize) -> bool {
    let argues = |text: &str| text.contains("SAFETY:") || text.contains("# Safety");
    if argues(lines[line - 1]) {
        return true;
    }
    let mut in_comment = false;
    for text in lines[..line - 1].iter().rev().map(|text| text.trim()) {
        if text.starts_with("//") {
            in_comment = true;
            if argues(text) {
                return true;
            }
        } else if ends_statement(text) || in_comment && !text.starts_with('#') {
            return false;
        }
    }
    false
}

fn ends_statement(text: &str) -> bool {
    text.is_empty() || text.ends_with([';', '{', '}'])
}
