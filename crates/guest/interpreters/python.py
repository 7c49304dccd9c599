"""Python interpreters of a sandbox: a warm zygote, the spares it forks, and what a spare becomes.

    python3 python.py zygote     imports once, then forks a spare for every request
    python3 python.py script     one script, without a zygote
    python3 python.py context    one context, without a zygote
    python3 python.py script N   the same, told what to be by the file open as descriptor N

The peer (the guest agent) speaks JSON lines on file descriptor 3; README.md is the contract. Whatever runs here
after activation is the user's: it finds a `__main__` of its own, standard streams of its own, and no trace of
this file in its tracebacks.
"""

import _signal
import atexit
import fcntl
import gc
import io
import json
import os
import signal
import socket
import sys
import time
from itertools import takewhile

import python_packages
from python_reseed import reseed
from python_traceback import DRIVER_FOLDER, report, show_source

CONTROL_FD = 3
# Above what user code gets for its own files and what careless code closes.
PRIVATE_FD = 100
SCRIPT_NAME = "<main>"
REHEARSED = "import random\nprint(end='')\nx = [str(random.random()) for _ in range(3)]"

# Straight to the scanner: what `json.loads` does around it costs more than a short line.
scan = json.JSONDecoder().scan_once
encode = json.JSONEncoder(ensure_ascii=False).encode

# What `replace_environment` was last given.
replaced_environment = None
# How much was registered for an interpreter's end before any of it was the user's.
registered_by_zygote = None


class Control:
    """The socket to the agent: one JSON object per line, both ways."""

    def __init__(self, fd, *messages):
        self.socket = socket.socket(fileno=fd)
        self.fds = []
        self._messages = list(messages)
        self._partial = bytearray()

    def receive(self):
        """The next message, or None when the agent has gone."""
        while not self._messages:
            if not self.fill(0):
                return None
        return self._messages.pop(0)

    def fill(self, flags):
        """Reads once. File descriptors that came along are kept in `fds`, in order."""
        data, ancillary, _, _ = self.socket.recvmsg(65536, 256, flags | socket.MSG_CMSG_CLOEXEC)
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self.fds += memoryview(payload).cast("i").tolist()
        self._partial += data
        if b"\n" in data:
            *lines, self._partial = self._partial.split(b"\n")
            self._messages += [scan(line.decode(), 0)[0] for line in lines]
        return data

    def take(self, word):
        """Takes the messages that have `word` out of turn; the others keep waiting."""
        taken = [message for message in self._messages if word in message]
        self._messages = [message for message in self._messages if word not in message]
        return taken

    def send(self, *messages):
        # A lone surrogate is no valid JSON for the peer, however it is written down.
        text = "".join([encode(message) + "\n" for message in messages])
        self.socket.sendall(text.encode("utf-8", "replace"))

    def send_end(self, status):
        """What `send` would make of it, without the cost."""
        self.socket.sendall(b'{"ended":%d}\n' % status)

    def move(self, fd):
        """Goes on, if it does not already, under a private descriptor that programs started from here do not get."""
        if self.socket.fileno() >= fd:
            return
        private = fcntl.fcntl(self.socket.fileno(), fcntl.F_DUPFD_CLOEXEC, fd)
        self.socket.close()
        self.socket = socket.socket(fileno=private)


def zygote():
    """Imports once; then every `fork` makes a spare that has it all."""
    import python_context  # noqa: F401  So that spares have it.
    from python_warm import warm

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = Control(CONTROL_FD)
    control.move(PRIVATE_FD)
    request = control.receive()
    if request is None:
        return
    failed_imports = warm(request["imports"])
    python_packages.note()
    control.send({"ready": True, "failed_imports": failed_imports, **python_packages.noted()})
    gc.collect()
    gc.freeze()
    pool = os.urandom(32)
    while True:
        request = control.receive()
        if request is None:
            return
        if "reseed" in request:
            pool = mix_pool(pool, bytes.fromhex(request["reseed"]))
            reseed(pool)
        elif "fork" in request:
            pool = mix_pool(pool, b"spare")
            fds, control.fds[:4] = control.fds[:4], []
            fork_spare(control, fds, pool, request.get("rehearse"))


def mix_pool(pool, entropy):
    import hashlib

    return hashlib.blake2b(entropy, key=pool, digest_size=32).digest()


def fork_spare(control, fds, pool, rehearsing):
    """Forks twice, so that the spare is PID 1's child, and answers when it is."""
    try:
        if len(fds) != 4:
            raise ValueError(f"{len(fds)} descriptors came instead of 4")
        answer = {"pid": fork_orphan(control, fds, pool, rehearsing)}
    except (OSError, ValueError) as problem:
        answer = {"failed": f"could not fork: {problem}"}
    for fd in fds:
        os.close(fd)
    control.send(answer)


def fork_orphan(control, fds, pool, rehearsing):
    read_end, write_end = os.pipe()
    with open(read_end, "rb") as answer, open(write_end, "wb", 0) as answering:
        between = fork()
        if between == 0:
            try:
                spare = fork()
                if spare == 0:
                    be_spare(control, fds, pool, rehearsing)
                answering.write(b"%d" % spare)
            finally:
                os._exit(0)
        answering.close()
        os.waitpid(between, 0)
        # Nothing was said if the second fork failed.
        return int(answer.read())


def fork():
    import warnings

    with warnings.catch_warnings():
        # Libraries may have started threads; those that do have their own ways to survive a fork.
        warnings.simplefilter("ignore")
        return os.fork()


def be_spare(control, fds, pool, rehearsing):
    for target, fd in enumerate(fds):
        os.dup2(fd, target)
    os.closerange(CONTROL_FD + 1, max(control.socket.detach(), *fds) + 1)
    os.setsid()  # Here and not at activation, because it is slow.
    reseed(pool)
    own_control = Control(CONTROL_FD)
    own_control.move(PRIVATE_FD)
    if rehearsing is not None:
        rehearse(rehearsing)
    become(own_control)


def rehearse(environment):
    """Does once what activation and small code do, so that the memory they write to is the spare's own by then. Takes
    on the environment that it will most likely be given."""
    import python_context

    here, there = socket.socketpair()
    there.sendall(json.dumps({"become": "script", "code": REHEARSED, "args": [], "env": environment}).encode() + b"\n")
    control = Control(here.detach())
    message = control.receive()
    open_standard_streams()
    take_identity(message)
    last_import = next(reversed(sys.modules))
    run_script(message["code"], fresh_main().__dict__)
    there.sendall(json.dumps({"cell": 0, "code": "x = 1\nx + 1"}).encode() + b"\n")
    there.shutdown(socket.SHUT_WR)
    stdin = os.dup(0)
    python_context.Context(control, fresh_main(), reseed, open_standard_streams).serve()
    os.dup2(stdin, 0)
    os.close(stdin)
    signal.signal(signal.SIGURG, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    flush()
    take_down(last_import)
    control.send_end(0)
    for end in (control.socket, there):
        end.close()
    gc.collect()
    gc.freeze()


def become(control):
    """Waits to be told what to be, and is it until the process ends."""
    open_standard_streams()
    nothing_waits_for_the_end()
    while True:
        message = control.receive()
        if message is None:
            os._exit(0)
        if "become" in message:
            break
        reseed(bytes.fromhex(message["reseed"]))
    if message["become"] == "context":
        import python_context  # Before the user's environment decides what an import finds.
    if message.get("entropy"):
        reseed(bytes.fromhex(message["entropy"]))
    try:
        take_identity(message)
    except OSError as problem:
        control.send({"failed": str(problem)})
        os._exit(1)
    if message.get("packages_changed", True) and python_packages.loaded_are_replaced(os.environ.get("HOME")):
        start_over(control, message)
    last_import = next(reversed(sys.modules))
    main = fresh_main()
    if message["become"] == "context":
        control.move(PRIVATE_FD)
        context = python_context.Context(control, main, reseed, open_standard_streams)
        context.watch_displays()
        context.serve()
        end(0, last_import)
    # Not `signal.getsignal`, which makes an enumeration of it at some cost.
    if _signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    report_end = None
    if message.get("report_end"):
        report_end = end_reporter(control)
    else:
        control.send({"activated": True})
        control.socket.close()
    sys.argv = ["-c", *message["args"]]
    status = run_script(message["code"], main.__dict__)
    del main
    end(status, last_import, report_end)


def start_over(control, message):
    """Goes on as a new interpreter, which loads what is installed now and is told the same."""
    os.dup2(control.socket.fileno(), CONTROL_FD)
    told = os.memfd_create("activation", 0)
    os.write(told, json.dumps({**message, "env": dict(os.environ)}).encode())
    os.lseek(told, 0, os.SEEK_SET)
    command = [sys.executable, os.path.join(DRIVER_FOLDER, "python.py"), message["become"], str(told)]
    environment = {name: os.environ[name] for name in ("HOME", "LANG", "PATH") if name in os.environ}
    os.execve(sys.executable, command, {"LANG": "C.UTF-8", **environment})


def end_reporter(control):
    """Keeps the control socket, for the script's process alone, to say how it ends."""
    control.move(PRIVATE_FD)
    os.register_at_fork(after_in_child=control.socket.close)
    process = os.getpid()

    def report_end(status):
        if os.getpid() == process and control.socket.fileno() >= 0:
            try:
                control.send_end(status)
            except OSError:  # The agent has gone, or the script closed what it did not open.
                pass

    return report_end


def open_standard_streams(buffering=-1):
    """New objects over descriptors 0 to 2, made as the interpreter itself makes them at a terminal."""
    sys.stdin = sys.__stdin__ = open_stream(0, "r", sys.__stdin__)
    sys.stdout = sys.__stdout__ = open_stream(1, "w", sys.__stdout__, buffering)
    sys.stderr = sys.__stderr__ = open_stream(2, "w", sys.__stderr__, buffering)


def open_stream(fd, mode, before, buffering=-1):
    try:
        binary = open(fd, mode + "b", buffering, closefd=False)
    except OSError:
        return None
    errors = "backslashreplace" if fd == 2 else getattr(before, "errors", "strict")
    raw = getattr(binary, "raw", binary)
    raw.name = ("<stdin>", "<stdout>", "<stderr>")[fd]
    newline = "\n" if mode == "w" else None
    # By lines also where nobody types: what was printed is seen while the script runs, and after a deadline.
    stream = io.TextIOWrapper(binary, "utf-8", errors, newline, mode == "w", buffering == 0)
    stream.mode = mode
    return stream


def take_identity(message):
    """The user, the folder and the environment of whoever asked."""
    if os.getpgrp() != os.getpid():
        os.setsid()
    uid = message.get("uid")
    if uid is not None and uid != os.geteuid():
        os.setgroups(message.get("groups") or [])
        os.setgid(message["gid"])
        os.setuid(uid)
    if message.get("cwd") is not None:
        os.chdir(message["cwd"])
    if message["env"] is not None:
        replace_environment(message["env"])
    elif "more_env" in message:
        os.environ.update(message["more_env"])
    fresh_authkey()


def fresh_authkey():
    """What processes of multiprocessing know each other by."""
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None:
        processes.current_process().authkey = os.urandom(32)


def replace_environment(environment):
    """Makes `environment` the whole of `os.environ`, and does what the interpreter does with it at its start."""
    global replaced_environment
    if environment == replaced_environment:
        return
    replaced_environment = environment
    python_path = os.environ.get("PYTHONPATH", "")
    time_zone = os.environ.get("TZ")
    for name in set(os.environ) - set(environment):
        del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
    if environment.get("TZ") != time_zone:
        time.tzset()
    folders = [folder for folder in sys.path if folder != DRIVER_FOLDER and folder not in python_path.split(":")]
    sys.path[:] = ["", *filter(None, environment.get("PYTHONPATH", "").split(":")), *filter(None, folders)]
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    if environment.get("PYTHONUNBUFFERED"):
        open_standard_streams(buffering=0)


def fresh_main():
    """A `__main__` as `python3 -c` has it."""
    main = type(sys)("__main__")
    main.__dict__.update(__builtins__=sys.modules["builtins"], __annotations__={})
    sys.modules["__main__"] = main
    return main


def run_script(source, namespace):
    """Runs the code as a script and answers its exit status; a negative one is a signal's number."""
    try:
        show_source(SCRIPT_NAME, source)
        exec(compile(source, SCRIPT_NAME, "exec", 0, True), namespace)
    except SystemExit as request:
        if request.code is None or isinstance(request.code, int):
            return (request.code or 0) & 0xFF
        print(request.code, file=sys.stderr)
        return 1
    except BaseException as problem:
        report(problem)
        return -signal.SIGINT if isinstance(problem, KeyboardInterrupt) else 1
    return 0


def end(status, last_import, report_end=None):
    """Ends as the interpreter would, except that what the zygote had loaded is not taken down piece by piece."""
    if not nothing_waits_for_the_end():
        threading = sys.modules.get("threading")
        for last_step in (threading and threading._shutdown, atexit._run_exitfuncs):
            try:
                last_step and last_step()
            except BaseException as problem:
                report(problem)
    flushed = flush()
    take_down(last_import)
    if not flush() or not flushed:
        status = status or 120
    if report_end is not None:
        # All that is left is for the kernel to take the memory down, which is not worth waiting for.
        report_end(status)
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def take_down(last_import):
    """Lets go of what was loaded since `last_import`, and of `__main__`."""
    sys.last_type = sys.last_value = sys.last_traceback = None
    # From the newest back, because to look at each of the zygote's would be to write to each one's page.
    for name in [*takewhile(lambda name: name != last_import, reversed(sys.modules)), "__main__"]:
        sys.modules.pop(name, None)
    # Closes the user's files and runs their `__del__`. What has not been through a collection of the middle
    # generation is in the young ones, and a whole collection costs more.
    gc.collect(2 if gc.get_count()[2] else 1)


def nothing_waits_for_the_end():
    """Whether the steps at an interpreter's end would do nothing: no thread but this one, no child of multiprocessing,
    and no function or log handler registered since the zygote loaded its modules."""
    global registered_by_zygote
    finalizers = sys.modules["weakref"].finalize._registry if "weakref" in sys.modules else ()
    handlers = sys.modules["logging"]._handlerList if "logging" in sys.modules else ()
    registered = (atexit._ncallbacks(), len(finalizers), len(handlers))
    if registered_by_zygote is None:  # The first call, before anything of the user's runs.
        registered_by_zygote = registered
    threading = sys.modules.get("threading")
    processes = sys.modules.get("multiprocessing.process")
    return (
        registered == registered_by_zygote
        and (threading is None or len(threading._active) == 1)
        and (processes is None or not processes._children)
    )


def flush():
    """Whether all that was printed has been written."""
    written = True
    for stream in {sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__}:
        try:
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
        except Exception as problem:
            written = False
            print(f"Exception ignored while flushing sys.stdout: {problem!r}", file=sys.__stderr__)
    return written


if __name__ == "__main__":
    if sys.argv[1:] == ["zygote"]:
        zygote()
    elif sys.argv[1:] in (["script"], ["context"]):
        become(Control(CONTROL_FD))
    elif sys.argv[1:2] in (["script"], ["context"]):
        with open(int(sys.argv[2]), "rb") as told:
            message = json.load(told)
        become(Control(CONTROL_FD, message))
    else:
        sys.exit(__doc__)
