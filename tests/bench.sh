#!/bin/bash
# Measures: builds plugins and programs in release, runs tests/bench, writes target/bench/results.json and prints a
# table. What the figures mean stands in docs/performance.md. A goal that is missed fails nothing.
# usage: bench.sh [FIGURE…]     all figures, or those named
set -euo pipefail
root=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
cd "$root"
target=${CARGO_TARGET_DIR:-$root/target}
plugins/build.sh kvm
cargo build --release -p proxy-operator -p proxy-operator-bench
"$target/release/proxy-operator-bench" -o "$root/target/bench/results.json" "$@"
