"""Stops the next child that a process forks, before the child's first instruction.

    python3 stop_next_child.py PID

It prints "ready" once it watches all threads of the process, and the child's ID once the child is stopped. The child
stays stopped until somebody continues it. A poll of /proc would miss a child that lives for some milliseconds.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

PTRACE_CONT = 7
PTRACE_GETEVENTMSG = 0x4201
PTRACE_SEIZE = 0x4206
PTRACE_O_TRACEFORK = 2
PTRACE_O_TRACECLONE = 8
PTRACE_EVENT_FORK = 1
WAIT_FOR_THREADS_TOO = 0x40000000

LIBC = ctypes.CDLL(None, use_errno=True)


def ptrace(request, pid, address=None, data=None):
    if LIBC.ptrace(ctypes.c_long(request), pid, ctypes.c_void_p(address), data) == -1:
        raise OSError(ctypes.get_errno(), "ptrace")


def watch(pid):
    for task in Path(f"/proc/{pid}/task").iterdir():
        ptrace(PTRACE_SEIZE, int(task.name), data=ctypes.c_void_p(PTRACE_O_TRACEFORK | PTRACE_O_TRACECLONE))


def stop_next_child():
    while True:
        thread, status = os.waitpid(-1, WAIT_FOR_THREADS_TOO)
        if not os.WIFSTOPPED(status):
            continue
        event = status >> 16
        if event == PTRACE_EVENT_FORK:
            child = ctypes.c_ulong()
            ptrace(PTRACE_GETEVENTMSG, thread, data=ctypes.byref(child))
            os.kill(child.value, signal.SIGSTOP)
            return child.value
        delivered = 0 if event else os.WSTOPSIG(status)
        ptrace(PTRACE_CONT, thread, data=ctypes.c_void_p(delivered))


watch(int(sys.argv[1]))
print("ready", flush=True)
# When this program ends, the kernel lets go of all threads, and of the child with its pending stop.
print(stop_next_child(), flush=True)
