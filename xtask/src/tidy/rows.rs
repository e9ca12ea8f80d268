//! Rows of the specification and invariants, and the tests that begin with their names: the table
//! `rows` in docs/rows.md and the table `invariants` in docs/invariants.md.

use proc_macro2::{Delimiter, TokenTree};

use super::{Finding, Tree, lex, table};

const TABLES: [(&str, &str); 2] = [("docs/rows.md", "rows"), ("docs/invariants.md", "invariants")];

pub(crate) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let mut tests = Vec::new();
    for source in &tree.sources {
        for (name, line) in test_names(&source.tokens) {
            tests.push((source.path.as_str(), line, name));
        }
    }
    let mut known = Vec::new();
    for (document, name) in TABLES {
        let Some(rows) = tree.file(document).and_then(|text| table::rows(text, name)) else {
            let sentence = format!("the table `{name}` is missing.");
            findings.push(Finding::new(document, 1, "row-known", sentence));
            continue;
        };
        for row in rows {
            let id = row.cell(0).to_ascii_lowercase();
            let is_tested = tests.iter().any(|(.., name)| prefix(name) == Some(&id));
            if row.cell(1) == "built" && !is_tested {
                let sentence =
                    format!("{} is built, but no test begins with `{id}_`.", row.cell(0));
                findings.push(Finding::new(document, row.line, "row-tested", sentence));
            }
            known.push(id);
        }
    }
    for (path, line, name) in &tests {
        if let Some(id) = prefix(name).filter(|id| !known.iter().any(|known| known == id)) {
            let sentence = format!("test `{name}` names the row `{id}`, which no table has.");
            findings.push(Finding::new(path, *line, "row-known", sentence));
        }
    }
}

/// The row or invariant a test's name begins with: a letter from a to f, or i, and digits.
fn prefix(name: &str) -> Option<&str> {
    let (first, _) = name.split_once('_')?;
    let digits = first.strip_prefix(['a', 'b', 'c', 'd', 'e', 'f', 'i'])?;
    (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())).then_some(first)
}

/// The names of all functions marked as tests, in the arguments of macros, too.
pub(crate) fn test_names(tokens: &[TokenTree]) -> Vec<(String, usize)> {
    let mut names = Vec::new();
    lex::each_level(tokens, &mut |trees| {
        let mut marked = false;
        for at in 0..trees.len() {
            let attribute = lex::group(trees, at + 1, Delimiter::Bracket);
            if let (true, Some(attribute)) = (lex::is_punct(trees, at, '#'), attribute) {
                let inner = lex::inside(attribute);
                marked |= inner.len() == 1 && lex::is_ident(&inner, 0, "test");
            } else if lex::is_ident(trees, at, "fn")
                && std::mem::take(&mut marked)
                && let Some(TokenTree::Ident(name)) = trees.get(at + 1)
            {
                names.push((name.to_string(), lex::line(&trees[at])));
            }
        }
    });
    names
}
