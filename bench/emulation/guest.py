"""Inside a machine: does a piece of work whenever its name comes on stdin, and answers what the guest counted.

A request that is no name is a command for the shell, in the project of the agent's day.
"""

import json
import mmap
import os
import pathlib
import re
import subprocess
import sys
import time

PROJECT = pathlib.Path("/run/project/day")
TEXT = " ".join(f"word{n} {n * n} name{n}@example.org" for n in range(1500))
RECORDS = [{"id": n, "name": f"name {n}", "tags": ["a", "b", str(n)], "value": n / 3} for n in range(1200)]


def loop():
    total = 0
    for n in range(300_000):
        total += n * n % 7
    return total


def calls():
    def fibonacci(n):
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    return fibonacci(20)


def text():
    json.loads(json.dumps(RECORDS))
    return len(re.findall(r"(\w+)@(\w+)\.org", TEXT))


def page_faults():
    """Touches memory that nobody has used: 4,096 pages, twice."""
    for _ in range(2):
        with mmap.mmap(-1, 16 << 20) as memory:
            for page in range(0, 16 << 20, 4096):
                memory[page] = 1


def syscalls():
    for _ in range(30_000):
        os.getppid()


def shell(line):
    done = subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=PROJECT if PROJECT.exists() else "/run",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode != 0:
        raise OSError(f"Error: `{line}` ended with {done.returncode}")


WORK = {
    "python loop": loop,
    "python calls": calls,
    "json, regex": text,
    "page faults": page_faults,
    "syscalls": syscalls,
    "fork, exec": lambda: shell("for n in 1 2 3 4 5 6 7 8 9 10; do /bin/true; done"),
    "python3 start": lambda: shell("python3 -c 'import json, re'"),
    "git": lambda: shell("echo change >>notes.txt; git add -A; git commit -qm change; git status --short"),
    "files": lambda: shell("cp -r tree copied; grep -rn needle copied | wc -l; rm -rf copied"),
    "gcc": lambda: shell("cd c; gcc -O2 -o hello hello.c"),
    "pip": lambda: shell("pip --version"),
    "node": lambda: shell("node -e 'console.log(1)'"),
}


def counters():
    """Page faults, processes and context switches so far, and the guest's own CPU time in milliseconds."""
    stat = dict(line.split(" ", 1) for line in pathlib.Path("/proc/stat").read_text().splitlines())
    memory = dict(line.split() for line in pathlib.Path("/proc/vmstat").read_text().splitlines())
    user, nice, system, _, _, interrupts, soft = map(int, stat["cpu"].split()[:7])
    tick_ms = 1000 / os.sysconf("SC_CLK_TCK")
    return {
        "user_ms": (user + nice) * tick_ms,
        "system_ms": (system + interrupts + soft) * tick_ms,
        "faults": int(memory["pgfault"]),
        "processes": int(stat["processes"]),
        "switches": int(stat["ctxt"]),
    }


def do(request):
    before, begun = counters(), time.monotonic()
    WORK.get(request, lambda: shell(request))()
    took = {"ms": (time.monotonic() - begun) * 1e3}
    after = counters()
    return took | {name: after[name] - before[name] for name in before}


def main():
    PROJECT.parent.mkdir()
    subprocess.run(["/bin/sh", "/run/setup.sh"], cwd=PROJECT.parent, check=True, stdout=subprocess.DEVNULL)
    print("ready", *WORK, sep="|", flush=True)
    for line in sys.stdin:
        try:
            print(json.dumps(do(line.strip())), flush=True)
        except OSError as error:
            print(error, file=sys.stderr)
            print("failed", flush=True)


if __name__ == "__main__":
    main()
