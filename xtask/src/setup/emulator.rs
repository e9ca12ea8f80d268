//! Emulators: of the other ISAs' CPUs, for the code of `quire-hw` that is written in their
//! instructions, and of whole machines, for kernels.

use super::apt::{Apt, output};
use crate::steps::Missing;

/// The first version that knows the memory-set instructions of arm64 (FEAT_MOPS).
const OLDEST: (u32, u32) = (8, 2);

/// The emulators that were found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Emulators {
    /// Their version.
    pub version: (u32, u32),
}

/// The user-mode emulators of arm64 and riscv64, installed now if need be.
///
/// # Errors
/// Why there are none.
pub fn emulators() -> Result<Emulators, Missing> {
    if let Some(found) = find() {
        return Ok(found);
    }
    install(&["qemu-user"], "qemu-aarch64 and qemu-riscv64")?;
    find().ok_or_else(|| {
        let sentence = "qemu-aarch64 and qemu-riscv64 are not in the package qemu-user.".to_owned();
        Missing { sentence, fails: true }
    })
}

/// Sees to it that `program`, an emulator of whole machines, is here; Debian has it and its
/// firmware in `packages`.
///
/// # Errors
/// Why it is not.
pub fn system_emulator(program: &str, packages: &[&str]) -> Result<(), Missing> {
    let is_here = || version(program).is_some_and(|found| found >= OLDEST);
    if is_here() {
        return Ok(());
    }
    install(packages, program)?;
    if is_here() {
        return Ok(());
    }
    Err(Missing { sentence: format!("{program} is not in {}.", packages.join(" ")), fails: true })
}

/// Installs packages of QEMU that are new enough, the emulator's first; `what` is in them, for
/// people.
fn install(packages: &[&str], what: &str) -> Result<(), Missing> {
    let needed = format!("{what}, {}.{} or later,", OLDEST.0, OLDEST.1);
    let missing = |sentence, fails| Missing { sentence, fails };
    let list = packages.join(" ");
    let Some(apt) = Apt::find() else {
        return Err(missing(format!("{needed} is missing: install {list}."), false));
    };
    if !apt.update() {
        return Err(missing(format!("{needed} is missing, and there is no network."), false));
    }
    let found = packages.first().and_then(|package| apt.candidate(package));
    // A backport may need others, which apt takes only from a suite that is named.
    let usual = found.is_some_and(|found| parse(&found) >= OLDEST && !found.contains("~bpo"));
    let suite = if usual { None } else { apt.add_backports() };
    if !usual && suite.is_none() {
        return Err(missing(format!("{needed} is in no package of this system."), false));
    }
    apt.install(packages, suite.as_deref())
        .map_err(|error| missing(format!("{list} could not be installed: {error}"), true))
}

fn find() -> Option<Emulators> {
    let both = version("qemu-aarch64")?.min(version("qemu-riscv64")?);
    (both >= OLDEST).then_some(Emulators { version: both })
}

fn version(program: &str) -> Option<(u32, u32)> {
    let said = output(program, &["--version"])?;
    Some(parse(said.lines().next()?.split("version ").nth(1)?))
}

/// The first two numbers of a version, behind Debian's epoch if there is one.
fn parse(text: &str) -> (u32, u32) {
    let text = text.split_once(':').map_or(text, |(_, rest)| rest);
    let mut parts = text.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn versions_of_packages_and_of_programs_are_read() {
        assert_eq!(parse("1:7.2+dfsg-7+deb12u18"), (7, 2));
        assert_eq!(parse("1:10.0.2+ds-2~bpo12+1"), (10, 0));
        assert_eq!(parse("8.2.4 (Debian 1:8.2.4)"), (8, 2));
    }
}
