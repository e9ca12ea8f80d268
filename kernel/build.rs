//! Gives the linker the script of the ISA that is built for.

use std::env;

fn main() {
    let dir = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    println!("cargo:rustc-link-arg-bins=-T{dir}/{arch}.ld");
    println!("cargo:rerun-if-changed={arch}.ld");
    println!("cargo:rerun-if-changed=build.rs");
}
