//! Which crate may use which, and which crates of others: the table `crates` in ARCHITECTURE.md.

use std::collections::BTreeSet;

use super::table::{self, Row};
use super::{Finding, Tree};

const DOCUMENT: &str = "ARCHITECTURE.md";
const RULE: &str = "crate-direction";
const OUTSIDE: &str = "third-party";

/// Columns: crate, may use, may use in tests, crates of others, crates of others in tests.
pub(crate) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let Some(rows) = tree.file(DOCUMENT).and_then(|text| table::rows(text, "crates")) else {
        findings.push(Finding::new(DOCUMENT, 1, RULE, "the table `crates` is missing."));
        return;
    };
    for package in &tree.packages {
        let manifest = format!("{}/Cargo.toml", package.dir);
        let Some(row) = rows.iter().find(|row| row.codes(0).contains(&package.name)) else {
            let sentence = format!("`{}` has no row in the table of {DOCUMENT}.", package.name);
            findings.push(Finding::new(&manifest, 1, RULE, sentence));
            continue;
        };
        for (name, ours, in_tests) in &package.dependencies {
            let column = if *ours { 1 } else { 3 };
            let mut allowed = row.codes(column);
            if *in_tests {
                allowed.extend(row.codes(column + 1));
            }
            if !allowed.contains(name) {
                let rule = if *ours { RULE } else { OUTSIDE };
                let place = if *in_tests { " in its tests" } else { "" };
                let sentence = format!("`{}` may not use `{name}`{place}.", package.name);
                findings.push(Finding::new(&manifest, 1, rule, sentence));
            }
        }
    }
    stale(tree, &rows, findings);
}

/// A table that names what is not there misleads its readers.
fn stale(tree: &Tree, rows: &[Row], findings: &mut Vec<Finding>) {
    for row in rows {
        let name = row.codes(0).concat();
        let Some(package) = tree.packages.iter().find(|package| package.name == name) else {
            let sentence = format!("there is no crate `{name}`.");
            findings.push(Finding::new(DOCUMENT, row.line, RULE, sentence));
            continue;
        };
        let used: BTreeSet<_> = package.dependencies.iter().map(|(name, ..)| name).collect();
        for outside in row.codes(3).iter().chain(&row.codes(4)) {
            if !used.contains(outside) {
                let sentence = format!("`{name}` does not use `{outside}`.");
                findings.push(Finding::new(DOCUMENT, row.line, OUTSIDE, sentence));
            }
        }
    }
}
