//! The guide's table of the example's files, and how many lines of code each has.
//!
//! Comments and blank lines are not counted. The example's bound is that of a kernel which a new
//! author reads in one go.

use super::{Finding, Tree, table};

const GUIDE: &str = "docs/embedding.md";
const EXAMPLE: &str = "examples/tiny";

/// Lines of code that the example may have.
const MOST: usize = 600;

pub(crate) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let Some(guide) = tree.file(GUIDE) else { return };
    let mut find = |line, sentence| {
        findings.push(Finding::new(GUIDE, line, "example-lines", sentence));
    };
    let own = |name: &str| format!("{EXAMPLE}/{name}");
    let is_code = |name: &str| name.ends_with(".rs") || name.ends_with(".ld");
    let files = tree.files.iter().filter(|(name, _)| name.starts_with(&own("")) && is_code(name));
    let mut missing: Vec<&str> = files.map(|(name, _)| name.as_str()).collect();
    let mut all = 0;
    for row in table::rows(guide, "example-lines").unwrap_or_default() {
        let mut lines = 0;
        for name in row.codes(1).iter().map(|name| own(name)) {
            missing.retain(|other| *other != name);
            match tree.file(&name) {
                Some(text) => lines += code_lines(text),
                None => find(row.line, format!("there is no {name}.")),
            }
        }
        let said = row.cell(2);
        if said.parse() != Ok(lines) {
            find(row.line, format!("{}: {lines} lines of code, not {said}.", row.cell(1)));
        }
        all += lines;
    }
    if let Some(name) = missing.first() {
        find(1, format!("{name} is in no row of the table `example-lines`."));
    }
    if all > MOST {
        find(1, format!("{EXAMPLE} has {all} lines of code, at most {MOST}."));
    }
}

/// Lines that are neither blank nor comments, of Rust or of a linker script.
pub(crate) fn code_lines(text: &str) -> usize {
    let mut is_comment = false;
    let code = text.lines().map(str::trim).filter(|line| {
        is_comment |= line.starts_with("/*");
        let counts = !(is_comment || line.is_empty() || line.starts_with("//"));
        is_comment &= !line.ends_with("*/");
        counts
    });
    code.count()
}
