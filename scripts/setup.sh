#!/usr/bin/env bash
# setup.sh: what must be there before `cargo xtask` can be built and take over: a Rust compiler
# that is new enough, a C linker, and the crates Quire depends on. On Debian, as root, it installs
# the first two. Set QUIRE_INSTALL=no to keep the machine as it is.
set -euo pipefail
cd "$(dirname "$0")/.."

die() {
    echo "$1" >&2
    exit 1
}

# install PACKAGE...: with Debian's package manager, if we may.
install() {
    [ "${QUIRE_INSTALL:-yes}" != no ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
        return 1
    echo "Installing $*."
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update </dev/null >/dev/null &&
        apt-get -qq install -y --no-install-recommends "$@" </dev/null >/dev/null
}

# A compiler that rustup installed may not be on the PATH of this shell yet.
[ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ] && PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"

needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
command -v cargo >/dev/null || install rustc-web cargo-web ||
    die "Quire needs Rust $needed or later: install it with rustup, then run this again."
have=$(cargo --version 2>/dev/null | sed 's/^cargo \([0-9]*\.[0-9]*\).*/\1/')
oldest=$(printf '%s\n%s\n' "$needed" "${have:-0}" | sort -V | head -n 1)
[ "$oldest" = "$needed" ] ||
    die "Quire needs Rust $needed or later, and cargo here is ${have:-broken}: run rustup update."

command -v cc >/dev/null || install gcc libc6-dev ||
    die "Quire needs a C linker called cc: install gcc or clang, then run this again."

# Without a network, what this machine's own builds need may still be in the cache.
host=$(rustc -vV | sed -n 's/^host: //p')
cargo fetch --quiet --locked 2>/dev/null </dev/null ||
    cargo fetch --quiet --locked --offline --target "$host" 2>/dev/null </dev/null ||
    cargo fetch --locked </dev/null ||
    die "The crates that Quire depends on are neither in cargo's cache nor to be fetched."
