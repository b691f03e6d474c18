#!/bin/bash
# All suites, one after the other, with the time of each. Stops at the first that fails.
set -euo pipefail
cd "$(dirname "$0")/.."
begun=$SECONDS
suite() {
  local what=$1 start=$SECONDS
  shift
  printf '\n=== %s\n' "$what"
  "$@"
  printf '=== %s: %d s (%d s in all)\n' "$what" $((SECONDS - start)) $((SECONDS - begun))
}
suite "format" cargo fmt --all --check
suite "plugins" plugins/build.sh
suite "plugins, unit tests" bash -c 'cd plugins && cargo test --workspace --quiet'
suite "lints" cargo clippy --workspace --all-targets --quiet -- -D warnings
# Measurements are built by `make bench`, in release.
suite "host" cargo test --workspace --exclude proxy-operator-bench
suite "demo: a real guest each for two Proxies" tests/demo/demo.sh
