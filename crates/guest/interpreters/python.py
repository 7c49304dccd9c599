"""Python interpreters of a sandbox: a warm zygote, the spares it forks, and what a spare becomes.

    python3 python.py zygote     imports once, then forks a spare for every request
    python3 python.py script     one script, without a zygote
    python3 python.py context    one context, without a zygote
    python3 python.py script N   the same, with its activation in the file open as descriptor N

The guest agent speaks JSON lines on file descriptor 3; README.md is the contract. After activation, user code has its
own `__main__` and its own standard streams, and its tracebacks have no frames of this file.
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
# Higher than the descriptors that user code opens, and than those that careless code closes in a loop.
PRIVATE_FD = 100
SCRIPT_NAME = "<main>"
REHEARSED = "import random\nprint(end='')\nx = [str(random.random()) for _ in range(3)]"

# The scanner alone: for a short line, the checks of `json.loads` cost more than the parsing.
scan = json.JSONDecoder().scan_once
encode = json.JSONEncoder(ensure_ascii=False).encode

# The environment that `replace_environment` was last given.
replaced_environment = None
# How many exit functions and log handlers were registered before user code ran.
registered_by_zygote = None


class Control:
    """The socket to the agent: one JSON object per line, both ways."""

    def __init__(self, fd, *messages):
        self.socket = socket.socket(fileno=fd)
        self.fds = []
        self._messages = list(messages)
        self._partial = bytearray()

    def receive(self):
        """The next message, or None when the agent has closed the socket."""
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
        """Removes and returns the messages that have `word`, ahead of the others, which stay queued."""
        taken = [message for message in self._messages if word in message]
        self._messages = [message for message in self._messages if word not in message]
        return taken

    def send(self, *messages):
        # The agent's parser refuses a lone surrogate, escaped or not.
        text = "".join([encode(message) + "\n" for message in messages])
        self.socket.sendall(text.encode("utf-8", "replace"))

    def send_end(self, status):
        """The line that `send` would write, built faster."""
        self.socket.sendall(b'{"ended":%d}\n' % status)

    def move(self, fd):
        """Moves the socket to a high descriptor, if it is not there yet, which child processes do not inherit."""
        if self.socket.fileno() >= fd:
            return
        private = fcntl.fcntl(self.socket.fileno(), fcntl.F_DUPFD_CLOEXEC, fd)
        self.socket.close()
        self.socket = socket.socket(fileno=private)


def zygote():
    """Imports once; then every `fork` makes a spare that has the modules loaded."""
    import python_context  # noqa: F401  Loaded here, so that spares need not load it.
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
    """Forks twice, so that the spare becomes PID 1's child, and then answers."""
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
        # The pipe is empty if the second fork failed.
        return int(answer.read())


def fork():
    import warnings

    with warnings.catch_warnings():
        # Python warns that a library has started threads. Libraries that do so handle a fork themselves.
        warnings.simplefilter("ignore")
        return os.fork()


def be_spare(control, fds, pool, rehearsing):
    for target, fd in enumerate(fds):
        os.dup2(fd, target)
    os.closerange(CONTROL_FD + 1, max(control.socket.detach(), *fds) + 1)
    os.setsid()  # Not at activation, because it is slow.
    reseed(pool)
    own_control = Control(CONTROL_FD)
    own_control.move(PRIVATE_FD)
    if rehearsing is not None:
        rehearse(rehearsing)
    become(own_control)


def rehearse(environment):
    """Runs an activation and a small script once, so that the pages they write to are copied before a user waits. Sets
    the environment that the spare will most likely be given."""
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
    """Waits for its activation, then runs the script or the context until the process ends."""
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
        import python_context  # Before the user's environment changes where imports are found.
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
    # Not `signal.getsignal`, which converts the result to an enum, slowly.
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
    """Replaces this process by a new interpreter, which loads the packages installed now, with the same activation."""
    os.dup2(control.socket.fileno(), CONTROL_FD)
    told = os.memfd_create("activation", 0)
    os.write(told, json.dumps({**message, "env": dict(os.environ)}).encode())
    os.lseek(told, 0, os.SEEK_SET)
    command = [sys.executable, os.path.join(DRIVER_FOLDER, "python.py"), message["become"], str(told)]
    environment = {name: os.environ[name] for name in ("HOME", "LANG", "PATH") if name in os.environ}
    os.execve(sys.executable, command, {"LANG": "C.UTF-8", **environment})


def end_reporter(control):
    """Keeps the control socket open in the script's own process, to report how the script ends."""
    control.move(PRIVATE_FD)
    os.register_at_fork(after_in_child=control.socket.close)
    process = os.getpid()

    def report_end(status):
        if os.getpid() == process and control.socket.fileno() >= 0:
            try:
                control.send_end(status)
            except OSError:  # The agent closed the socket, or the script closed a descriptor that it did not open.
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
    # Line-buffered without a terminal, too, so that output is seen while the script runs and after a timeout.
    stream = io.TextIOWrapper(binary, "utf-8", errors, newline, mode == "w", buffering == 0)
    stream.mode = mode
    return stream


def take_identity(message):
    """Sets the user, the working directory and the environment that the activation names."""
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
    """Draws a new key by which processes of multiprocessing authenticate each other."""
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None:
        processes.current_process().authkey = os.urandom(32)


def replace_environment(environment):
    """Replaces `os.environ` by `environment`, and applies the variables that the interpreter reads at startup."""
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
    """Runs the code as a script and returns its exit status; a negative one is a signal's number."""
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
    """Runs the interpreter's exit steps, except that it does not free the zygote's modules one by one."""
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
        # Only the kernel's release of the memory is left, and nothing needs to wait for that.
        report_end(status)
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def take_down(last_import):
    """Unloads the modules that were imported since `last_import`, and `__main__`."""
    sys.last_type = sys.last_value = sys.last_traceback = None
    # From the newest back: touching a zygote's module would change its reference count and copy its page.
    for name in [*takewhile(lambda name: name != last_import, reversed(sys.modules)), "__main__"]:
        sys.modules.pop(name, None)
    # Closes the user's files and runs their `__del__`. Their objects are in the young generations, unless the middle
    # one was collected meanwhile; a full collection costs more.
    gc.collect(2 if gc.get_count()[2] else 1)


def nothing_waits_for_the_end():
    """Whether the interpreter's exit steps would do nothing: no other thread, no child of multiprocessing, and no
    function or log handler registered since the zygote loaded its modules."""
    global registered_by_zygote
    finalizers = sys.modules["weakref"].finalize._registry if "weakref" in sys.modules else ()
    handlers = sys.modules["logging"]._handlerList if "logging" in sys.modules else ()
    registered = (atexit._ncallbacks(), len(finalizers), len(handlers))
    if registered_by_zygote is None:  # The first call, before user code runs.
        registered_by_zygote = registered
    threading = sys.modules.get("threading")
    processes = sys.modules.get("multiprocessing.process")
    return (
        registered == registered_by_zygote
        and (threading is None or len(threading._active) == 1)
        and (processes is None or not processes._children)
    )


def flush():
    """Whether all output has been written."""
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
