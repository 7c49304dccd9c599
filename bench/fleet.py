"""Measures a fleet of three servers on this machine: creates, waking on another node, a drain, and where the cost is.

    bench/fleet.py --sandling SANDLING --templates DIRECTORY [--rounds N] [--only PART]

The nodes share this machine's processors and disk, so the figures are upper bounds of times and lower bounds of rates.
Compared figures are measured in turns, so that a busy moment affects both. DIRECTORY has the template `base`. Needs the
package etcd-server and cargo, for the simulator. Writes bench/out/fleet.json and bench/out/fleet-nodes.svg.
"""

import argparse
import contextlib
import http.client
import json
import math
import os
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT / "conformance/fleet")
import serve

OUT = ROOT / "bench/out"
BASE = {"template": "base"}
DRAINED = 20
CLIENTS = 6
WOKEN_MIB = (40, 100)


class Client:
    """One connection to a node, which stays open."""

    def __init__(self, node):
        self.node = node
        self.connection = http.client.HTTPConnection(node.host, node.port, timeout=300)

    def ask(self, method, path, body=None, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        headers |= {"authorization": f"Bearer {os.environ['SANDLING_TOKEN']}", "content-type": "application/json"}
        self.connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            sys.exit(f"{method} {path} on {self.node.name}: {answer.status} {text.decode()}")
        return json.loads(text) if text else None

    def create(self, body=BASE, **headers):
        return self.ask("POST", "/v1/sandboxes", body, **headers)["id"]

    def delete(self, sandbox):
        self.ask("DELETE", f"/v1/sandboxes/{sandbox}")

    def run(self, sandbox, code):
        answer = self.ask("POST", f"/v1/sandboxes/{sandbox}/run-code", {"code": code})
        if answer.get("error"):
            sys.exit(f"{code!r} failed: {answer}")
        return answer


def timed(work):
    begun = time.perf_counter()
    result = work()
    return (time.perf_counter() - begun) * 1000, result


def spread(times):
    times = sorted(times)
    last = times[min(len(times) - 1, math.ceil(len(times) * 0.95) - 1)]
    return {"p50_ms": round(statistics.median(times), 2), "p95_ms": round(last, 2), "count": len(times)}


def place_on(nodes, wanted):
    """From now on, only these nodes get new sandboxes."""
    for node in nodes:
        nodes[0].cli("fleet", *(["undrain"] if node in wanted else ["drain", "--keep-sandboxes"]), node.name)
    drains = [node not in wanted for node in nodes]
    serve.until("the drains", lambda: [node["draining"] for node in status(nodes[0])] == drains)


def status(node):
    return json.loads(node.cli("fleet", "status", "--json"))


def in_turns(rounds, ways):
    """How long each way takes, measured in turns. What a way makes is deleted."""
    figures = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, (client, headers) in ways.items():
            key = {"idempotency_key": secrets.token_hex(8)} if headers else {}
            took, sandbox = timed(lambda client=client, key=key: client.create(**key))
            client.delete(sandbox)
            # The first one opens connections.
            if number > 0:
                figures[name].append(took)
    return {name: spread(times) for name, times in figures.items()}


def creates(nodes, rounds, alone):
    """The node that has room, another one, and a server that is in no fleet."""
    place_on(nodes, [nodes[0]])
    local, remote = Client(nodes[0]), Client(nodes[1])
    ways = {"no fleet": (Client(alone), False), "local": (local, False), "through another node": (remote, False)}
    ways |= {"local, with a key": (local, True), "through another node, with a key": (remote, True)}
    figures = in_turns(rounds, ways)
    sandbox = local.create()
    for name, client in {"local": local, "through another node": remote}.items():
        looks = [timed(lambda client=client: client.ask("GET", f"/v1/sandboxes/{sandbox}"))[0] for _ in range(rounds * 5)]
        figures[f"a look, {name}"] = spread(looks)
    local.delete(sandbox)
    place_on(nodes, nodes)
    p50 = {name: figure["p50_ms"] for name, figure in figures.items()}
    return figures | {
        "ratio of another node to local": round(p50["through another node"] / p50["local"], 3),
        "cost in ms": {
            "machine": p50["no fleet"],
            "placement": round(p50["local"] - p50["no fleet"], 2),
            "node to node": round(p50["through another node"] - p50["local"], 2),
            "etcd": round(p50["local, with a key"] - p50["local"], 2),
        },
    }


def rate(nodes, rounds):
    """Creates and deletions by clients of all nodes."""
    done = []

    def work(client, count):
        for _ in range(count):
            took, sandbox = timed(lambda: client.create(idempotency_key=secrets.token_hex(8)))
            done.append(took)
            client.delete(sandbox)

    clients = [Client(nodes[number % len(nodes)]) for number in range(CLIENTS)]
    threads = [threading.Thread(target=work, args=(client, rounds)) for client in clients]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begun
    return {"clients": CLIENTS, "creates_per_second": round(len(done) / seconds, 2), **spread(done)}


def wake(nodes, rounds, mib):
    """A sandbox's snapshot on one node, and a sandbox from it on another, until that has answered."""
    source, target = Client(nodes[0]), Client(nodes[1])
    times, fetched = [], []
    for _ in range(rounds):
        place_on(nodes, [nodes[0]])
        sandbox = source.create()
        source.run(sandbox, f"import os; kept = os.urandom({mib} << 20); print(len(kept))")
        snapshot = source.ask("POST", f"/v1/sandboxes/{sandbox}/snapshots", {"durable": True})
        source.delete(sandbox)
        place_on(nodes, [nodes[1]])
        took, woken = timed(lambda: first_answer(target, snapshot["id"]))
        times.append(took)
        fetched.append(snapshot["size_bytes"] >> 20 if "size_bytes" in snapshot else None)
        target.delete(woken)
        target.ask("DELETE", f"/v1/snapshots/{snapshot['id']}")
    place_on(nodes, nodes)
    return spread(times) | {"snapshot_mib": fetched}


def first_answer(client, snapshot):
    sandbox = client.create({"from_snapshot": snapshot})
    client.run(sandbox, "print(len(kept))")
    return sandbox


def drain(nodes):
    place_on(nodes, [nodes[0]])
    client = Client(nodes[0])
    made = [client.create() for _ in range(DRAINED)]
    place_on(nodes, nodes)
    took, _ = timed(lambda: subprocess.run([os.environ["SANDLING"], "fleet", "drain", nodes[0].name], check=True,
                                           env=nodes[0].environment, stdout=subprocess.DEVNULL))
    nodes[0].cli("fleet", "undrain", nodes[0].name)
    for sandbox in made:
        client.delete(sandbox)
    return {"sandboxes": DRAINED, "seconds": round(took / 1000, 2)}


def simulated(arguments):
    """What a create costs by the number of nodes."""
    costs = OUT / "fleet-nodes.json"
    environment = {**os.environ, "SANDLING_SIMULATOR_COSTS": str(costs)}
    test = "a_create_costs_as_much_in_a_large_fleet"
    command = ["cargo", "test", "--release", "--package", "sandling-fleet", "--test", "simulator", test]
    subprocess.run(arguments.simulator or command, check=True, env=environment, cwd=ROOT)
    points = json.loads(costs.read_text())
    (OUT / "fleet-nodes.svg").write_text(chart(points))
    return points


LINES = {
    "requests": ("requests to other nodes", "#2a7f62"),
    "transactions": ("transactions of the ledger", "#c98a2b"),
    "reads": ("reads of the ledger", "#6b7fc9"),
}
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 360, 60, 30, 70, 55


def chart(points):
    """Lines over the logarithm of the number of nodes, in the style of the charts of growth."""
    most = max(1, math.ceil(max(point[name] for point in points for name in LINES)))
    first, last = (math.log(points[at]["nodes"]) for at in (0, -1))

    def place(nodes, value):
        x = LEFT + (WIDTH - LEFT - RIGHT) * (math.log(nodes) - first) / (last - first)
        # What idle nodes ask for is subtracted, so a figure may be a little less than nothing.
        return x, HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * max(0, value) / most

    text = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        '<text x="15" y="24" font-size="15">What a create asks for in a simulated fleet</text>',
    ]
    for value in range(most + 1):
        (x, y), end = place(points[0]["nodes"], value), WIDTH - RIGHT
        text.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{end}" y2="{y:.1f}" stroke="#ddd"/>')
        text.append(f'<text x="{x - 6:.1f}" y="{y + 4:.1f}" text-anchor="end" fill="#666">{value}</text>')
    for point in points:
        x, y = place(point["nodes"], 0)
        text.append(f'<text x="{x:.1f}" y="{y + 18:.1f}" text-anchor="middle" fill="#666">{point["nodes"]}</text>')
    text.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 15}" text-anchor="middle">nodes</text>')
    for index, (name, (title, colour)) in enumerate(LINES.items()):
        places = [place(point["nodes"], point[name]) for point in points]
        dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in places]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        text += [*dots, f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>']
        x = LEFT + 190 * index
        text.append(f'<circle cx="{x}" cy="46" r="4" fill="{colour}"/><text x="{x + 10}" y="50">{title}</text>')
    return "\n".join([*text, "</svg>\n"])


class Alone:
    """A server that is in no fleet."""

    def __init__(self, place):
        self.name, self.host, self.port = "alone", "127.0.0.1", serve.free_port(["127.0.0.1"])
        environment = {**os.environ, "SANDLING_HOME": str(place)}
        command = [os.environ["SANDLING"], "serve", "--listen", f"{self.host}:{self.port}", "--standbys", "0"]
        self.log = place.with_suffix(".log")
        self.process = subprocess.Popen(command, env=environment, stdout=self.log.open("w"), stderr=subprocess.STDOUT)
        serve.until("the server listens", lambda: "listens on" in self.log.read_text())

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def measure(arguments, work):
    rounds = arguments.rounds
    os.environ |= {
        "SANDLING": str(Path(arguments.sandling).resolve()),
        "SANDLING_HOME": str(work),
        "SANDLING_TEMPLATES": str(Path(arguments.templates).resolve()),
        "SANDLING_TOKEN": secrets.token_hex(20),
    }
    (work / "store").mkdir()
    nodes, _ = serve.start(3, ["--standbys", "0"], ["--store", str(work / "store")])
    alone = Alone(work / "alone")
    unlimited = dict.fromkeys(["sandboxes", "cpu", "memory_mb", "disk_mb", "creates_per_minute", "requests_per_second"])
    parts = {
        "creates": lambda: creates(nodes, rounds, alone),
        "rate": lambda: rate(nodes, rounds),
        "drain": lambda: drain(nodes),
    } | {f"wake {mib} MiB": lambda mib=mib: wake(nodes, max(3, rounds // 8), mib) for mib in WOKEN_MIB}
    try:
        for node in [*nodes, alone]:
            Client(node).ask("PUT", "/v1/workspaces/default/quota", unlimited)
        for name, part in parts.items():
            if arguments.only in (None, name):
                yield name, part()
    finally:
        with contextlib.suppress(OSError):
            alone.stop()
        serve.stop(nodes)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sandling", required=True)
    parser.add_argument("--templates", required=True)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--only", help="creates, rate, drain, `wake 40 MiB`, `wake 100 MiB` or nodes")
    parser.add_argument("--simulator", nargs="+", help="the command that runs the simulator's test")
    arguments = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    file = OUT / "fleet.json"
    figures = json.loads(file.read_text()) if arguments.only and file.exists() else {}
    work = Path(tempfile.mkdtemp(prefix="fleet."))
    try:
        if arguments.only in (None, "nodes"):
            figures["nodes"] = simulated(arguments)
        if arguments.only != "nodes":
            for name, figure in measure(arguments, work):
                print(f"{name}: {json.dumps(figure)}", flush=True)
                figures[name] = figure
    finally:
        shutil.rmtree(work, ignore_errors=True)
        file.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
