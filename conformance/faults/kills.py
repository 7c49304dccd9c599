"""Kills the server in the middle of creates, commands and deletes, and looks every time whether all is as it was said.

    python kills.py KILLS [SEED]

Now and then, besides, it is asked to end; those are not counted as kills.
Afterwards every acknowledged sandbox is there and works or is reported ended, no command ran twice, every deleted
sandbox is gone, no process and no directory is left that belongs to nobody, and the audit log has every create.
"""

import os
import random
import shutil
import sys
import tempfile
import threading
from pathlib import Path

from support import processes
from support.server import Server
from support.worker import Worker

WORKERS = 4
#: The server is killed within this many seconds of its work.
KILLED_WITHIN = 3.0
#: How many times it is asked to end for each time that it is killed.
ASKED = 0.25


def main(kills, seed):
    processes.become_subreaper()
    chance = random.Random(seed)
    # A short path: there are Unix sockets below it.
    place = Path(tempfile.mkdtemp(prefix="faults."))
    server = Server(place / "home")
    workers = [Worker(chance.random()) for _ in range(WORKERS)]
    # Asked to end, it finishes what it has begun, and no more.
    ends = [server.kill] * kills + [server.stop] * round(kills * ASKED)
    chance.shuffle(ends)
    starts = []
    try:
        for end in [*ends, None]:
            client, took = server.start()
            starts.append(took)
            unlimit(client)
            check(server, client, workers)
            if end:
                work_until_ended(client, workers, chance.uniform(0, KILLED_WITHIN), end)
        finish(server, client, workers)
    except BaseException:
        print(f"seed {seed}; the end of the server's log:\n{server.said()[-5000:]}", file=sys.stderr)
        raise
    finally:
        end_all(server)
        shutil.rmtree(place, ignore_errors=True)
    report(kills, len(ends) - kills, seed, workers, starts)


def unlimit(client):
    """Many sandboxes a minute are the point here, not a mistake."""
    client.call("PUT", "/v1/workspaces/default/quota", {}).expect(200)


def work_until_ended(client, workers, seconds, end):
    failures = []

    def work(worker):
        try:
            worker.work(client)
        except AssertionError as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=[worker]) for worker in workers]
    for thread in threads:
        thread.start()
    threading.Event().wait(seconds)
    end()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def check(server, client, workers):
    for worker in workers:
        worker.settle(client)
        worker.check(client)
    known = {sandbox.id for worker in workers for sandbox in worker.alive}
    strangers = client.living() - known
    assert len(strangers) <= sum(worker.lost_creates for worker in workers), f"nobody asked for {strangers}"
    for stranger in strangers:
        client.delete(stranger)
    for worker in workers:
        worker.lost_creates = 0
    processes.until("nothing belongs to nobody", lambda: not orphans(server, known) or None)
    assert not orphans(server, known), orphans(server, known)


def orphans(server, known):
    """Directories that are neither a sandbox's nor a standby's, and processes that no directory knows."""
    engines = set(os.listdir(server.home / "engines"))
    found = []
    for name in server.directories() - known:
        owner = server.home / "sandboxes" / name / "engine"
        if not owner.exists() or owner.read_text().strip() not in engines:
            found.append(name)
    machines = processes.of_machines(server.home)
    expected = machines | {server.process.pid}
    for pid in machines:
        expected |= processes.below(pid)
    return found + [pid for pid in processes.below(os.getpid()) if pid not in expected and processes.is_alive(pid)]


def check_audit(client, workers):
    """Every create that was acknowledged is written down."""
    written, after = set(), 0
    while entries := client.call("GET", "/v1/audit", query={"after": after, "limit": 1000}).expect(200).json()["items"]:
        written |= {entry["object"] for entry in entries if entry["action"] == "sandbox.create" and entry["result"] == "ok"}
        after = entries[-1]["number"]
    missing = {sandbox for worker in workers for sandbox in worker.acknowledged} - written
    assert not missing, f"the audit log does not know that {missing} were made"


def finish(server, client, workers):
    """Everything is ended, and then nothing is left."""
    check_audit(client, workers)
    for worker in workers:
        for sandbox in list(worker.alive):
            worker.delete(client, sandbox)
    server.stop()
    assert not server.directories(), server.directories()
    processes.until("no process is left", lambda: not processes.below(os.getpid()) or None)


def end_all(server):
    """Leaves nothing behind, whatever happened. All processes below us are ours."""
    if server.process and server.process.poll() is None:
        server.kill()
    processes.end_all_below(os.getpid())


def report(kills, asked, seed, workers, starts):
    done = {verb: sum(worker.done[verb] for worker in workers) for verb in ("create", "exec", "delete")}
    ended = [event for worker in workers for event in worker.ended]
    print(f"{kills} kills and {asked} times asked to end (seed {seed}): {done}; slowest start {max(starts):.2f} s; {len(ended)} reported ended")
    for event in ended:
        print("  ", event)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1 << 32))
