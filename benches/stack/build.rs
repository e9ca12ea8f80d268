//! Tells the linker where the program goes.

fn main() {
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    // Where the emulated boards have RAM. A program of Linux may be anywhere.
    let start = match &*arch {
        "riscv64" => 0x8000_0000,
        "aarch64" => 0x4100_0000,
        _ => 0x0100_0000_u64,
    };
    println!("cargo:rustc-link-arg-bins=--defsym=START={start:#x}");
    println!("cargo:rustc-link-arg-bins=-T{}/stack.ld", env!("CARGO_MANIFEST_DIR"));
    println!("cargo:rerun-if-changed=stack.ld");
}
