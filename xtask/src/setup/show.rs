//! `cargo xtask setup`: what is here and what is not.

use std::path::Path;

use super::{bare, component, emulators, file_system_tool};
use crate::steps::Missing;

/// Finds every tool, installs what can be installed, and says what there is. Always `true`: a
/// machine on which something is missing is no failure.
pub fn run(root: &Path) -> bool {
    tell("rustfmt", component("fmt", "rustfmt").map(|()| "found".to_owned()));
    tell("clippy", component("clippy", "clippy").map(|()| "found".to_owned()));
    tell("bare targets", bare(root).map(|compiler| format!("from {}", compiler.origin())));
    tell("emulators", emulators().map(|e| format!("version {}.{}", e.version.0, e.version.1)));
    tell("mke2fs", file_system_tool("mke2fs").map(|path| path.display().to_string()));
    true
}

fn tell(name: &str, found: Result<String, Missing>) {
    match found {
        Ok(what) => println!("{name:<16} {what}"),
        Err(missing) => println!("{name:<16} missing: {}", missing.sentence),
    }
}
