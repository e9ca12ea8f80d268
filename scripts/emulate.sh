#!/bin/bash
# emulate.sh: runs the arm64 and riscv64 clear and copy backends under QEMU's user-mode emulation.
#
# Installs nothing. Where something is missing it says what in one sentence ("skipped: …") and
# succeeds; it fails only when a backend does, or does not run although the emulator has it.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
arm=aarch64-unknown-none
riscv=riscv64gc-unknown-none-elf

skip() {
    echo "skipped: $1"
    exit 0
}

qemu_arm=$(command -v qemu-aarch64 qemu-aarch64-static | head -n 1) || true
qemu_riscv=$(command -v qemu-riscv64 qemu-riscv64-static | head -n 1) || true
if [ -z "$qemu_arm" ] || [ -z "$qemu_riscv" ]; then
    skip "to run the arm64 and riscv64 backends, install qemu-user, version 8.2 or later."
fi

has_core() {
    local dir
    dir=$(rustc --print target-libdir --target "$1" 2>/dev/null) || return 1
    compgen -G "$dir/libcore-*.rlib" > /dev/null
}

target_dir=${CARGO_TARGET_DIR:-$root/target}
if command -v cargo > /dev/null && has_core "$arm" && has_core "$riscv"; then
    cargo=cargo
elif [ -x /usr/bin/rustc ] && [ -x /usr/bin/cargo ] && [ -d /usr/lib/rustlib/src/rust/library ]; then
    sysroot=$target_dir/bare-sysroot
    "$root/scripts/bare-sysroot.sh" "$sysroot" "$arm" "$riscv"
    export RUSTC=$sysroot/bin/rustc
    cargo=/usr/bin/cargo
else
    skip "install the targets with 'rustup target add $arm $riscv', or, on Debian, the packages rustc-web, cargo-web, rust-web-src and lld."
fi

export CARGO_TARGET_DIR=$target_dir/emulate
(cd "$root/crates/hw/emulate" &&
    "$cargo" build --quiet --release --target "$arm" --target "$riscv")

# run NAME EXPECTED UNEXPECTED COMMAND...: each word of EXPECTED must have passed, and no word of
# UNEXPECTED may have been tried: a backend shows only where the CPU has it.
run() {
    local name=$1 expected=$2 unexpected=$3 out
    shift 3
    if ! out=$("$@"); then
        echo "$name: a backend failed:" >&2
        echo "$out" >&2
        exit 1
    fi
    for backend in $expected; do
        if ! grep -qx "clear $backend" <<< "$out"; then
            echo "$name: the backend $backend did not run" >&2
            exit 1
        fi
    done
    for backend in $unexpected; do
        if grep -qx "clear $backend" <<< "$out"; then
            echo "$name: the backend $backend ran on a CPU without it" >&2
            exit 1
        fi
    done
    echo "$name: $(tr '\n' ',' <<< "$out" | sed 's/,$//; s/,/, /g'): passed"
}

mops="mops mops-nt"
version=$("$qemu_arm" --version | sed -n '1s/.*version \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
read -r major minor <<< "${version:-0 0}"
if [ "$((major * 100 + minor))" -lt 802 ]; then
    echo "note: QEMU $major.$minor has no FEAT_MOPS (8.2 has), so its backends are not run"
    mops=""
fi
run "arm64 (max)" "$mops zva stores nt-stores portable" "" \
    "$qemu_arm" -cpu max "$CARGO_TARGET_DIR/$arm/release/quire-hw-emulate"
run "arm64 (cortex-a72)" "zva stores nt-stores portable" "mops mops-nt" \
    "$qemu_arm" -cpu cortex-a72 "$CARGO_TARGET_DIR/$arm/release/quire-hw-emulate"
run "riscv64 (max)" "zicboz stores portable" "" \
    "$qemu_riscv" -cpu max "$CARGO_TARGET_DIR/$riscv/release/quire-hw-emulate"
run "riscv64 (rv64, no zicboz)" "stores portable" "zicboz" \
    "$qemu_riscv" -cpu rv64,zicboz=off "$CARGO_TARGET_DIR/$riscv/release/quire-hw-emulate"
