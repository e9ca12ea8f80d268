//! C compilers with a static C library, for the programs of `os/guest/`.

use std::path::Path;
use std::process::Command;

use super::apt::{Apt, output};
use crate::guest::Isa;
use crate::steps::Missing;

/// The compiler for `isa`, installed now if need be.
///
/// # Errors
/// Why there is none.
pub fn c_compiler(isa: Isa) -> Result<&'static str, Missing> {
    let (program, packages) = words(isa);
    if works(program) {
        return Ok(program);
    }
    let list = packages.join(" ");
    let Some(apt) = Apt::find() else {
        let sentence = format!("{program} with a static libc is missing: install {list}.");
        return Err(Missing { sentence, fails: false });
    };
    let installed = match apt.update() {
        true => apt.install(&packages, None),
        false => Err("there is no network".to_owned()),
    };
    match installed {
        Ok(()) if works(program) => Ok(program),
        Ok(()) => {
            let sentence = format!("{program} does not link statically.");
            Err(Missing { sentence, fails: true })
        }
        Err(error) => {
            let sentence = format!("{list} could not be installed: {error}.");
            Err(Missing { sentence, fails: true })
        }
    }
}

/// The program, and the packages of Debian that have it and its C library.
fn words(isa: Isa) -> (&'static str, [&'static str; 2]) {
    let is_native = std::env::consts::ARCH == isa.name();
    match isa {
        _ if is_native => ("gcc", ["gcc", "libc6-dev"]),
        Isa::Aarch64 => {
            ("aarch64-linux-gnu-gcc", ["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"])
        }
        Isa::Riscv64 => {
            ("riscv64-linux-gnu-gcc", ["gcc-riscv64-linux-gnu", "libc6-dev-riscv64-cross"])
        }
        Isa::X86_64 => ("x86_64-linux-gnu-gcc", ["gcc-x86-64-linux-gnu", "libc6-dev-amd64-cross"]),
    }
}

/// Whether it is here and knows a static C library.
fn works(program: &str) -> bool {
    let Some(path) = output(program, &["-print-file-name=libc.a"]) else { return false };
    // Without the library, the compiler gives back the name alone.
    let path = Path::new(path.trim());
    path.is_absolute() && path.is_file() && Command::new(program).arg("-v").output().is_ok()
}
