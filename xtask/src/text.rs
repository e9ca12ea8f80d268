//! `cargo xtask text`: how much code the least program on Quire is, for each set of features.
//!
//! It builds `benches/text` for riscv64, optimised for speed and for size, and reads the sections
//! of the linked program: `.text`, and `.sizes`, in which the program states the size of two types.

use std::fs;
use std::path::Path;

use crate::setup::{self, BARE_TARGETS, Compiler};
use crate::steps::{Missing, build_dir};

/// The sets of features, from the core alone to everything.
const SETS: [(&str, &str); 5] = [
    ("core", ""),
    ("core+files", "files"),
    ("core+files+swap", "files,swap"),
    ("default", "files,swap,reclaim,check"),
    ("all", "files,swap,reclaim,check,inject"),
];

/// Optimisation for speed and for size.
const LEVELS: [(&str, &str); 2] = [("O3", "3"), ("Os", "s")];

/// The bound for the core at O3, in bytes.
const CORE_MOST: u64 = 100 << 10;

/// Whether a core beyond the bound fails.
const CORE_FAILS: bool = true;

/// The sizes of one build, in bytes.
struct Measured {
    text: u64,
    manager: u64,
    space: u64,
}

/// Builds `sets` of features, or all, in the workspace at `root`, and prints their sizes; returns
/// whether the core is small enough.
///
/// # Errors
/// There is no compiler for the target.
pub fn run(root: &Path, sets: &[String]) -> Result<bool, Missing> {
    let compiler = setup::bare(root)?;
    println!("{:<18} {:>12} {:>12} {:>9} {:>9}", "features", "text O3", "text Os", "Mm", "Space");
    let mut good = true;
    let is_wanted = |name: &str| sets.is_empty() || sets.iter().any(|set| set == name);
    for (name, features) in SETS.into_iter().filter(|(name, _)| is_wanted(name)) {
        match LEVELS.map(|(_, level)| measure(root, &compiler, features, level)) {
            [Ok(fast), Ok(small)] => {
                let (fast_text, small_text) = (kib(fast.text), kib(small.text));
                let (manager, space) = (fast.manager, fast.space);
                println!("{name:<18} {fast_text:>12} {small_text:>12} {manager:>9} {space:>9}");
                if name == "core" && fast.text > CORE_MOST {
                    println!("  beyond the bound of {}", kib(CORE_MOST));
                    good &= !CORE_FAILS;
                }
            }
            [Err(error), _] | [_, Err(error)] => {
                println!("{name:<18} {error}");
                good &= !CORE_FAILS;
            }
        }
    }
    Ok(good)
}

fn kib(bytes: u64) -> String {
    format!("{:.1} KiB", bytes as f64 / 1024.0)
}

fn measure(
    root: &Path,
    compiler: &Compiler,
    features: &str,
    level: &str,
) -> Result<Measured, String> {
    let target = BARE_TARGETS[2];
    let dir = build_dir(root).join("text");
    let mut cargo = compiler.cargo(root);
    cargo.args(["build", "--quiet", "--locked", "--release", "--target", target]);
    cargo.args(["--features", features]).env("CARGO_PROFILE_RELEASE_OPT_LEVEL", level);
    cargo.env("CARGO_TARGET_DIR", &dir).current_dir(root.join("benches/text"));
    let output = cargo.output().map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last =
            said.lines().rfind(|line| line.starts_with("error")).unwrap_or("no reason given");
        return Err(format!("does not build: {last}"));
    }
    let path = dir.join(target).join("release/quire-text");
    let bytes = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    read(&bytes).ok_or_else(|| "the program is no ELF file with `.text` and `.sizes`".to_owned())
}

/// The sizes in a program: 64 bits, little endian.
fn read(elf: &[u8]) -> Option<Measured> {
    let (_, text) = section(elf, ".text")?;
    let (at, _) = section(elf, ".sizes")?;
    Some(Measured { text, manager: number(elf, at, 8)?, space: number(elf, at + 8, 8)? })
}

/// Where the section `name` lies in the file, and its size.
fn section(elf: &[u8], name: &str) -> Option<(u64, u64)> {
    if elf.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let headers = number(elf, 0x28, 8)?;
    let (size, count) = (number(elf, 0x3a, 2)?, number(elf, 0x3c, 2)?);
    let header = |index: u64| headers + index * size;
    let names = number(elf, header(number(elf, 0x3e, 2)?) + 0x18, 8)?;
    (0..count).map(header).find_map(|header| {
        let start = usize::try_from(names + number(elf, header, 4)?).ok()?;
        let rest = elf.get(start..)?.strip_prefix(name.as_bytes())?;
        let is_whole = rest.first() == Some(&0);
        is_whole.then_some((number(elf, header + 0x18, 8)?, number(elf, header + 0x20, 8)?))
    })
}

fn number(elf: &[u8], at: u64, bytes: usize) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    let bytes = elf.get(at..at.checked_add(bytes)?)?;
    Some(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::{number, read, section};

    #[test]
    fn sections_are_found_by_name() {
        let mut elf = vec![0; 0x40 + 3 * 0x40];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let mut put = |at: usize, value: u64, bytes: usize| {
            elf[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
        };
        put(0x28, 0x40, 8);
        put(0x3a, 0x40, 2);
        put(0x3c, 3, 2);
        put(0x3e, 0, 2);
        // The names; then `.text` and `.sizes`.
        put(0x40 + 0x18, 0x100, 8);
        for (header, name, at, size) in [(0x80, 1, 0x10, 0x1234), (0xc0, 7, 0x120, 16)] {
            put(header, name, 4);
            put(header + 0x18, at, 8);
            put(header + 0x20, size, 8);
        }
        elf.truncate(0x100);
        elf.extend_from_slice(b"\0.text\0.sizes\0");
        elf.resize(0x120, 0);
        elf.extend_from_slice(&5_u64.to_le_bytes());
        elf.extend_from_slice(&7_u64.to_le_bytes());
        assert_eq!(section(&elf, ".text"), Some((0x10, 0x1234)));
        assert_eq!(section(&elf, ".tex"), None);
        let all = read(&elf).unwrap();
        assert_eq!((all.text, all.manager, all.space), (0x1234, 5, 7));
        assert!(read(&elf[..0x120]).is_none(), "cut short");
        assert_eq!(number(&elf, u64::MAX, 8), None);
    }
}
