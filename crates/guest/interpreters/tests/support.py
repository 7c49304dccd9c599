"""Starts the real interpreters as the guest agent does, and waits for their messages, always with a deadline."""

import atexit
import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

# The drivers run from a copy, because cargo rebuilds everything that contains them when Python puts compiled files beside
# them.
FOLDER = tempfile.mkdtemp(prefix="sandling-drivers-")
atexit.register(shutil.rmtree, FOLDER)
shutil.copytree(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), FOLDER, dirs_exist_ok=True)
# The interpreter of a virtual environment does not find its library when it is started by another path.
PYTHON = os.environ.get("SANDLING_TEST_PYTHON", getattr(sys, "_base_executable", sys.executable))
NODE = shutil.which("node")
DEADLINE_S = 60
ENVIRONMENT = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": os.environ.get("HOME", "/")}
PR_SET_CHILD_SUBREAPER = 36
SYS_TGKILL = 234

# Variables that the agent would not pass on.
for inherited in map(int, os.listdir("/proc/self/fd")):
    if inherited > 2 and os.path.exists(f"/proc/self/fd/{inherited}"):
        os.set_inheritable(inherited, False)
# A shell starts background jobs with interrupts ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Makes the test the reaper of orphans, and so the parent of spares.
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Ended(Exception):
    """The process closed its control socket."""


class Process:
    """An interpreter, its control socket and its three streams."""

    def __init__(self, argv=None, environment=None, has_permit=False):
        self.control, theirs = socket.socketpair()
        stdin, self.stdin = os.pipe()
        self.out, stdout = os.pipe()
        self.err, stderr = os.pipe()
        self.theirs = [stdin, stdout, stderr, theirs.detach()]
        self.stdout = self.stderr = b""
        self.partial = b""
        self.messages = []
        self.status = None
        self.permit = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) if has_permit else None
        if argv:
            given = self.theirs + ([self.permit] if has_permit else [])
            # By way of high numbers, so that no descriptor is replaced before it is passed on.
            high = [(os.POSIX_SPAWN_DUP2, fd, 200 + target) for target, fd in enumerate(given)]
            low = [(os.POSIX_SPAWN_DUP2, 200 + target, target) for target in range(len(given))]
            closed = [(os.POSIX_SPAWN_CLOSE, 200 + target) for target in range(len(given))]
            actions = high + low + closed
            self.pid = os.posix_spawn(argv[0], argv, environment or ENVIRONMENT, file_actions=actions)
            self.close_theirs()

    def close_theirs(self):
        for fd in self.theirs:
            os.close(fd)

    def send(self, message):
        self.control.sendall(json.dumps(message).encode() + b"\n")

    def receive(self):
        """The next message; also reads output that arrives meanwhile."""
        end = time.monotonic() + DEADLINE_S
        while not self.messages:
            fds = [self.control.fileno(), self.out, self.err]
            ready, _, _ = select.select(fds, [], [], max(0, end - time.monotonic()))
            if not ready:
                raise TimeoutError(f"no message; stdout {self.stdout!r}, stderr {self.stderr!r}")
            if self.control.fileno() in ready:
                data = self.control.recv(1 << 20)
                if not data:
                    raise Ended(self.stderr.decode(errors="replace"))
                *lines, self.partial = (self.partial + data).split(b"\n")
                self.messages += map(json.loads, lines)
            self.drain()
        self.drain()
        return self.messages.pop(0)

    def drain(self):
        """Reads what is in the pipes now."""
        for name, fd in (("stdout", self.out), ("stderr", self.err)):
            while select.select([fd], [], [], 0)[0]:
                data = os.read(fd, 1 << 20)
                if not data:
                    break
                setattr(self, name, getattr(self, name) + data)

    def activate(self, become, **fields):
        message = {"become": become, "env": ENVIRONMENT, "cwd": "/", "uid": os.getuid(), "gid": os.getgid()}
        self.send({**message, "groups": [], "entropy": os.urandom(32).hex(), **fields})
        # A script that reports its end does not report its activation.
        return {"activated": True} if fields.get("report_end") else self.receive()

    def run_script(self, code, args=(), stdin=b"", **fields):
        """Runs to the end and returns the exit status, negative for a signal."""
        os.write(self.stdin, stdin)
        self.close_stdin()
        answer = self.activate("script", code=code, args=list(args), **fields)
        assert answer == {"activated": True}, answer
        return self.wait()

    def close_stdin(self):
        if self.stdin is not None:
            os.close(self.stdin)
            self.stdin = None

    def interrupt(self, number=1):
        """Interrupts a cell as the agent does, once. Returns whether the interpreter was signalled."""
        self.send({"interrupt": number})
        signalled = self.permit is None or self.take_permit()
        if signalled:
            ctypes.CDLL(None).syscall(SYS_TGKILL, self.pid, self.pid, signal.SIGINT)
        return signalled

    def take_permit(self):
        try:
            return os.eventfd_read(self.permit) > 0
        except BlockingIOError:
            return False

    def interrupt_until_done(self, number=1):
        while not self.messages:
            self.interrupt(number)
            if select.select([self.control.fileno()], [], [], 0.001)[0]:
                break
        return self.end_cell()

    def begin_cell(self, code, number=1, **more):
        self.stdout = self.stderr = b""
        self.send({"cell": number, "code": code, **more})

    def end_cell(self):
        results = []
        while True:
            message = self.receive()
            if "done" in message:
                return Cell(message, results, self.stdout, self.stderr)
            results.append(message["result"])

    def cell(self, code, number=1, **more):
        self.begin_cell(code, number, **more)
        return self.end_cell()

    def wait(self):
        end = time.monotonic() + DEADLINE_S
        while self.status is None:
            self.drain()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            elif time.monotonic() > end:
                raise TimeoutError(f"process {self.pid} did not end; stderr {self.stderr!r}")
            else:
                select.select([self.out, self.err], [], [], 0.005)
        self.drain()
        return self.status

    def close(self):
        """Closes the socket, like an agent that no longer needs the process."""
        self.control.close()
        self.close_stdin()
        if self.status is None:
            try:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass
        os.close(self.out)
        os.close(self.err)


class Cell:
    def __init__(self, done, results, stdout, stderr):
        self.number, self.status, self.error = done["done"], done["status"], done["error"]
        self.results = results
        self.stdout, self.stderr = stdout.decode(errors="replace"), stderr.decode(errors="replace")

    @property
    def text(self):
        """The last result as text, or None."""
        return self.results[-1]["text/plain"] if self.results else None


class Zygote(Process):
    def __init__(self, imports=(), environment=None):
        super().__init__([PYTHON, os.path.join(FOLDER, "python.py"), "zygote"], environment)
        self.send({"imports": list(imports)})
        self.ready = self.receive()

    def fork(self, rehearse=ENVIRONMENT):
        spare = Process()
        line = json.dumps({"fork": True, "rehearse": rehearse}) + "\n"
        socket.send_fds(self.control, [line.encode()], spare.theirs)
        spare.pid = self.receive()["pid"]
        spare.close_theirs()
        return spare


class InterpreterTest(unittest.TestCase):
    """Closes everything that it opens."""

    def python(self, become):
        return self.opened(Process([PYTHON, os.path.join(FOLDER, "python.py"), become]))

    def python_context(self, **fields):
        process = self.python("context")
        self.assertEqual(process.activate("context", **fields), {"activated": True})
        return process

    def node(self, folder=FOLDER, mode="spare"):
        if NODE is None:
            self.skipTest("NOT TESTED: there is no node on this machine")
        process = self.opened(Process([NODE, os.path.join(folder, "node.js"), mode], has_permit=True))
        process.ready = process.receive()
        self.assertEqual(process.ready["pid"], process.pid)
        return process

    def node_context(self, folder=FOLDER, **fields):
        process = self.node(folder)
        self.assertEqual(process.activate("context", **fields), {"activated": True})
        return process

    def zygote(self, imports=(), environment=None):
        return self.opened(Zygote(imports, environment))

    def opened(self, process):
        self.addCleanup(process.close)
        return process

    def temporary_folder(self):
        folder = tempfile.mkdtemp(prefix="sandling-test-")
        os.chmod(folder, 0o777)
        self.addCleanup(shutil.rmtree, folder)
        return folder

    def wait_until(self, condition):
        end = time.monotonic() + DEADLINE_S
        while not condition():
            self.assertLess(time.monotonic(), end, "waited too long")
            time.sleep(0.002)


def reference(command, code, stdin=b""):
    """The output and exit status of the code in a plain interpreter."""
    done = subprocess.run(
        [*command, code], input=stdin, capture_output=True, env=ENVIRONMENT, cwd="/", timeout=DEADLINE_S
    )
    return done.returncode, done.stdout, done.stderr
