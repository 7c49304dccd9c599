#!/usr/bin/env bash
# Virtual environments for the tests. Sourced by the other scripts.

# Installs Python packages into a virtual environment, which it makes if there is none. uv takes a tenth of pip's CPU time.
# It does not know pip's settings, for example a mirror, so pip tries again what uv cannot install.
python_env() { # DIRECTORY ARGUMENT-OF-PIP-INSTALL…
  local uv
  uv=${CARGO_TARGET_DIR:-$(dirname "${BASH_SOURCE[0]}")/../target}/uv
  (
    flock 9
    [ -x "$uv/bin/uv" ] || { python3 -m venv "$uv" && "$uv/bin/python" -m pip install --quiet uv==0.13.8; }
    [ -x "$1/bin/python" ] || "$uv/bin/uv" venv --quiet --python "$(command -v python3)" "$1"
  ) 9<"${BASH_SOURCE[0]}"
  "$uv/bin/uv" pip install --quiet --system-certs --python "$1/bin/python" "${@:2}" ||
    { python3 -m venv "$1" && "$1/bin/python" -m pip install --quiet "${@:2}"; }
}
