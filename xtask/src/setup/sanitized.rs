//! Compilers that can do more than build: with a sanitizer, or as an interpreter.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::apt::output;
use crate::deeper::lacking;
use crate::steps::{Missing, build_dir};

/// A cargo and a rustc that take `-Zsanitizer`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sanitized {
    /// The target that names this machine.
    pub host: String,
    /// Whether the standard library is built with the sanitizer, too.
    pub builds_std: bool,
    cargo: PathBuf,
    rustc: Option<PathBuf>,
}

impl Sanitized {
    /// `cargo`, told which compiler to use.
    pub fn cargo(&self) -> Command {
        let mut cargo = Command::new(&self.cargo);
        // A stable compiler takes -Z when it is told that it builds itself.
        cargo.env("RUSTC_BOOTSTRAP", "1");
        if let Some(rustc) = &self.rustc {
            cargo.env("RUSTC", rustc).env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
        }
        cargo
    }
}

/// A compiler whose programs a sanitizer watches. With `with_std` it watches the standard library,
/// too: without that, ThreadSanitizer takes what it does not see of locks for races.
///
/// # Errors
/// Why there is none.
pub fn sanitized(root: &Path, with_std: bool) -> Result<Sanitized, Missing> {
    let about = output("rustc", &["-vV"]).unwrap_or_default();
    let host = about.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
    let runtime = runtime(host, if with_std { "tsan" } else { "asan" })?;
    let cargo = PathBuf::from("cargo");
    if !with_std {
        let host = host.to_owned();
        return Ok(Sanitized { host, builds_std: false, cargo, rustc: None });
    }
    let own = output("rustc", &["--print", "sysroot"]).unwrap_or_default();
    if has_library(Path::new(own.trim())) {
        return Ok(Sanitized { host: host.to_owned(), builds_std: true, cargo, rustc: None });
    }
    let (cargo, rustc) = (PathBuf::from("/usr/bin/cargo"), PathBuf::from("/usr/bin/rustc"));
    if !cargo.is_file() || !rustc.is_file() || !has_library(Path::new("/usr")) {
        let sentence = "the standard library's sources are missing: `rustup component add \
                        rust-src`, or the distribution's rust-web-src.";
        return Err(lacking(sentence));
    }
    let dir = build_dir(root).join("thread-sysroot");
    let made = joined(&dir, host, &runtime);
    let rustc = made.map_err(|error| lacking(format!("{}: {error}.", dir.display())))?;
    Ok(Sanitized { host: host.to_owned(), builds_std: true, cargo, rustc: Some(rustc) })
}

fn has_library(sysroot: &Path) -> bool {
    sysroot.join("lib/rustlib/src/rust/library/std").is_dir()
}

/// The sanitizer's own library, which comes with rustup's compilers.
fn runtime(host: &str, name: &str) -> Result<PathBuf, Missing> {
    let sysroot = output("rustc", &["--print", "sysroot"]).unwrap_or_default();
    let dir = Path::new(sysroot.trim()).join("lib/rustlib").join(host).join("lib");
    let end = format!("_rt.{name}.a");
    let entries = fs::read_dir(&dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let found = entries.into_iter().find(|path| path.to_string_lossy().ends_with(&end));
    found.ok_or_else(|| lacking(format!("the compiler in use has no {name}: rustup's have it.")))
}

/// A compiler in `dir`: the distribution's with its sources, and the sanitizer's library.
fn joined(dir: &Path, host: &str, runtime: &Path) -> std::io::Result<PathBuf> {
    if dir.exists() {
        fs::remove_dir_all(dir)?;
    }
    let libraries = dir.join("lib/rustlib").join(host).join("lib");
    fs::create_dir_all(&libraries)?;
    fs::create_dir_all(dir.join("bin"))?;
    let base = Path::new("/usr/lib/rustlib");
    for entry in fs::read_dir(base.join(host).join("lib"))? {
        let entry = entry?;
        symlink(entry.path(), libraries.join(entry.file_name()))?;
    }
    // The distribution's compiler looks for it under the name of a stable one.
    symlink(runtime, libraries.join("librustc-stable_rt.tsan.a"))?;
    symlink(base.join("src"), dir.join("lib/rustlib/src"))?;
    let rustc = dir.join("bin/rustc");
    let text = format!("#!/bin/sh\nexec /usr/bin/rustc --sysroot \"{}\" \"$@\"\n", dir.display());
    fs::write(&rustc, text)?;
    let mut rights = fs::metadata(&rustc)?.permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut rights, 0o755);
    fs::set_permissions(&rustc, rights)?;
    Ok(rustc)
}

/// The words that choose a toolchain with Miri: none for the one in use.
///
/// # Errors
/// There is none; the sentence says how to get it.
pub fn interpreter() -> Result<Vec<String>, Missing> {
    let works = |words: &[&str]| output("cargo", words).is_some();
    if works(&["miri", "--version"]) {
        return Ok(Vec::new());
    }
    if works(&["+nightly", "miri", "--version"]) {
        return Ok(vec!["+nightly".to_owned()]);
    }
    Err(lacking("Miri is missing: `rustup +nightly component add miri rust-src` adds it."))
}
