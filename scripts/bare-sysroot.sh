#!/bin/bash
# bare-sysroot.sh DIR TARGET...
#
# Makes DIR (an absolute path) a toolchain that has core and alloc for each TARGET, from Debian's
# rustc and the library sources packaged with it. For machines whose rustup lacks these targets.
# Use it as RUSTC=DIR/bin/rustc with /usr/bin/cargo. Does nothing where DIR is up to date.
#
# The library must be built by the very compiler it belongs to; RUSTC_BOOTSTRAP lets that stable
# compiler accept -Zbuild-std, and is confined to this script.
set -euo pipefail
dir=$1
shift
rustc=${BARE_RUSTC:-/usr/bin/rustc}
cargo=${BARE_CARGO:-/usr/bin/cargo}
unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_TARGET CARGO_TARGET_DIR CARGO_BUILD_RUSTFLAGS

mkdir -p "$(dirname "$dir")"
exec 9>"$dir.lock"
flock 9

stamp="$("$rustc" -vV | md5sum) $*"
[ "$(cat "$dir/.stamp" 2>/dev/null || true)" = "$stamp" ] && exit 0

base=$("$rustc" --print sysroot)
host=$("$rustc" -vV | sed -n 's/^host: //p')
lld=$(command -v rust-lld ld.lld ld.lld-{30..14} 2>/dev/null | head -n 1) || true
if [ -z "$lld" ]; then
    lld=$(ls "${RUSTUP_HOME:-$HOME/.rustup}"/toolchains/*/lib/rustlib/"$host"/bin/rust-lld 2>/dev/null | head -n 1) || true
fi
if [ -z "$lld" ]; then
    echo "no linker for other ISAs: install lld" >&2
    exit 1
fi

rm -rf "$dir"
mkdir -p "$dir/bin" "$dir/lib/rustlib/$host/bin"
ln -sfn "$base/lib/rustlib/$host/lib" "$dir/lib/rustlib/$host/lib"
ln -sfn "$lld" "$dir/lib/rustlib/$host/bin/rust-lld" # where rustc looks for it
printf '#!/bin/sh\nexec "%s" --sysroot "%s" "$@"\n' "$rustc" "$dir" > "$dir/bin/rustc"
chmod +x "$dir/bin/rustc"
ln -sfn "$cargo" "$dir/bin/cargo"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/src"
echo '#![no_std]' > "$work/src/lib.rs"
cat > "$work/Cargo.toml" <<TOML
[package]
name = "seed"
version = "0.0.0"
edition = "2024"
[profile.release]
panic = "abort"
TOML
for target in "$@"; do
    # With bitcode, so that kernels can be optimised across crates (`lto`).
    (cd "$work" && RUSTC=$rustc RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Cembed-bitcode=yes \
        "$cargo" build --quiet --release \
        -Zbuild-std=core,alloc,compiler_builtins --target "$target")
    mkdir -p "$dir/lib/rustlib/$target/lib"
    cp "$work/target/$target"/release/deps/lib{core,alloc,compiler_builtins}-*.rlib \
        "$dir/lib/rustlib/$target/lib/"
done
echo "$stamp" > "$dir/.stamp"
