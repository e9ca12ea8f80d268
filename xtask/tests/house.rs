//! The workspace keeps its own rules: `cargo test` fails where `cargo xtask tidy` finds something.

use std::path::Path;

#[test]
fn the_workspace_keeps_its_house_rules() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    let findings = xtask::tidy::check(root).expect("the workspace can be read");
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "{}", lines.join("\n"));
}
