"""Measures `Sandbox.create()` to the value of `1+1`, from a standby, with E2B's public package and with Sandling's SDK, which
needs three, two or one request for it. Beside them, bubblewrap runs `python3 -c` on the host.

    conformance/e2b/run.sh SANDLING python     # installs E2B's package
    target/conformance/e2b/python/bin/python bench/e2b.py --sandling SANDLING --templates DIRECTORY [--rounds N] [--pause SECONDS]

Starts its own server. All of them take turns within one run, so that a busy moment affects all, and the time of the
clients is included. A round counts if its machine was a standby, which the server reports afterwards. Other rounds are
listed separately. Prints a table and writes all figures to bench/out/e2b.json.
"""

import argparse
import importlib.metadata
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = "code-interpreter"
#: How many attempts a round has.
TRIES = 4
#: As in `bench/src/contenders.rs`.
BUBBLEWRAP = ["bwrap", "--ro-bind", "/", "/", "--unshare-all", "/usr/bin/python3", "-c", "print(1+1)"]


class Server:
    """A server with its own home; the clients find it through the environment."""

    def __init__(self, sandling, templates):
        self.home = tempfile.TemporaryDirectory(prefix="bench")
        self.token = secrets.token_hex(20)
        environment = {**os.environ, "SANDLING_HOME": self.home.name, "SANDLING_TOKEN": self.token}
        environment["SANDLING_TEMPLATES"] = str(templates)
        command = [sandling, "serve", "--listen", "127.0.0.1:0", "--standbys", "1"]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if "listens on " in line:
                self.url = line.split("listens on ")[1].strip()
                break
        else:
            sys.exit("the server ended before it said where it listens")
        key = "e2b_" + self.token.encode().hex()
        os.environ.update(E2B_API_KEY=key, E2B_API_URL=self.url, E2B_SANDBOX_URL=self.url)
        os.environ.update(SANDLING_API=self.url, SANDLING_TOKEN=self.token, NO_PROXY="127.0.0.1")

    def look(self, sandbox):
        headers = {"Authorization": f"Bearer {self.token}"}
        request = urllib.request.Request(f"{self.url}/v1/sandboxes/{sandbox}", headers=headers)
        return json.load(urllib.request.urlopen(request))

    def close(self):
        self.process.terminate()
        self.process.wait(60)
        self.home.cleanup()


def theirs():
    from e2b_code_interpreter import Sandbox

    sandbox = Sandbox.create()
    return sandbox, sandbox.sandbox_id, sandbox.run_code("1+1").text


def with_context():
    from sandling import Sandbox

    sandbox = Sandbox.create(template=TEMPLATE)
    return sandbox, sandbox.id, sandbox.create_code_context().run_code("1+1").text


def with_run_code():
    from sandling import Sandbox

    sandbox = Sandbox.create(template=TEMPLATE)
    return sandbox, sandbox.id, sandbox.run_code("1+1").text


def in_one_request():
    from sandling import Sandbox

    sandbox = Sandbox.create(template=TEMPLATE, run="1+1")
    return sandbox, sandbox.id, sandbox.first_run().text


def bubblewrap():
    """The time in milliseconds of the same in a sandbox of the host, without a virtual machine."""
    begun = time.perf_counter()
    printed = subprocess.run(BUBBLEWRAP, stdout=subprocess.PIPE, check=True).stdout
    took = (time.perf_counter() - begun) * 1e3
    assert printed == b"2\n", printed
    return took


def measure(server, run):
    """The time in milliseconds, and whether the machine was a standby."""
    begun = time.perf_counter()
    sandbox, id_, text = run()
    took = (time.perf_counter() - begun) * 1e3
    assert text == "2", text
    is_standby = server.look(id_)["boot_mode"] == "standby"
    sandbox.kill()
    return took, is_standby


def one_more(server, run, times, pause):
    """Runs one more round of a client, after the next standby is ready."""
    time.sleep(pause)
    took, is_standby = measure(server, run)
    times["standby" if is_standby else "restored"].append(took)


def summary(taken):
    if not taken:
        return None
    p95 = statistics.quantiles(taken, n=20, method="inclusive")[-1] if len(taken) > 1 else taken[0]
    return {"rounds": len(taken), "p50_ms": statistics.median(taken), "p95_ms": p95, "all_ms": taken}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sandling", default=str(ROOT / "target/release/sandling"))
    parser.add_argument("--templates", required=True)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--pause", type=float, default=3, help="seconds before each, in which a standby is made")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/out/e2b.json")
    options = parser.parse_args()
    # Replaces this directory, where the name of this file would hide the package.
    sys.path[0] = str(ROOT / "sdk/python/src")
    runs = {
        "E2B's package": theirs,
        "Sandling's, 3 requests": with_context,
        "Sandling's, 2 requests": with_run_code,
        "Sandling's, 1 request": in_one_request,
    }
    times = {name: {"standby": [], "restored": []} for name in runs}
    peer = []
    server = Server(options.sandling, options.templates)
    try:
        for run in runs.values():
            measure(server, run)  # The first round of each client also opens connections and loads code.
        for _ in range(TRIES * options.rounds):
            for name, run in runs.items():
                if len(times[name]["standby"]) < options.rounds:
                    one_more(server, run, times[name], options.pause)
            if len(peer) < options.rounds:
                peer.append(bubblewrap())
    finally:
        server.close()
    found = {name: {how: summary(taken) for how, taken in both.items()} for name, both in times.items()}
    host = {"host": summary(peer)}
    print(f"{'create and run 1+1':24} {'from':10} rounds  p50 ms  p95 ms")
    for name, ways in {**found, "bubblewrap": host}.items():
        for how, figures in ways.items():
            if figures:
                print(f"{name:24} {how:10} {figures['rounds']:6} {figures['p50_ms']:7.1f} {figures['p95_ms']:7.1f}")
    versions = {package: importlib.metadata.version(package) for package in ("e2b", "e2b-code-interpreter")}
    report = {"versions": versions, "runs": {**found, "bubblewrap": host}}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=2) + "\n")
    if not all(both["standby"] for both in found.values()):
        sys.exit("a client never got a standby: the host is too busy to make them")


if __name__ == "__main__":
    main()
