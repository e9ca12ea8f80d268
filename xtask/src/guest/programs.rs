//! Compiles the C programs of `os/guest/`, anew each time: that is faster than a check whether it
//! is needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Isa;
use crate::setup;
use crate::steps::{Missing, build_dir};

/// The flags of every program. A warning is an error: two compilers must agree that there is none.
const FLAGS: [&str; 6] = ["-static", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"];

/// The program with a directory of sources, and that directory.
const DIRECTORY: (&str, &str) = ("abicheck", "abi");

/// The programs of `os/guest/`, and a compiler for them.
pub struct Programs {
    source: PathBuf,
    built: PathBuf,
    compiler: &'static str,
}

impl Programs {
    /// The programs of the workspace at `root`, for `isa`.
    ///
    /// # Errors
    /// The reason there is no compiler.
    pub fn new(root: &Path, isa: Isa) -> Result<Self, Missing> {
        let compiler = setup::c_compiler(isa)?;
        let built = build_dir(root).join("guest").join(isa.name()).join("bin");
        Ok(Self { source: root.join("os/guest"), built, compiler })
    }

    /// The names of all programs of the workspace at `root`, in order.
    pub fn names(root: &Path) -> Vec<String> {
        let entries = root.join("os/guest").read_dir().into_iter().flatten().flatten();
        let files = entries.map(|entry| entry.path()).filter(|path| is_c(path));
        let stems = files.filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()));
        let mut names: Vec<String> = stems.chain([DIRECTORY.0.to_owned()]).collect();
        names.sort();
        names
    }

    /// Compiles the program `name`; returns where it is.
    ///
    /// # Errors
    /// The compiler's message.
    pub fn build(&self, name: &str) -> Result<PathBuf, String> {
        let fail = |error| format!("{}: {error}", self.built.display());
        fs::create_dir_all(&self.built).map_err(fail)?;
        // The last one may be running, or another process may be building the same: the rename is
        // atomic.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let part = self.built.join(format!(".{name}-{}-{count}", std::process::id()));
        let mut command = Command::new(self.compiler);
        command.args(FLAGS).arg("-o").arg(&part).args(self.sources(name)?);
        let output = command.output().map_err(|error| format!("{}: {error}", self.compiler))?;
        if !output.status.success() {
            return Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr)));
        }
        let result = self.built.join(name);
        fs::rename(&part, &result).map_err(fail)?;
        Ok(result)
    }

    fn sources(&self, name: &str) -> Result<Vec<PathBuf>, String> {
        if name != DIRECTORY.0 {
            return Ok(vec![self.source.join(format!("{name}.c"))]);
        }
        let dir = self.source.join(DIRECTORY.1);
        let entries = dir.read_dir().map_err(|error| format!("{}: {error}", dir.display()))?;
        let mut files: Vec<PathBuf> =
            entries.flatten().map(|entry| entry.path()).filter(|path| is_c(path)).collect();
        files.sort();
        Ok(files)
    }
}

fn is_c(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "c")
}
