//! The tools that make file systems: e2fsprogs.

use std::path::{Path, PathBuf};

use super::apt::Apt;
use crate::steps::Missing;

/// The package that they are in.
const PACKAGE: &str = "e2fsprogs";

/// Where they may be: people's paths often lack the directories of the administrator.
const PLACES: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/usr/local/sbin"];

/// The program `name` of that package, installed now if need be.
///
/// # Errors
/// Why there is none.
pub fn file_system_tool(name: &str) -> Result<PathBuf, Missing> {
    if let Some(found) = find(name) {
        return Ok(found);
    }
    let missing = |sentence, fails| Missing { sentence, fails };
    let Some(apt) = Apt::find() else {
        return Err(missing(format!("{name} is missing: install {PACKAGE}."), false));
    };
    if !apt.update() {
        return Err(missing(format!("{name} is missing, and there is no network."), false));
    }
    apt.install(&[PACKAGE], None)
        .map_err(|error| missing(format!("{PACKAGE} could not be installed: {error}"), true))?;
    find(name).ok_or_else(|| missing(format!("{name} is not in the package {PACKAGE}."), true))
}

fn find(name: &str) -> Option<PathBuf> {
    PLACES.into_iter().map(|place| Path::new(place).join(name)).find(|path| path.is_file())
}
