//! Tells the linker where the kernel goes.

fn main() {
    println!("cargo:rustc-link-arg-bins=-T{}/tiny.ld", env!("CARGO_MANIFEST_DIR"));
    println!("cargo:rerun-if-changed=tiny.ld");
}
