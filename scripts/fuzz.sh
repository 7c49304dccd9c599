#!/usr/bin/env bash
# Fuzzes the parsers of bytes from guests, clients, servers and imported files. Runs one target per core at once.
#
#   scripts/fuzz.sh [SECONDS] [TARGET…]
#
# SECONDS (60) is how long each target runs. With `ci`, two targets run for a minute, others for 15 seconds, and the
# date selects the two. Without a TARGET, all run. The corpus in target/fuzz grows with each run; it begins with
# fuzz/corpus. An input that a target fails on is in target/fuzz/artifacts: fix the parser, and add the input to
# fuzz/corpus.
#
# Needs no nightly toolchain: the targets look for panics, hangs and unbounded memory, which libFuzzer finds without a
# sanitizer.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
seconds=${1:-60}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(ls fuzz/corpus)
export out=$PWD/target/fuzz

need_cargo
install_packages g++

# The whole workspace is named, so that dependencies have the features that the tests built them with. Only the fuzzer
# is built. It never starts a guest.
SANDLING_GUEST_BINARY=${SANDLING_GUEST_BINARY:-/bin/true} CARGO_INCREMENTAL=0 \
  RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/fuzz_rustc.sh \
  cargo build --quiet --workspace --example fuzz --features sandling-fuzz/libfuzzer
mkdir -p "$out/artifacts"
cp target/debug/examples/fuzz "$out/fuzz"

# Prints TARGET and SECONDS of all targets, the longest first.
plan() {
  local count=${#targets[@]} at after
  local first=$(($(date +%s) / 86400 * 2 % count))
  for at in "${!targets[@]}"; do
    after=$(((at - first + count) % count))
    case $seconds in
    ci) echo "${targets[at]} $((after < 2 ? 60 : 15))" ;;
    *) echo "${targets[at]} $seconds" ;;
    esac
  done | sort --stable --reverse --numeric-sort --key 2
}

# Runs one target. Its log is only needed to look into a finding.
run() { # TARGET SECONDS
  mkdir -p "$out/corpus/$1"
  local log=$out/$1.log dictionary=()
  [ ! -f "fuzz/dictionaries/$1.dict" ] || dictionary=(-dict="fuzz/dictionaries/$1.dict")
  SANDLING_FUZZ_TARGET=$1 "$out/fuzz" -max_total_time="$2" -timeout=20 -rss_limit_mb=1024 "${dictionary[@]}" \
    -artifact_prefix="$out/artifacts/$1-" "$out/corpus/$1" "fuzz/corpus/$1" >"$log" 2>&1 ||
    { echo "$1 failed:" >&2; tail -50 "$log" >&2; exit 255; }
  printf '%-14s %s\n' "$1" "$(tail -1 "$log")"
}
export -f run

plan | xargs --max-procs "$(nproc)" --max-args 2 bash -c 'run "$@"' -
