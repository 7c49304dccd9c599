#!/usr/bin/env bash
# Checks scripts/kubernetes.yaml against Kubernetes' schemas, and its scripts as far as a shell can read them. Then damages
# the manifest in several ways, and fails if one is not noticed.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/python.sh
manifest=scripts/kubernetes.yaml
environment=${CARGO_TARGET_DIR:-target}/kubernetes
damaged=$(mktemp --suffix .yaml)
trap 'rm -f "$damaged"' EXIT
python_env "$environment" kubernetes-validate==1.37.0

# The oldest version that is tested, and the newest.
versions=(1.30 1.37)
check() { # FILE
  local version
  for version in "${versions[@]}"; do
    "$environment/bin/kubernetes-validate" --strict --quiet --kubernetes-version "$version" "$1" || return 1
  done
  "$environment/bin/python" - "$1" <<'PYTHON'
import subprocess, sys, yaml

kinds = []
for part in yaml.safe_load_all(open(sys.argv[1])):
    kinds.append(part["kind"])
    for name, script in part.get("data", {}).items():
        if "\n" in script:
            subprocess.run(["sh", "-n"], input=script, text=True, check=True)
wanted = ["Namespace", "ConfigMap", "ConfigMap", "ServiceAccount", "Service", "DaemonSet"]
sys.exit(kinds != wanted and f"the manifest has {kinds}")
PYTHON
}

check "$manifest"
while read -r damage; do
  sed "$damage" "$manifest" >"$damaged"
  ! cmp --silent "$manifest" "$damaged" || { echo "$damage damages nothing" >&2 && exit 1; }
  ! check "$damaged" >/dev/null 2>&1 || { echo "the check does not notice $damage" >&2 && exit 1; }
done <<'DAMAGES'
s/hostNetwork:/hostNetwrok:/
s/terminationGracePeriodSeconds: 600/terminationGracePeriodSeconds: long/
s/  selector:/  chooser:/
s/kind: DaemonSet/kind: DemonSet/
s/configMapRef:/configMapReference:/
s/^    fi$//
DAMAGES
echo "$manifest is valid for Kubernetes ${versions[*]}"
