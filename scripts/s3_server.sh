#!/usr/bin/env bash
# The S3 server of the tests: moto, which runs on loopback and keeps objects in memory. Sourced by the other scripts.

. "$(dirname "${BASH_SOURCE[0]}")/python.sh"

# The program that the tests start.
export SANDLING_TEST_S3=${SANDLING_TEST_S3:-${XDG_CACHE_HOME:-$HOME/.cache}/sandling-test/moto-5.2.5/bin/moto_server}

install_s3_server() {
  [ -x "$SANDLING_TEST_S3" ] ||
    python_env "$(dirname "$(dirname "$SANDLING_TEST_S3")")" 'moto[s3]==5.2.5' flask flask-cors
}
