"""Damages a fleet of three at random while clients use it, and checks after each round that everything promised holds.

    python random_faults.py FAULTS [SEED]

No key of a create made two sandboxes, every acknowledged create answers through all nodes or they say why it ended, no
command ran twice, every deleted sandbox is gone, and no process, directory or namespace is orphaned. A seed repeats the
faults and the clients' choices. A seed that fails is printed and kept beside the virtual environments of the tests; so are
the logs of the nodes.
"""

import os
import random
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

from harness import faults
from harness.fleet import NAMES, Fleet
from harness.worker import Worker
from support import processes

WORKERS = 3
#: The clients work this long before the first fault of a round and after the last one.
AROUND = 1.0


def main(count, seed, kept):
    processes.become_subreaper()
    chance = random.Random(seed)
    rounds = faults.plan(chance, count, len(NAMES))
    workers = [Worker(chance.random()) for _ in range(WORKERS)]
    # A short path, because it contains Unix sockets.
    place = Path(tempfile.mkdtemp(prefix="fleet."))
    fleet = Fleet(place)
    begun = time.monotonic()
    try:
        fleet.start()
        for number, these in enumerate(rounds):
            print(f"{time.monotonic() - begun:5.0f} s: {', '.join(map(str, these))}", flush=True)
            work_during(fleet, workers, lambda ended, these=these: apply(fleet, these, ended))
            check(fleet, workers)
            if number % 10 == 9:
                # A fleet that only grows older would hide what a new one does.
                empty(fleet, workers)
        empty(fleet, workers)
        fleet.stop()
    except BaseException:
        keep(place, seed, kept)
        raise
    finally:
        fleet.remove()
        shutil.rmtree(place, ignore_errors=True)
    report(count, seed, workers, time.monotonic() - begun)


def work_during(fleet, workers, act):
    """Lets the clients work while something is done to the fleet. `act` gets an event that says that a client has failed."""
    ended, failures = threading.Event(), []

    def work(worker):
        try:
            worker.work(fleet.nodes, ended)
        except BaseException as error:
            failures.append(error)
            ended.set()

    threads = [threading.Thread(target=work, args=[worker]) for worker in workers]
    for thread in threads:
        thread.start()
    ended.wait(AROUND)
    try:
        act(ended)
        fleet.wait_until_healed()
        ended.wait(AROUND)
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


def apply(fleet, these, ended):
    """Begins the faults together, and ends each after its time."""
    now = time.monotonic()
    for fault in these:
        fault.begin(fleet)
    for fault in sorted(these, key=lambda fault: fault.seconds):
        ended.wait(max(0.0, now + fault.seconds - time.monotonic()))
        fault.end(fleet)


def check(fleet, workers):
    for worker in workers:
        worker.settle(fleet.nodes)
        worker.check(fleet.nodes)
    known = {sandbox.id for worker in workers for sandbox in worker.alive}
    for node in fleet.nodes:
        strangers = node.client.living() - known
        assert len(strangers) <= sum(worker.interrupted for worker in workers), f"nobody asked for {strangers}"
    for stranger in strangers:
        fleet.nodes[0].client.delete(stranger)
    for worker in workers:
        worker.interrupted = 0
    processes.until("nothing belongs to nobody", lambda: not fleet.orphans() or None)


def empty(fleet, workers):
    """Deletes all sandboxes, each through another node."""
    for worker in workers:
        for number, sandbox in enumerate(list(worker.alive)):
            assert worker.delete(fleet.nodes[number % len(fleet.nodes)].client, sandbox), f"{sandbox.id} stays"
    for node in fleet.nodes:
        assert not node.client.living(), f"{node.name} lists {node.client.living()}"


def keep(place, seed, kept):
    kept.mkdir(parents=True, exist_ok=True)
    with (kept / "seeds").open("a") as seeds:
        seeds.write(f"{seed}\n")
    keep_logs(place, kept)
    print(f"seed {seed} failed; it and the logs are in {kept}", file=sys.stderr)


def keep_logs(place, kept):
    kept.mkdir(parents=True, exist_ok=True)
    for log in place.glob("*.log"):
        shutil.copy(log, kept)
        print(f"--- the end of {log.name}:\n{log.read_text(errors='replace')[-3000:]}", file=sys.stderr)


def report(count, seed, workers, seconds):
    done = {what: sum(worker.done[what] for worker in workers) for what in workers[0].done}
    ended = [event for worker in workers for event in worker.ended]
    print(f"{count} faults in {seconds:.0f} s (seed {seed}): {done}; {len(ended)} reported ended")
    for event in ended:
        print("  ", event)


if __name__ == "__main__":
    chosen = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1 << 32)
    main(int(sys.argv[1]), chosen, Path(os.environ["FLEET_KEPT"]))
