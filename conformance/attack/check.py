"""Checks a report of `sandling doctor --attack --json`.

    check.py held REPORT             every entry held, except those for which this host gives a reason
    check.py broken REPORT ENTRY…    each of these entries did not hold
"""

import json
import os
import resource
import sys
from pathlib import Path


def reasons():
    """The entries that may not hold, or cannot be tried, on this host, and whether that is so."""
    vulnerabilities = Path("/sys/devices/system/cpu/vulnerabilities")
    states = [state.read_text().lower() for state in vulnerabilities.glob("*")]
    smt = Path("/sys/devices/system/cpu/smt/active")
    cpu = Path("/proc/cpuinfo").read_text()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    may_not_hold = {
        "host.mitigations": any("vulnerable" in state for state in states),
        "host.smt": smt.exists() and smt.read_text().strip() == "1",
        # The report itself says which version or controller is missing; this host is what it is.
        "host.landlock": True,
        "host.layers": True,
        "host.microcode": "hypervisor" not in cpu,
    }
    may_be_untried = {
        "host.mitigations": not vulnerabilities.exists(),
        "host.smt": not smt.exists(),
        "host.microcode": "hypervisor" in cpu or not (vulnerabilities / "old_microcode").exists(),
        "jail.landlock": "landlock" not in read("/sys/kernel/security/lsm"),
        "machine.users": os.geteuid() != 0,
        "guest.registers": True,
        "neighbors.connections": files != resource.RLIM_INFINITY and files < 2900,
        "files.your-home": not own_home().exists(),
    }
    # The home of the user who runs this test is not under test.
    may_not_hold["files.your-home"] = True
    return may_not_hold, may_be_untried


def own_home():
    data = os.environ.get("XDG_DATA_HOME") or os.path.join(os.environ["HOME"], ".local/share")
    return Path(os.environ.get("SANDLING_HOME") or os.path.join(data, "sandling"))


def read(path):
    try:
        return Path(path).read_text()
    except OSError:
        # Without this file, the report decides.
        return ""


def held(entries):
    may_not_hold, may_be_untried = reasons()
    for entry in entries:
        name, verdict = entry["id"], entry["verdict"]
        if not entry["attempts"] and verdict == "held":
            yield f"{name} held without an attempt"
        if verdict == "did_not_hold" and not may_not_hold.get(name):
            yield f"{name} did not hold: {entry['summary']}"
        if verdict == "not_tried" and not may_be_untried.get(name):
            yield f"{name} was not tried: {entry['summary']}"


def broken(entries, expected):
    verdicts = {entry["id"]: entry for entry in entries}
    for name in expected:
        entry = verdicts.get(name)
        if entry is None:
            yield f"there is no entry {name}"
        elif entry["verdict"] != "did_not_hold":
            yield f"{name}: {entry['verdict']}: {entry['summary']}"


def main(mode, report, *expected):
    entries = json.loads(Path(report).read_text())["entries"]
    wrong = list(held(entries) if mode == "held" else broken(entries, expected))
    for line in wrong:
        print(f"attack: {line}", file=sys.stderr)
    for entry in entries:
        print(f"attack: {entry['verdict']:12} {entry['seconds']:6.1f} s  {entry['id']}: {entry['summary']}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
