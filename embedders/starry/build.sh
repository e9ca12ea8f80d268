#!/bin/bash
# Builds StarryOS for arm64 on a Debian 12, from packages of the registry of Rust:
#
#   build.sh WORK stock|stock-bytes|quire check|build
#
# stock-bytes is the stock system with the functions for bytes (memcpy, memset) that the one on
# Quire has: it says what a row owes to those alone.
#
# WORK/packages has the packages that are changed a little for this compiler, and for both kernels;
# WORK/KERNEL/starry-kernel the kernel itself, as it is or on Quire, and WORK/KERNEL/starry.bin is
# what boots. Ends with one sentence where something is missing, or not where it was.
set -euo pipefail
# In braces, so that it is read as a whole: it may be edited while it runs.
{
here=$(cd "$(dirname "$0")" && pwd)
work=$(mkdir -p "$1" && cd "$1" && pwd) kernel=$2 what=$3
jobs=${CARGO_BUILD_JOBS:-2} target=aarch64-unknown-none-softfloat
# 3: something is missing here.
die() { echo "$*" >&2; exit 3; }

for tool in /usr/bin/rustc /usr/bin/cargo aarch64-linux-gnu-gcc aarch64-linux-gnu-objcopy ld.lld rsync; do
  command -v "$tool" > /dev/null || die "$tool is missing: apt-get install rustc-web cargo-web" \
    "rust-web-src lld gcc-aarch64-linux-gnu libc6-dev-arm64-cross libclang1-14" \
    "libclang-common-14-dev rsync."
done
clang=$(ls -d /usr/lib/llvm-*/lib/clang/*/include/limits.h 2> /dev/null | head -n 1) || true
[ -n "$clang" ] || die "libclang's headers are missing: apt-get install libclang-common-14-dev."
clang=${clang%/include/limits.h}

unset RUSTUP_TOOLCHAIN CARGO
export PATH=$work/bin:/usr/bin:$PATH RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 SMP=4 AX_LOG=warn
export CARGO_TARGET_DIR=$work/target LIBCLANG_PATH=${LIBCLANG_PATH:-${clang%/clang/*}}
export BINDGEN_EXTRA_CLANG_ARGS=-resource-dir=$clang
flags="-Clinker=$(command -v ld.lld) -Crelocation-model=pic -Clink-args=-pie"
flags="$flags -Clink-args=--gc-sections -Clink-args=-znorelro -Clink-args=-znostart-stop-gc"
export RUSTFLAGS="$flags -Clink-args=-Tlinker.x -Clink-arg=-u -Clink-arg=_head"

# A package's build asks for this compiler; it needs freestanding headers alone.
mkdir -p "$work/bin" "$work/packages" "$work/fetch/src" "$work/$kernel"
cat > "$work/bin/aarch64-linux-musl-gcc" << 'END'
#!/bin/sh
[ "$1" = -print-sysroot ] && { echo /usr/aarch64-linux-gnu; exit 0; }
exec aarch64-linux-gnu-gcc "$@"
END
chmod +x "$work/bin/aarch64-linux-musl-gcc"

# The sources, in the versions of versions.txt.
{
  printf '[workspace]\n[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2024"\n'
  echo '[dependencies]'
  sed -e '/^#/d' -e 's/^\([^ ]*\) \(.*\)$/\1 = "=\2"/' "$here/versions.txt"
} > "$work/fetch/Cargo.toml"
echo 'fn main() {}' > "$work/fetch/src/main.rs"
[ -f "$work/fetch/Cargo.lock" ] || (cd "$work/fetch" && cargo fetch -q) ||
  die "the packages of embedders/starry/versions.txt cannot be fetched."
registry=$(ls -d "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/ | head -n 1)
version() { sed -n "s/^$1 //p" "$here/versions.txt"; }

# Copies a package, edited, to DIR/NAME; a file that stays the same keeps its time.
copy() {
  local dir=$1 name=$2 new=$work/new/$2
  rm -rf "$new" && mkdir -p "$work/new" && cp -r "$registry/$name-$(version "$name")" "$new"
  "edit_${name//-/_}" "$new"
  mkdir -p "$dir/$name" && rsync -rc --delete "$new/" "$dir/$name/" && rm -rf "$new"
}
edit() { awk -v packages="$work/new" -f "$here/edit.awk" "$here/$1"; }
edit_starry_kernel() {
  sed -i '1,/^#!\[no_std\]/s/^#!\[no_std\]/#![no_std]\n#![feature(c_variadic)]/' "$1/src/lib.rs"
  [ "$kernel" = stock ] || edit edits-bytes.txt
  [ "$kernel" = quire ] || return 0
  # Its address spaces go, but for their owners; ours take their place.
  find "$1/src/mm/aspace" -mindepth 1 -maxdepth 1 ! -name 'lifecycle*' -exec rm -r {} +
  cp "$here"/aspace/*.rs "$1/src/mm/aspace/"
  printf '\n[dependencies.quire-starry]\npath = "%s/machine"\n' "$here" >> "$1/Cargo.toml"
  edit edits.txt
}
edit_ax_cpu() { edit edits-cpu.txt; }
edit_ax_io() {
  sed -i '/#!\[feature(core_io)\]/d' "$1/src/lib.rs"
  sed -i -E "s/Borrowed(Buf|Cursor)<'_, u8>/Borrowed\1<'_>/g" \
    $(grep -rlE "Borrowed(Buf|Cursor)<'_, u8>" "$1/src")
}
edit_printf_compat() { sed -i -E 's/\bargs\.next_arg(\(|::)/args.arg\1/' "$1/src/parser.rs"; }
# Where instructions are the clock, idle time races ahead of the disk: its timeouts are longer.
edit_ax_fs_ng() {
  local block=$1/src/block/runtime
  sed -i -E '/const (REQUEST|QUEUE_REGISTER_TRANSITION|CONTROLLER_TRANSITION)_TIMEOUT/s/from_secs\(([0-9]+)\)/from_secs(\1_00000)/' \
    "$block/hctx/mod.rs" "$block/lifecycle/mod.rs"
}
for name in ax-cpu ax-io printf-compat ax-fs-ng; do copy "$work/packages" "$name"; done
copy "$work/$kernel" starry-kernel

# The program that is booted: starryos without the line that includes a file it does not have.
app=$work/$kernel/app starryos=$registry/starryos-$(version starryos)
mkdir -p "$app/src"
# The library is compiled as one unit, in this crate.
machine=
[ "$kernel" != quire ] || machine=$'[profile.release.package.quire-starry]\ncodegen-units = 1'
cp "$starryos"/{build.rs,linker.ld} "$app/" && cp "$starryos/src/init.sh" "$app/src/"
grep -v 'README.md' "$starryos/src/main.rs" > "$app/src/main.rs"
if [ "$kernel" != stock ]; then
  sed -E 's/\bmem(move|cpy|set)\b/quire_mem\1/g' "$here/../../os/kernel/src/isa/aarch64/bytes.rs" > \
    "$app/src/bytes.rs"
  cp "$here/early.s" "$app/src/"
  echo 'mod bytes; core::arch::global_asm!(include_str!("early.s"));' >> "$app/src/main.rs"
fi
{
  cat << END
[workspace]
[package]
name = "starryos"
version = "$(version starryos)"
edition = "2024"
build = "build.rs"
[[bin]]
name = "starryos"
path = "src/main.rs"
test = false
[dependencies]
ax-driver = "=$(version ax-driver)"
ax-hal = { version = "=$(version ax-hal)", features = ["smp"] }
ax-runtime = { version = "=$(version ax-runtime)", features = ["ext-ld", "smp"] }
ax-std = { version = "=$(version ax-std)", default-features = false, features = ["alloc", "fd", "ext-ld", "fs"] }
axplat-dyn = { version = "=$(version axplat-dyn)", default-features = false, features = ["smp"] }
starry-kernel = { version = "=$(version starry-kernel)", features = ["dev-log", "ext4"] }
[features]
default = ["ax-driver/nvme"]
[profile.release]
lto = false
$machine
[patch.crates-io]
starry-kernel = { path = "../starry-kernel" }
END
  for name in ax-cpu ax-io printf-compat ax-fs-ng; do
    echo "$name = { path = \"../../packages/$name\" }"
  done
} > "$app/Cargo.toml"
[ -f "$app/Cargo.lock" ] || cp "$here/Cargo.lock" "$app/Cargo.lock"

cd "$app"
cargo "$what" -j"$jobs" --release -Zbuild-std=core,alloc,compiler_builtins --target $target
[ "$what" = build ] || exit 0

# The kernel wants the table of its symbols, in the place that the linker left for it.
[ -x "$work/bin/gen_ksym" ] || env -u RUSTFLAGS -u RUSTC_BOOTSTRAP \
  CARGO_TARGET_DIR="$work/target-host" cargo install -q -j"$jobs" ksym \
  --version =0.6.0 --bin gen_ksym --root "$work" || die "the package ksym 0.6.0 cannot be fetched."
cd "$work/$kernel"
cp "$work/target/$target/release/starryos" starry.elf
aarch64-linux-gnu-nm -n starry.elf | awk '$2 ~ /^[TtDBR]$/ && $3 !~ /^\.L/ && $3 != "$x" {print $1, $2, $3}' |
  gen_ksym > symbols
room=$(aarch64-linux-gnu-objdump -h starry.elf | awk '$2 == ".kallsyms" {print $3}')
truncate -s $((16#$room)) symbols
aarch64-linux-gnu-objcopy --update-section .kallsyms=symbols starry.elf
aarch64-linux-gnu-objcopy --strip-all -O binary starry.elf starry.bin
exit 0
}
