//! Kernels to boot: Quire's, built now, or a Linux.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Isa;
use crate::setup;
use crate::steps::{Missing, build_dir};

/// Words that free Linux of work that Quire's kernel does not do either: memory is cleared once
/// (with the distribution's `init_on_alloc` 6.12 clears large folios twice), nothing guards against
/// CPUs that leak by speculation, and no self-tests of the cryptography run beside the first
/// programs (they took half of the CPU).
pub(super) const FAIR: &str = "init_on_alloc=0 mitigations=off cryptomgr.notests";

/// Words for Linux as the distribution configures it. The self-tests are no part of that: with them
/// all figures of the first seconds are doubled.
const STOCK: &str = "cryptomgr.notests";

/// The command line's words for a Linux of this name.
pub(super) fn linux_words(name: &str) -> &'static str {
    if name == "stock" { STOCK } else { FAIR }
}

/// A kernel that QEMU can load.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Kernel {
    /// The file.
    pub file: PathBuf,
    /// If it is Linux, its words on the command line besides the console.
    pub linux: Option<&'static str>,
}

impl Kernel {
    /// Finds what `--kernel` names: `quire`, `linux` (the distribution's newest), `stock` (the same
    /// without our words), or a file, which is taken for Linux unless it is an ELF. If it `looks`,
    /// `quire` is built with its own checks of frames.
    ///
    /// # Errors
    /// The reason there is none.
    pub(super) fn find(root: &Path, isa: Isa, name: &str, looks: bool) -> Result<Self, Missing> {
        match name {
            "quire" => Self::quire(root, isa, if looks { &["checks"] } else { &[] }),
            "linux" | "stock" => {
                Ok(Self { file: setup::linux(root, isa)?, linux: Some(linux_words(name)) })
            }
            path if Path::new(path).is_file() => {
                let is_elf = std::fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"));
                Ok(Self { file: PathBuf::from(path), linux: (!is_elf).then_some(FAIR) })
            }
            path => Err(failed(format!("--kernel is `quire`, `linux` or a file, not `{path}`."))),
        }
    }

    /// Quire's kernel with these features; empty names are none.
    ///
    /// # Errors
    /// The reason it cannot be built.
    pub(super) fn quire(root: &Path, isa: Isa, features: &[&str]) -> Result<Self, Missing> {
        Ok(Self { file: build(root, isa, features)?, linux: None })
    }

    /// The command line: the words for the kernel, then init's settings (`KEY=VALUE`). The program
    /// and its arguments are not on it: both kernels split it at spaces.
    pub(super) fn command_line(&self, isa: Isa, settings: &[String]) -> String {
        let mut line = format!("console={}", isa.console());
        if let Some(words) = self.linux {
            line += &format!(" quiet panic=-1 rdinit=/init {words}");
        }
        for setting in settings {
            line += &format!(" {setting}");
        }
        line
    }
}

fn failed(sentence: String) -> Missing {
    Missing { sentence, fails: false }
}

fn broken(sentence: String) -> Missing {
    Missing { sentence, fails: true }
}

/// How the kernel is compiled. Its code is where it is linked, and it can print backtraces.
const FLAGS: &str = "-Crelocation-model=static -Cforce-frame-pointers=yes -Dwarnings";

/// Builds Quire's kernel with the compiler for bare targets.
fn build(root: &Path, isa: Isa, features: &[&str]) -> Result<PathBuf, Missing> {
    let compiler = setup::bare(root)?;
    let place = build_dir(root).join("kernel");
    let mut cargo = compiler.cargo(root);
    cargo
        .args(["build", "--quiet", "--release", "--target", isa.target()])
        .args(["--features", &features.join(" ")])
        .current_dir(root.join("os/kernel"))
        .env("CARGO_TARGET_DIR", &place)
        .env("RUSTFLAGS", FLAGS);
    match cargo.status() {
        Ok(status) if status.success() => {}
        Ok(_) => return Err(broken("Quire's kernel does not compile.".to_owned())),
        Err(error) => return Err(broken(format!("cargo: {error}."))),
    }
    let elf = place.join(isa.target()).join("release/quire-kernel");
    match isa {
        Isa::X86_64 | Isa::Riscv64 => Ok(elf),
        Isa::Aarch64 => flat(&elf),
    }
}

/// The image without its ELF headers: QEMU passes an arm64 kernel its device tree only in this
/// form.
fn flat(elf: &Path) -> Result<PathBuf, Missing> {
    let image = elf.with_extension("img");
    let usual = ["rust-objcopy", "llvm-objcopy", "aarch64-linux-gnu-objcopy"].map(str::to_owned);
    // Debian's rust-web-llvm keeps its tools beside the libraries of the compiler's host.
    let arch = std::env::consts::ARCH;
    let debian = format!("/usr/lib/rustlib/{arch}-unknown-linux-gnu/bin/rust-objcopy");
    for program in usual.into_iter().chain([debian]) {
        let mut command = Command::new(program);
        command.args(["-O", "binary"]).arg(elf).arg(&image);
        if command.output().is_ok_and(|output| output.status.success()) {
            return Ok(image);
        }
    }
    let sentence = "no objcopy for arm64 here: install llvm or binutils-aarch64-linux-gnu.";
    Err(failed(sentence.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::{FAIR, Isa, Kernel};

    #[test]
    fn the_settings_of_init_come_last() {
        let kernel = Kernel { file: "vmlinuz".into(), linux: Some(FAIR) };
        let line = kernel.command_line(Isa::Aarch64, &["thp=64K=always".to_owned()]);
        let expected = format!("console=ttyAMA0 quiet panic=-1 rdinit=/init {FAIR} thp=64K=always");
        assert_eq!(line, expected);
    }

    #[test]
    fn a_kernel_that_is_no_file_is_refused() {
        let root = std::path::Path::new(".");
        assert!(Kernel::find(root, Isa::X86_64, "no/such/kernel", false).is_err());
    }
}
