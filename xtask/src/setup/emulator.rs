//! Emulators of the other ISAs' CPUs, for the code of `quire-hw` that is written in their
//! instructions.

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
    let needed = format!("qemu-aarch64 and qemu-riscv64, {}.{} or later,", OLDEST.0, OLDEST.1);
    let missing = |sentence, attempted| Missing { sentence, attempted };
    let Some(apt) = Apt::find() else {
        return Err(missing(format!("{needed} are missing: install qemu-user."), false));
    };
    if !apt.update() {
        return Err(missing(format!("{needed} are missing, and there is no network."), false));
    }
    let usual = apt.candidate("qemu-user").is_some_and(|found| parse(&found) >= OLDEST);
    let suite = if usual { None } else { apt.add_backports() };
    if !usual && suite.is_none() {
        return Err(missing(format!("{needed} are in no package of this system."), false));
    }
    match apt.install(&["qemu-user"], suite.as_deref()).map(|()| find()) {
        Ok(Some(found)) => Ok(found),
        Ok(None) => Err(missing(format!("{needed} are not in the package qemu-user."), true)),
        Err(error) => Err(missing(format!("qemu-user could not be installed: {error}"), true)),
    }
}

fn find() -> Option<Emulators> {
    let version = |program| {
        let said = output(program, &["--version"])?;
        Some(parse(said.lines().next()?.split("version ").nth(1)?))
    };
    let both = version("qemu-aarch64")?.min(version("qemu-riscv64")?);
    (both >= OLDEST).then_some(Emulators { version: both })
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
