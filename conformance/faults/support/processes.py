"""The descendants of this process. Machines outlive the process that started them; a subreaper still finds them."""

import contextlib
import ctypes
import json
import os
import signal
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


def become_subreaper():
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def below(pid):
    """All living descendants of a process, by ID."""
    found = set()
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                if is_alive(child):
                    found.add(child)
                found |= below(child)
    except OSError:
        pass
    return found


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] not in "ZX"
    except OSError:
        return False


def end_all_below(pid):
    """Ends all descendants of a process."""
    while left := below(pid):
        for child in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


def of_machines(home):
    """The processes in the records of a home's machines."""
    return set().union(*(of_machine(directory) for directory in Path(home).glob("sandboxes/*")))


def of_machine(directory):
    """The processes in a machine's record; none if it cannot be read."""
    try:
        machine = json.loads((directory / "machine.json").read_text())
    except (OSError, ValueError):
        return set()
    return {machine["qemu"]["pid"], machine["keeper"]["pid"]}


def kill_machine(directory):
    """Kills a machine's processes. When one of them is gone, another may end by itself before it is killed."""
    for pid in of_machine(directory):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def qemu_of(directory):
    return json.loads((directory / "machine.json").read_text())["qemu"]["pid"]


def until(what, condition, seconds=60.0, every=0.1):
    """Waits until `condition` returns a true value, and returns it."""
    deadline = time.monotonic() + seconds
    while True:
        if found := condition():
            return found
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(every)
