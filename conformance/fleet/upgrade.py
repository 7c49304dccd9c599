"""Upgrades a fleet of three, one node after another, while clients use it.

    python upgrade.py OLD NEW [SEED]

OLD and NEW are programs. The fleet begins with OLD. Each node in turn is drained, restarted with NEW, and gets sandboxes again.
Meanwhile clients create, run, read and delete through any node. They repeat only what the documentation says: a request
that was refused with 429, 503 or 507, or not answered, with the same `Idempotency-Key`. No sandbox may end and no command may
run twice. Versions that work together are shown as a warning and not as an error.
"""

import json
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from harness.fleet import NAMES, Fleet
from harness.worker import Worker
from random_faults import WORKERS, check, empty, keep_logs, work_during
from support import processes

#: A drain waits this long for commands that run. Those of the clients take a second.
WAIT = 30
DRAINED_WITHIN = 300


def main(old, new, seed, kept):
    processes.become_subreaper()
    chance = random.Random(seed)
    workers = [Worker(chance.random()) for _ in range(WORKERS)]
    place = Path(tempfile.mkdtemp(prefix="fleet."))
    # The fleet starts with the program of this variable.
    os.environ["SANDLING"] = old
    fleet = Fleet(place)
    begun = time.monotonic()
    try:
        fleet.start()
        for node in fleet.nodes:
            print(f"{time.monotonic() - begun:5.0f} s: {node.name} is upgraded", flush=True)
            work_during(fleet, workers, lambda ended, node=node: upgrade(node, new))
            check(fleet, workers)
            check_versions(fleet)
        empty(fleet, workers)
        fleet.stop()
    except BaseException:
        keep_logs(place, kept)
        print(f"seed {seed} failed; the logs are in {kept}", file=sys.stderr)
        raise
    finally:
        fleet.remove()
        shutil.rmtree(place, ignore_errors=True)
    ended = [event for worker in workers for event in worker.ended]
    assert not ended, f"sandboxes ended during the upgrade: {ended}"
    done = {what: sum(worker.done[what] for worker in workers) for what in workers[0].done}
    print(f"{len(NAMES)} nodes upgraded in {time.monotonic() - begun:.0f} s (seed {seed}): {done}")


def upgrade(node, program):
    node.cli("fleet", "drain", "--wait", str(WAIT), node.name, timeout=DRAINED_WITHIN)
    assert not node.directories(), f"{node.name} is drained and has {node.directories()}"
    node.stop()
    node.program = program
    node.start()
    # The first node runs etcd.
    processes.until("the node is a member again", lambda: is_member(node))
    node.cli("fleet", "undrain", node.name)


def is_member(node):
    try:
        return any(member["name"] == node.name for member in json.loads(node.cli("fleet", "status", "--json")))
    except AssertionError:
        return False


def check_versions(fleet):
    """`doctor` calls nodes of two versions that work together a weakness, and never an error."""
    for node in fleet.nodes:
        report = json.loads(node.said_by("doctor", "--json"))
        checks = [check for check in report["checks"] if check["name"].startswith("fleet")]
        assert len(checks) >= len(NAMES), report
        assert all(check["verdict"] in ("ok", "weaker") for check in checks), checks


if __name__ == "__main__":
    chosen = int(sys.argv[3]) if len(sys.argv) > 3 else random.SystemRandom().randrange(1 << 32)
    main(sys.argv[1], sys.argv[2], chosen, Path(os.environ["FLEET_KEPT"]))
