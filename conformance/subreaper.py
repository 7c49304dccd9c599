"""Runs a command and fails if it leaves a process behind.

Every orphaned descendant becomes a child of this process, however it detached itself (`PR_SET_CHILD_SUBREAPER`).
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
#: How long processes may take to end.
GRACE_SECONDS = 10


def children():
    """The living children: process ID to command line. Reaps the dead ones."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                break
        except ChildProcessError:
            break
    found = {}
    for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        try:
            found[int(pid)] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except FileNotFoundError:
            continue
    return found


def main(command):
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        sys.exit(f"subreaper: prctl: {os.strerror(ctypes.get_errno())}")
    running = subprocess.Popen(command)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _frame: running.send_signal(number))
    status = running.wait()
    deadline = time.monotonic() + GRACE_SECONDS
    while (left := children()) and time.monotonic() < deadline:
        time.sleep(0.1)
    clean = not left
    # The children of killed processes become children of this process.
    while left:
        for pid, line in left.items():
            print(f"subreaper: process {pid} was left behind: {line}", file=sys.stderr)
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
        left = children()
    sys.exit(status if status > 0 else int(status != 0 or not clean))


if __name__ == "__main__":
    main(sys.argv[1:])
