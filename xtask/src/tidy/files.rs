//! Every source file is part of the tree and documented, and no more than a list where it is a
//! `mod.rs` or `lib.rs`.

use std::collections::BTreeSet;

use syn::Item;
use syn::spanned::Spanned;

use super::{Finding, Source, Tree};

pub(crate) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let used: BTreeSet<&str> = tree.sources.iter().map(|source| source.path.as_str()).collect();
    for (path, _) in tree.files.iter().filter(|(path, _)| path.ends_with(".rs")) {
        if !used.contains(path.as_str()) {
            let sentence = "no target reaches this file through its `mod` lines.";
            findings.push(Finding::new(path, 1, "dead-file", sentence));
        }
    }
    for source in &tree.sources {
        if !source.has_doc {
            let sentence = "the file does not begin with `//!` and what it is about.";
            findings.push(Finding::new(&source.path, 1, "module-doc", sentence));
        }
        let is_list = source.path.ends_with("/mod.rs") || source.path.ends_with("/lib.rs");
        if is_list && !source.is_test {
            list(source, findings);
        }
    }
}

/// How many lines of structs, functions and the like a table of contents may hold.
const SMALL_LINES: usize = 60;

/// `module-list`: such a file is a table of contents. Traits may stand there, as a room's contract,
/// and a few small items that all its children use.
pub(crate) fn list(source: &Source, findings: &mut Vec<Finding>) {
    let mut lines = 0;
    for item in &source.items {
        let listed = matches!(
            item,
            Item::Mod(_)
                | Item::Use(_)
                | Item::ExternCrate(_)
                | Item::Const(_)
                | Item::Type(_)
                | Item::Trait(_)
        );
        let span = item.span();
        let before = lines;
        lines += if listed { 0 } else { span.end().line + 1 - span.start().line };
        if before <= SMALL_LINES && lines > SMALL_LINES {
            let sentence = format!(
                "more than {SMALL_LINES} lines besides `mod`, `use`, constants and traits: \
                 give them a file of their own."
            );
            findings.push(Finding::new(&source.path, span.start().line, "module-list", sentence));
        }
    }
}
