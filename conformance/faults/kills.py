"""Kills the server during creates, commands and deletes, and checks after each kill that everything acknowledged holds.

    python kills.py KILLS [SEED]

Sometimes it stops the server instead; those do not count as kills. Afterwards every acknowledged sandbox works or is
reported as ended, no command ran twice, every deleted sandbox is gone, no process or directory is orphaned, and the
audit log has every create.
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
#: The server is killed within this many seconds.
KILLED_WITHIN = 3.0
#: How often it is stopped for each kill.
ASKED = 0.25


def main(kills, seed):
    processes.become_subreaper()
    chance = random.Random(seed)
    # A short path, because it contains Unix sockets.
    place = Path(tempfile.mkdtemp(prefix="faults."))
    server = Server(place / "home")
    workers = [Worker(chance.random()) for _ in range(WORKERS)]
    # A server that stops finishes running requests and takes no new ones.
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
    """Removes the rate limit, because this test creates many sandboxes per minute."""
    client.call("PUT", "/v1/workspaces/default/quota", {"creates_per_minute": None}).expect(200)


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
    # Only once: the processes of a standby that starts right after this have no directory yet.
    processes.until("nothing belongs to nobody", lambda: not orphans(server, known) or None)


def orphans(server, known):
    """Directories without a sandbox or standby, and processes without a directory."""
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
    """Checks that the audit log has every acknowledged create."""
    written, after = set(), 0
    while entries := client.call("GET", "/v1/audit", query={"after": after, "limit": 1000}).expect(200).json()["items"]:
        written |= {entry["object"] for entry in entries if entry["action"] == "sandbox.create" and entry["result"] == "ok"}
        after = entries[-1]["number"]
    missing = {sandbox for worker in workers for sandbox in worker.acknowledged} - written
    assert not missing, f"the audit log does not know that {missing} were made"


def finish(server, client, workers):
    """Ends everything and checks that nothing is left."""
    check_audit(client, workers)
    for worker in workers:
        for sandbox in list(worker.alive):
            worker.delete(client, sandbox)
    server.stop()
    assert not server.directories(), server.directories()
    processes.until("no process is left", lambda: not processes.below(os.getpid()) or None)


def end_all(server):
    """Ends all descendants of this process, also after a failure."""
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
