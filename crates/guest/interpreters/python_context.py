"""A context: cells that run one after another in one `__main__`. Values and errors are returned as data.

User code can break its own process, but the agent then sees only a failed cell. The control socket has a private
descriptor and is closed in forked children, an interrupt is never raised within these files, and output travels only
by descriptors 1 and 2.
"""

import __future__

import _ast
import builtins
import fcntl
import os
import signal
import socket
import sys
from contextlib import contextmanager

import python_ipython
import python_results
from python_notebook import dedent, to_python
from python_shell import ZMQInteractiveShell
from python_traceback import describe, is_driver, report, show_source

ONLY_AST = 0x400
ALLOW_TOP_LEVEL_AWAIT = 0x2000
CO_COROUTINE = 0x80
# The most pictures of one cell that are shown because they were saved to a file.
SAVED_PICTURES = 20
FUTURES = sum({getattr(__future__, name).compiler_flag for name in __future__.all_feature_names})


class Context:
    def __init__(self, control, main, reseed, open_standard_streams):
        self.control = control
        self.namespace = main.__dict__
        self.reseed = reseed
        self.open_standard_streams = open_standard_streams
        self.pid = os.getpid()
        self.compiler_flags = ALLOW_TOP_LEVEL_AWAIT
        self.loop = None
        self.number = 0
        self.name = "<cell>"
        self.saved_pictures = 0
        self.kept_displays = None
        self.beginning = False
        self.running = False
        self.interrupt_waits = False
        self.reading = False
        self.more_to_read = False
        self.own_sigint = self.on_interrupt
        self.user_sigint = None
        self.socket_flags = fcntl.fcntl(control.socket.fileno(), fcntl.F_GETFL)

    def serve(self):
        """Runs cells until the agent closes the socket."""
        self.prepare_process()
        self.control.send({"activated": True})
        while True:
            message = self.control.receive()
            if message is None:
                return
            if "reseed" in message:
                self.reseed(bytes.fromhex(message["reseed"]))
            elif "cell" in message:
                self.run(message["cell"], message["code"], message.get("env"))

    def watch_displays(self):
        shell = ZMQInteractiveShell(self)
        builtins.display = self.display
        builtins.get_ipython = python_ipython.get_ipython
        python_ipython.install(shell, self.display)
        python_results.watch_pyplot(self.show)
        python_results.watch_pillow(self.show_picture)

    def prepare_process(self):
        # A context has no input: a read must find the end at once, whatever descriptor 0 was.
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        self.open_standard_streams()
        sys.argv = [""]
        os.register_at_fork(after_in_child=self.control.socket.close)
        signal.signal(signal.SIGINT, self.own_sigint)
        # While a cell runs, the kernel sends this signal when a message arrives. The signal's default is to be ignored,
        # so it does not harm child processes, and it does not interrupt system calls of other libraries.
        signal.signal(signal.SIGURG, self.on_message)
        signal.siginterrupt(signal.SIGURG, False)
        fcntl.fcntl(self.control.socket.fileno(), fcntl.F_SETOWN, self.pid)
        fcntl.fcntl(self.control.socket.fileno(), fcntl.F_SETSIG, signal.SIGURG)

    def run(self, number, source, environment=None):
        """Runs one cell and sends its `done`. The variables of `environment` are set only while it runs."""
        answers, problem = [], None
        before = {name: os.environ.get(name) for name in environment or ()}
        os.environ.update(environment or {})
        self.number, self.name, self.saved_pictures = number, f"<cell {number}>", 0
        self.begin()
        try:
            value = self.evaluate(self.name, source)
            self.leave_if_forked(None)
            if value is not None and not python_results.shows_itself(value):
                answers.append({"result": python_results.bundle(value), "value": True})
        except BaseException as caught:
            problem = caught
        self.leave_if_forked(problem)
        try:
            answers += [{"result": figure} for figure in python_results.take_figures()]
        except BaseException as caught:
            problem = problem or caught
        self.running = False
        self.finish()
        restore_environment(before)
        error = problem and describe(problem)
        status = "interrupted" if isinstance(problem, KeyboardInterrupt) else "error" if problem else "ok"
        self.control.send(*answers, {"done": number, "status": status, "error": error})

    def begin(self):
        if self.user_sigint is not None:
            signal.signal(signal.SIGINT, self.user_sigint)
        self.interrupt_waits = False
        self.beginning = True
        self.running = True
        fcntl.fcntl(self.control.socket.fileno(), fcntl.F_SETFL, self.socket_flags | os.O_ASYNC)
        # A message that came between the cell's end and the line above raised no signal.
        self.on_message()
        self.beginning = False

    def finish(self):
        fcntl.fcntl(self.control.socket.fileno(), fcntl.F_SETFL, self.socket_flags)
        # Between cells there is nothing to interrupt, and a handler of the user's might raise.
        handler = signal.getsignal(signal.SIGINT)
        self.user_sigint = None
        if handler is not self.own_sigint:
            signal.signal(signal.SIGINT, self.own_sigint)
            if handler is not signal.default_int_handler:
                self.user_sigint = handler
        flush(sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
        if getattr(sys.stdout, "closed", True) or getattr(sys.stderr, "closed", True):
            self.open_standard_streams()

    def evaluate(self, name, source):
        """Runs the code and returns the value of its last expression, unless a `;` follows it."""
        show_source(name, dedent(source))
        flags = self.compiler_flags | ONLY_AST
        source, tree = to_python(source, lambda code: compile(code, name, "exec", flags, True))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], _ast.Expr) else None
        steps = []
        if tree.body:
            steps.append(compile(tree, name, "exec", self.compiler_flags, True))
            self.compiler_flags |= steps[0].co_flags & FUTURES
        if last is not None:
            steps.append(compile(_ast.Expression(last.value), name, "eval", self.compiler_flags, True))
        self.raise_waiting_interrupt()
        value = None
        if any(step.co_flags & CO_COROUTINE for step in steps):
            value = self.run_in_loop(steps)
        else:
            for step in steps:
                value = eval(step, self.namespace)
        return None if ";" in source and last is not None and is_silenced(source, last) else value

    def run_in_loop(self, steps):
        """Runs a cell that awaits, in the context's event loop."""
        import asyncio

        async def run():
            for step in steps:
                value = eval(step, self.namespace)
                if step.co_flags & CO_COROUTINE:
                    value = await value
            return value

        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        task = self.loop.create_task(run())
        try:
            return self.loop.run_until_complete(task)
        except BaseException:
            if not task.done():
                task.cancel()
                self.loop.run_until_complete(asyncio.wait([task]))
            raise

    def display(self, *values, raw=False, **_ignored):
        """Shows values as rich results; with `raw`, dictionaries from MIME type to content."""
        if os.getpid() == self.pid:
            for value in values:
                if raw or not python_results.shows_itself(value):
                    self.send_results(python_results.fit(value) if raw else python_results.bundle(value))
        self.raise_waiting_interrupt()

    def send_results(self, *bundles):
        if self.kept_displays is None:
            self.control.send(*[{"result": bundle} for bundle in bundles])
        else:
            self.kept_displays += bundles

    @contextmanager
    def displays_kept(self):
        """Collects what is displayed meanwhile, instead of sending it."""
        before, self.kept_displays = self.kept_displays, []
        try:
            yield self.kept_displays
            self.kept_displays += python_results.take_figures()
        finally:
            self.kept_displays = before

    def show_picture(self, image, always):
        """Shows a picture of Pillow's. Of the pictures that the cell saved, only the first ones."""
        self.saved_pictures += not always
        if always or self.saved_pictures <= SAVED_PICTURES:
            self.display(python_results.as_picture(image), raw=True)

    def show(self):
        """Replaces `matplotlib.pyplot.show`."""
        if os.getpid() == self.pid:
            self.send_results(*python_results.take_figures())
        self.raise_waiting_interrupt()

    def on_interrupt(self, _signal, frame):
        if not self.running:
            return
        self.interrupt_waits = True
        if not self.reading and not is_driver(frame):
            self.raise_waiting_interrupt()

    def raise_waiting_interrupt(self):
        if self.interrupt_waits:
            self.interrupt_waits = False
            raise KeyboardInterrupt

    def on_message(self, _signal=None, frame=None):
        """Reseeds at once; other messages stay queued."""
        self.more_to_read = True
        if not self.running or self.reading:
            return
        self.reading = True
        while self.more_to_read:
            self.more_to_read = False
            try:
                self.control.fill(socket.MSG_DONTWAIT)
            except BlockingIOError:
                pass
            for message in self.control.take("reseed"):
                self.reseed(bytes.fromhex(message["reseed"]))
            for message in self.control.take("interrupt"):
                # Later, the signal that follows the line interrupts the cell.
                if self.beginning and message["interrupt"] == self.number:
                    self.interrupt_waits = True
        self.reading = False
        if frame is not None and not is_driver(frame):
            self.raise_waiting_interrupt()

    def leave_if_forked(self, problem):
        """Ends a child process that the cell forked and that reached the cell's end: only the parent answers."""
        if os.getpid() == self.pid:
            return
        status = 0
        if isinstance(problem, SystemExit) and (problem.code is None or isinstance(problem.code, int)):
            status = (problem.code or 0) & 0xFF
        elif problem is not None:
            status = 1
            flush(sys.stdout)
            report(problem)
        flush(sys.stdout, sys.stderr)
        os._exit(status)


def restore_environment(before):
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def is_silenced(source, last):
    """Whether a `;` follows the last expression, or the brackets around it."""
    lines = source.encode().splitlines(True)[last.value.end_lineno - 1 :]
    rest = b"".join(lines)[last.value.end_col_offset :]
    return rest.lstrip(b" \t\r\n\f\\)").startswith(b";")


def flush(*streams):
    for stream in streams:
        try:
            stream.flush()
        except Exception:  # The stream is closed, was replaced by an object without `flush`, or has no reader.
            pass
