//! How long a file, a function, a line and a document may be.

use proc_macro2::{Delimiter, TokenTree};

use super::{Finding, Source, Tree, lex};

const FILE_LINES: usize = 600;
const FUNCTION_LINES: usize = 70;
const COLUMNS: usize = 100;

/// Documents that must stay readable in one go, with their bounds in lines.
const DOCUMENTS: [(&str, usize); 3] =
    [("README.md", 150), ("ARCHITECTURE.md", 400), ("STYLE.md", 300)];

pub(crate) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for source in &tree.sources {
        lengths(source, findings);
        functions(source, &source.tokens, findings);
    }
    for (path, most) in DOCUMENTS {
        let count = tree.file(path).map_or(0, |text| text.lines().count());
        if count > most {
            let sentence = format!("{count} lines, at most {most}.");
            findings.push(Finding::new(path, most + 1, "document-length", sentence));
        }
    }
}

fn lengths(source: &Source, findings: &mut Vec<Finding>) {
    let count = source.text.lines().count();
    if count > FILE_LINES {
        let sentence = format!("{count} lines, at most {FILE_LINES}: split it by what it owns.");
        findings.push(Finding::new(&source.path, FILE_LINES + 1, "file-length", sentence));
    }
    for (at, line) in source.text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > COLUMNS && !is_unbreakable(line) {
            let sentence = format!("{columns} columns, at most {COLUMNS}.");
            findings.push(Finding::new(&source.path, at + 1, "line-length", sentence));
        }
    }
}

/// Rows of tables and addresses in documentation cannot go on in the next line.
fn is_unbreakable(line: &str) -> bool {
    let line = line.trim_start();
    let is_comment = line.starts_with("//");
    let is_row = line.trim_start_matches(['/', '!']).trim_start().starts_with('|');
    is_comment && (is_row || line.contains("://"))
}

/// Functions from `fn` to the closing brace, those in the arguments of macros included.
fn functions(source: &Source, tokens: &[TokenTree], findings: &mut Vec<Finding>) {
    lex::each_level(tokens, &mut |trees| {
        for at in 0..trees.len() {
            let Some(body) = body(trees, at) else { continue };
            let start = lex::line(&trees[at]);
            let lines = body.span_close().end().line + 1 - start;
            if lines > FUNCTION_LINES {
                let name = &trees[at + 1];
                let sentence = format!("`{name}` has {lines} lines, at most {FUNCTION_LINES}.");
                findings.push(Finding::new(&source.path, start, "function-length", sentence));
            }
        }
    });
}

/// The body of the function whose `fn` stands at `at`.
pub(crate) fn body(trees: &[TokenTree], at: usize) -> Option<&proc_macro2::Group> {
    if !lex::is_ident(trees, at, "fn") || !matches!(trees.get(at + 1), Some(TokenTree::Ident(_))) {
        return None;
    }
    let end = |at: &usize| {
        lex::is_punct(trees, *at, ';') || lex::group(trees, *at, Delimiter::Brace).is_some()
    };
    let at = (at + 2..trees.len()).find(end)?;
    lex::group(trees, at, Delimiter::Brace)
}
