#!/usr/bin/env bash
# Checks the Kubernetes manifest of docs/fleet.md against the schemas of Kubernetes, which a Python package contains.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/python.sh
installed=${CARGO_TARGET_DIR:-target}/kubernetes
python_env "$installed" kubernetes-validate==1.37.0
for version in 1.30 1.37; do
  "$installed/bin/kubernetes-validate" --strict --kubernetes-version "$version" docs/kubernetes/*.yaml
done
# The check must be able to fail.
! sed 's/hostNetwork: true/hostNetwerk: true/' docs/kubernetes/daemonset.yaml |
  "$installed/bin/kubernetes-validate" --strict /dev/stdin >/dev/null 2>&1
