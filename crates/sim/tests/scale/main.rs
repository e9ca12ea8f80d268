//! Cache lines that CPUs write in common (row E12): the table in docs/scaling.md is true, and each
//! line in it has a reason.

use quire_sim::lines::{count, table, unstated};

/// As many CPUs as the document says.
const CPUS: usize = 64;
/// The table begins behind it.
const MARK: &str = "<!-- lines -->\n";

/// The document.
fn path() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scaling.md")
}

#[test]
fn e12_each_line_that_cpus_write_in_common_has_a_reason() {
    let outcomes = count(CPUS);
    let missing = unstated(&outcomes);
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    let text = std::fs::read_to_string(path()).expect("the document is there");
    let (head, old) = text.split_once(MARK).expect("the document has the mark");
    let new = table(&outcomes);
    if std::env::var_os("QUIRE_WRITE").is_some() {
        std::fs::write(path(), format!("{head}{MARK}{new}")).expect("the document can be written");
    } else {
        assert_eq!(old, new, "docs/scaling.md has another table; QUIRE_WRITE=1 writes this one");
    }
}

#[test]
fn e12_one_cpu_shares_nothing() {
    for outcome in count(1) {
        assert_eq!((outcome.all.written, outcome.all.read), (0.0, 0.0), "{}", outcome.name);
        assert_eq!(outcome.interrupts, 0.0, "{}", outcome.name);
    }
}
