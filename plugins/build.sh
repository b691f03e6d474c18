#!/bin/bash
# Builds plugins and makes components of them.
#   build.sh [-o DIR] [--toolchain rustup|debian] [NAME…]
# NAME: a plugin's folder here or in examples/; default: all of them. The components go to DIR/NAME.wasm, by default
# to target/plugins. The core modules are built by rustup's toolchain where it has the target wasm32-unknown-unknown
# or can get it, else by Debian's rustc-web, with a standard library that is built once and kept under
# ${PROXY_OPERATOR_CACHE:-${XDG_CACHE_HOME:-~/.cache}/proxy-operator}.
# In braces, which bash reads whole: a checkout while this runs does not change what it does.
{
set -euo pipefail
shopt -s nullglob

target=wasm32-unknown-unknown
caller=$PWD
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"
here=$PWD
build=${CARGO_TARGET_DIR:-$here/target}
[[ $build = /* ]] || build=$caller/$build
out=$here/target/plugins
toolchain=
names=()

say() { printf 'build.sh: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

while (($#)); do
  case $1 in
    -o) out=${2:?a folder after -o}; [[ $out = /* ]] || out=$caller/$out; shift 2 ;;
    --toolchain) toolchain=${2:?rustup or debian after --toolchain}; shift 2 ;;
    -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$here/build.sh"; exit 0 ;;
    -*) die "unknown option $1; see --help" ;;
    *) names+=("$1"); shift ;;
  esac
done

# A plugin is a member that builds a cdylib.
folder() {
  local d
  for d in "$here/$1" "$here/examples/$1"; do
    if [[ -f $d/Cargo.toml ]] && grep -q '"cdylib"' "$d/Cargo.toml"; then echo "$d"; return; fi
  done
  return 1
}
if ((${#names[@]} == 0)); then
  for manifest in "$here"/*/Cargo.toml "$here"/examples/*/Cargo.toml; do
    if grep -q '"cdylib"' "$manifest"; then names+=("$(basename "$(dirname "$manifest")")"); fi
  done
fi
packages=()
for name in "${names[@]}"; do
  folder "$name" >/dev/null || die "no plugin $name here or in examples/"
  packages+=(-p "$name")
done

# --- the toolchain ---

# rustup's, with the target: 0 when it is there afterwards.
rustup_ready() {
  command -v rustup >/dev/null || return 1
  local libs
  libs=$(rustc --print target-libdir --target "$target" 2>/dev/null) && [[ -d $libs ]] && return 0
  say "rustup: adding the target $target"
  timeout "${PROXY_OPERATOR_RUSTUP_TIMEOUT:-90}" rustup target add "$target" >&2 || return 1
  [[ -d $(rustc --print target-libdir --target "$target") ]]
}

debian_rustc=/usr/bin/rustc
debian_cargo=/usr/bin/cargo
debian_linker() {
  local l
  for l in /usr/bin/rust-lld /usr/bin/wasm-ld-[0-9]* /usr/bin/wasm-ld; do
    if [[ -x $l ]]; then echo "$l"; fi
  done | sort -V | tail -1
}
debian_source() { echo "$("$debian_rustc" --print sysroot)/lib/rustlib/src/rust/library"; }
debian_ready() {
  [[ -x $debian_rustc && -x $debian_cargo && -n $(debian_linker) ]] && [[ -f $(debian_source)/Cargo.toml || -f /usr/src/rustc/library/Cargo.toml ]]
}
debian_packages="apt-get install --no-install-recommends rustc-web cargo-web rust-web-src lld-22"

case ${toolchain:-auto} in
  rustup) rustup_ready || die "rustup has no target $target and cannot get it" ;;
  debian) debian_ready || die "Debian's toolchain is not complete: $debian_packages" ;;
  auto)
    if rustup_ready; then toolchain=rustup
    elif debian_ready; then toolchain=debian
    else die "no toolchain for $target: rustup target add $target, or on Debian: $debian_packages"; fi ;;
  *) die "--toolchain is rustup or debian" ;;
esac
say "toolchain: $toolchain"

# --- the same bytes on every machine ---

cargo_home=${CARGO_HOME:-$HOME/.cargo}
flags=("--remap-path-prefix=$here=/plugins")
remap() {
  local source
  for source in "$cargo_home"/registry/src/*; do flags+=("--remap-path-prefix=$source=/crates"); done
}
encoded() { local IFS=$'\x1f'; echo "${flags[*]}"; }

# --- the core modules ---

if [[ $toolchain = rustup ]]; then
  modules=$build
  CARGO_TARGET_DIR=$modules cargo fetch --locked --quiet
  remap
  CARGO_TARGET_DIR=$modules CARGO_ENCODED_RUSTFLAGS=$(encoded) \
    cargo build --locked --release --target "$target" "${packages[@]}"
  cargo=(cargo)
else
  linker=$(debian_linker)
  export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=$linker
  unset RUSTUP_TOOLCHAIN
  export RUSTC=$debian_rustc
  cargo=("$debian_cargo")
  "$debian_cargo" fetch --locked --quiet
  remap
  cache=${PROXY_OPERATOR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/proxy-operator}
  version=$("$debian_rustc" -vV | sha256sum | cut -c1-12)
  sysroot=$cache/sysroot-$target-$("$debian_rustc" --version | cut -d' ' -f2)-$version
  libs=lib/rustlib/$target/lib
  if [[ ! -d $sysroot/$libs ]]; then
    say "building the standard library for $target (a minute, once)"
    # With bitcode, which the plugins' link-time optimization needs.
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/std.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    mkdir -p "$work/src" "$work/sysroot/$libs"
    printf '[package]\nname = "empty"\nversion = "0.0.0"\nedition = "2021"\n[workspace]\n[profile.release]\npanic = "abort"\n' >"$work/Cargo.toml"
    echo '#![allow(unused)]' >"$work/src/lib.rs"
    export RUSTC_BOOTSTRAP=1
    (cd "$work" && "$debian_cargo" fetch --quiet -Zbuild-std=std,panic_abort --target "$target")
    flags=("--remap-path-prefix=$(debian_source)=/std" -Cembed-bitcode=yes)
    remap
    (cd "$work" && CARGO_TARGET_DIR=$work/target CARGO_ENCODED_RUSTFLAGS=$(encoded) \
      "$debian_cargo" build --quiet --release --target "$target" -Zbuild-std=std,panic_abort)
    for lib in "$work/target/$target/release/deps/"*.rlib; do
      [[ $(basename "$lib") = libempty-* ]] || cp "$lib" "$work/sysroot/$libs/"
    done
    # In one step, so that a build that was cut leaves no half a sysroot; if another build was faster, its is used.
    mv -T "$work/sysroot" "$sysroot" 2>/dev/null || [[ -d $sysroot/$libs ]]
    rm -rf "$work"
    trap - EXIT
    unset RUSTC_BOOTSTRAP
    flags=("--remap-path-prefix=$here=/plugins")
    remap
  fi
  flags+=("--sysroot=$sysroot")
  # A target folder of its own: what two compilers, or one with two standard libraries, made does not mix.
  modules=$build/debian-$(cat "$sysroot/$libs"/*.rlib | sha256sum | cut -c1-12)
  CARGO_TARGET_DIR=$modules CARGO_ENCODED_RUSTFLAGS=$(encoded) \
    "$debian_cargo" build --locked --release --target "$target" "${packages[@]}"
fi

# --- the components ---

mkdir -p "$out"
# Not for release: link-time optimization of the tool would take longer than all that it does.
CARGO_TARGET_DIR=$modules "${cargo[@]}" build --locked --quiet -p componentize
for name in "${names[@]}"; do
  "$modules/debug/componentize" "$modules/$target/release/${name//-/_}.wasm" "$out/$name.wasm"
done
exit 0
}
