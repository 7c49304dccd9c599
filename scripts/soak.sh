#!/usr/bin/env bash
# Runs long versions of tests in `scripts/test.sh`: kills, faults of a fleet, load, generated requests, fuzzing and
# the fleet's simulator. Also runs the suites of PandaStack's and E2B's Python clients against a fleet of three, the
# SDKs on this system's Python and Node, the slow blocks of the documentation, E2B's newest clients, its desktop
# client, R and Java, the evaluation harness harbor, agent frameworks as pinned and as newest, nginx and Caddy in
# front of a server, an upgrade, a first hour on a clean Debian, and the host's attacks on builds that each lack one
# defense.
#
#   scripts/soak.sh [KILLS] [SECONDS] [OLD]
#
# KILLS (100) is how often the server is killed during its work, and how many faults a fleet has. SECONDS (600) is how long
# each of the others runs; each fuzz target runs for half of that. OLD is a released binary from which upgrades of a server and
# of a fleet are tested, or `git:COMMIT`, such as `git:main~20`, which is built then; by default the upgrades are from this
# version to itself. Uses the templates of the tests. Continues after a failure and
# fails at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
. scripts/templates.sh
kills=${1:-100}
seconds=${2:-600}
old=${3:-}

need_cargo
install_packages "${RUN_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
cargo build --release --package sandling-cli --package sandling-bench
sandling=$PWD/target/release/sandling
if [ "${old#git:}" != "$old" ]; then
  old=$(scripts/build_commit.sh "${old#git:}")
fi
build_templates "$sandling" base code-interpreter desktop

status=0
conformance/faults/run.sh "$sandling" "$kills" || status=$?
conformance/fleet/run.sh "$sandling" "$kills" || status=$?
conformance/fleet/upgrade.sh "${old:-$sandling}" "$sandling" || status=$?
CONFORMANCE_FLEET=3 conformance/pandastack/run.sh "$sandling" python || status=$?
CONFORMANCE_FLEET=3 conformance/e2b/run.sh "$sandling" python || status=$?
target/release/sandling-load --sandling "$sandling" --templates "$SANDLING_TEST_TEMPLATES" --seconds "$seconds" ||
  status=$?
conformance/schemathesis.sh "$sandling" "$seconds" || status=$?
conformance/reverse_proxy/run.sh "$sandling" || status=$?
scripts/fuzz.sh "$((seconds / 2))" || status=$?
SANDLING_SIMULATOR_SEEDS=1000 cargo test --release --package sandling-fleet --test simulator || status=$?
CONFORMANCE_NEWEST=1 conformance/e2b/run.sh "$sandling" python typescript || status=$?
conformance/e2b/run.sh "$sandling" domain_more domain_typescript || status=$?
conformance/e2b/run.sh "$sandling" desktop || status=$?
conformance/e2b/run.sh "$sandling" languages || status=$?
conformance/desktop/run.sh "$sandling" || status=$?
conformance/harbor/run.sh "$sandling" || status=$?
conformance/frameworks/run.sh "$sandling" || status=$?
CONFORMANCE_NEWEST=1 conformance/frameworks/run.sh "$sandling" || status=$?
sdk/conformance/run.sh "$sandling" python typescript slow_docs || status=$?
SANDLING_TEST_FORKS=${SANDLING_TEST_FORKS:-200} \
  cargo test --package sandling-engine --test vm no_two_children_draw_the_same || status=$?
scripts/upgrade.sh "${old:-$sandling}" "$sandling" || status=$?
scripts/dist.sh "$sandling" wheel npm && scripts/first_hour.sh || status=$?
conformance/attack/run.sh "$sandling" || status=$?
conformance/attack/mutations.sh each || status=$?
scripts/leftovers.sh || status=$?
exit "$status"
