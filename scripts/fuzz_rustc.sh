#!/usr/bin/env bash
# Compiles a crate of this workspace for libFuzzer. Cargo calls it in place of rustc (RUSTC_WORKSPACE_WRAPPER), so
# dependencies are compiled as for the tests, and once for both.
set -euo pipefail
case " $* " in
*" --crate-name build_script_"*) exec "$@" ;;
esac
exec "$@" -Copt-level="${SANDLING_FUZZ_OPT_LEVEL:-1}" -Ccodegen-units=1 -Cdebug-assertions -Cpasses=sancov-module \
  -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
  -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares
