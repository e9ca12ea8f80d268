//! A compiler for targets without an operating system. The one place that knows how to get it.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::apt::{Apt, output};
use super::rustup;
use crate::steps::{Missing, build_dir};

/// The targets that the `no_std` crates are built for.
pub const BARE_TARGETS: [&str; 3] =
    ["x86_64-unknown-none", "aarch64-unknown-none", "riscv64gc-unknown-none-elf"];

/// The targets of Quire's kernel; it saves no vector or floating-point registers for itself.
pub const KERNEL_TARGETS: [&str; 3] =
    ["x86_64-unknown-none", "aarch64-unknown-none-softfloat", "riscv64imac-unknown-none-elf"];

/// The oldest compiler that Quire builds with.
const OLDEST: (u32, u32) = (1, 95);

/// A cargo and a rustc that go together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Compiler {
    /// The ones in use.
    Usual,
    /// A sysroot that scripts/bare-sysroot.sh made, here.
    Seeded(PathBuf),
}

impl Compiler {
    /// `cargo`, told which compiler to use and where to build.
    pub fn cargo(&self, root: &Path) -> Command {
        match self {
            Compiler::Usual => Command::new("cargo"),
            Compiler::Seeded(dir) => {
                let mut cargo = Command::new(dir.join("bin/cargo"));
                cargo.env("RUSTC", dir.join("bin/rustc"));
                // rustup's wrapper left its own toolchain in the environment.
                cargo.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
                // Two compilers in one directory would build everything anew each time.
                cargo.env("CARGO_TARGET_DIR", build_dir(root).join("bare"));
                cargo
            }
        }
    }

    /// `cargo clippy` for the same compiler; `None` where there is none. rustup's is asked for by
    /// [`component`](super::component); Debian's is in the package rust-web-clippy.
    pub fn clippy(&self, root: &Path) -> Option<Command> {
        let mut cargo = self.cargo(root);
        if let Compiler::Seeded(dir) = self {
            if !Path::new("/usr/bin/clippy-driver").is_file() {
                return None;
            }
            // It compiles by itself and does not see what the wrapper around rustc says.
            cargo.env("SYSROOT", dir);
            // Cargo looks for its subcommands beside itself, and then here.
            let path = std::env::var("PATH").unwrap_or_default();
            cargo.env("PATH", format!("/usr/bin:{path}"));
        } else {
            super::component("clippy", "clippy").ok()?;
        }
        cargo.arg("clippy");
        Some(cargo)
    }

    /// Where it comes from, for people.
    pub fn origin(&self) -> &'static str {
        match self {
            Compiler::Usual => "the compiler in use",
            Compiler::Seeded(_) => "a sysroot seeded from the distribution's sources",
        }
    }
}

/// All of the above, each once.
fn targets() -> impl Iterator<Item = &'static str> {
    let more = KERNEL_TARGETS.into_iter().filter(|target| !BARE_TARGETS.contains(target));
    BARE_TARGETS.into_iter().chain(more)
}

/// A compiler for all of [`BARE_TARGETS`] and [`KERNEL_TARGETS`]: the one in use if it has them,
/// else one made from Debian's packages, else the one in use after rustup added the targets.
///
/// # Errors
/// Why there is none.
pub fn bare(root: &Path) -> Result<Compiler, Missing> {
    if targets().all(rustup::has) {
        return Ok(Compiler::Usual);
    }
    let seeded = match debian() {
        Ok(true) => seed(root).map(Some),
        Ok(false) => Ok(None),
        Err(sentence) => Err(sentence),
    };
    if let Ok(Some(compiler)) = seeded {
        return Ok(compiler);
    }
    if targets().all(rustup::target) {
        return Ok(Compiler::Usual);
    }
    Err(match seeded {
        Err(sentence) => Missing { sentence, fails: true },
        Ok(_) => {
            let targets = targets().collect::<Vec<_>>().join(" ");
            let sentence = format!("no bare targets here: `rustup target add {targets}`.");
            Missing { sentence, fails: false }
        }
    })
}

/// Whether Debian's compiler with its library sources is here, installed now if need be.
fn debian() -> Result<bool, String> {
    if has_debian() {
        return Ok(true);
    }
    let Some(apt) = Apt::find() else { return Ok(false) };
    if !apt.update() || apt.candidate("rustc-web").is_none_or(|found| version(&found) < OLDEST) {
        return Ok(false);
    }
    apt.install(&["rustc-web", "cargo-web", "rust-web-src", "rust-web-clippy", "lld"], None)
        .map_err(|error| format!("rustc-web could not be installed: {error}"))?;
    Ok(has_debian())
}

fn has_debian() -> bool {
    let sources = Path::new("/usr/lib/rustlib/src/rust/library").is_dir();
    let cargo = Path::new("/usr/bin/cargo").is_file();
    let found = output("/usr/bin/rustc", &["--version"]);
    sources
        && cargo
        && found.is_some_and(|found| version(found.trim_start_matches("rustc ")) >= OLDEST)
}

/// The first two numbers of a version; zeros where there are none.
fn version(text: &str) -> (u32, u32) {
    let mut parts = text.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

fn seed(root: &Path) -> Result<Compiler, String> {
    let dir = build_dir(root).join("bare-sysroot");
    let output = Command::new("bash")
        .arg(root.join("scripts/bare-sysroot.sh"))
        .arg(&dir)
        .args(targets())
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO")
        .output()
        .map_err(|error| format!("bash: {error}"))?;
    if output.status.success() {
        return Ok(Compiler::Seeded(dir));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no reason given");
    Err(format!("the sysroot for bare targets could not be seeded: {}", last.trim()))
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn versions_of_debian_and_of_rustc_are_read() {
        assert_eq!(version("1.96.0+dfsg1-1~deb12u2"), (1, 96));
        assert_eq!(version("1.63.0 (4b91a6ea7 2022-08-08)"), (1, 63));
        assert_eq!(version("none"), (0, 0));
    }
}
