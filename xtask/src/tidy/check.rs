//! All rules, one after the other.

use std::path::Path;

use super::{
    Finding, Tree, api, circles, crates, docs, english, files, lines, rooms, rows, sizes, unsafety,
    words,
};

/// The places that break a house rule in the workspace at `root`, sorted by file and line.
///
/// # Errors
/// A sentence that names what cannot be read; a source that does not parse is the compiler's to
/// report first.
pub fn check(root: &Path) -> Result<Vec<Finding>, String> {
    Ok(findings(&Tree::load(root)?))
}

/// The same for a tree in memory.
pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rule in RULES {
        rule(tree, &mut findings);
    }
    findings.sort();
    findings.dedup();
    findings
}

const RULES: [fn(&Tree, &mut Vec<Finding>); 12] = [
    crates::check,
    rooms::check,
    sizes::check,
    unsafety::check,
    words::check,
    files::check,
    rows::check,
    docs::check,
    lines::check,
    english::check,
    circles::check,
    api::check,
];
