"""What `get_ipython()` returns in a context: the parts of IPython's shell that notebooks and libraries use."""

import re
import sys

import python_results
from python_magics import cell_magic, line_magic

# `{expression}`, `$name` and `$$` in a shell command.
VARIABLE = re.compile(r"\{([^{}]+)\}|\$(\$|[A-Za-z_]\w*)")


class ZMQInteractiveShell:
    """The name is IPython's: libraries look for it to find out whether they run in a notebook."""

    def __init__(self, context):
        self._context = context
        self.user_ns = self.user_global_ns = context.namespace
        # Without `IPKernelApp`, because there are no widgets.
        self.config = {}
        self.colors = "NoColor"
        self.magics = {"line": {}, "cell": {}}
        self.events = Events()
        self.display_formatter = DisplayFormatter()
        self.display_pub = DisplayPublisher(context)

    @property
    def execution_count(self):
        return self._context.number

    def system(self, command):
        """Runs a shell command and sets `_exit_code`."""
        import subprocess

        sys.stdout.flush()
        done = subprocess.run(self.var_expand(command, sys._getframe(1)), shell=True)
        self.user_ns["_exit_code"] = done.returncode

    system_raw = system_piped = system

    def getoutput(self, command, split=True):
        """The output of a shell command, as a list of its lines."""
        import subprocess

        command = self.var_expand(command, sys._getframe(1))
        done = subprocess.run(command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.user_ns["_exit_code"] = done.returncode
        return Lines(done.stdout.splitlines()) if split else done.stdout

    def var_expand(self, command, frame=None):
        """The command with the values of the Python expressions in it. Others, such as `$HOME`, are the shell's."""
        frame = frame or sys._getframe(1)
        local = frame.f_locals if frame.f_globals is self.user_ns else self.user_ns

        def value_of(found):
            expression = found[1] or found[2]
            if expression == "$":
                return "$"
            try:
                return str(eval(expression, self.user_ns, local))
            except Exception:
                return found[0]

        return VARIABLE.sub(value_of, command)

    def run_line_magic(self, magic_name, line="", _stack_depth=1):
        return line_magic(self, magic_name)(line)

    def run_cell_magic(self, magic_name, line, cell):
        return cell_magic(self, magic_name)(line, cell)

    def magic(self, text):
        name, _, line = text.lstrip("%").partition(" ")
        return self.run_line_magic(name, line)

    def register_magic_function(self, func, magic_kind="line", magic_name=None):
        kinds = ("line", "cell") if magic_kind == "line_cell" else (magic_kind,)
        for kind in kinds:
            self.magics[kind][magic_name or func.__name__] = func

    def register_magics(self, *magics):
        """Instances or classes whose methods were marked by IPython's decorators."""
        for found in magics:
            found = found(self) if isinstance(found, type) else found
            for kind, table in getattr(found, "magics", {}).items():
                for name, method in table.items():
                    method = getattr(found, method) if isinstance(method, str) else method
                    self.magics.setdefault(kind, {})[name] = method

    def run_code(self, source):
        """Runs a part of the cell and returns the value of its last expression."""
        return self._context.evaluate(f"{self._context.name}*", source)

    def run_cell(self, raw_cell, *_arguments, **_options):
        self.run_code(raw_cell)

    def ex(self, code):
        exec(code, self.user_ns)

    def ev(self, expression):
        return eval(expression, self.user_ns)

    def push(self, variables, interactive=True):
        self.user_ns.update(variables)

    def displays_kept(self):
        return self._context.displays_kept()

    def showtraceback(self, *_arguments, **_options):
        import traceback

        traceback.print_exc()

    def _nothing_to_do(self, *_arguments, **_options):
        """Belongs to a user interface, which there is none of."""

    enable_gui = enable_matplotlib = enable_pylab = set_next_input = set_custom_exc = _nothing_to_do


class Lines(list):
    """Lines of output, with IPython's short names for them as one text."""

    @property
    def n(self):
        return "\n".join(self)

    @property
    def s(self):
        return " ".join(self)

    @property
    def l(self):  # noqa: E743
        return self

    nlstr, spstr, list = n, s, l


class Events:
    """Takes callbacks and calls none: a context draws its figures by itself."""

    def register(self, event, function):
        pass

    unregister = register

    def trigger(self, event, *_arguments):
        pass


class DisplayPublisher:
    def __init__(self, context):
        self._context = context

    def publish(self, data, metadata=None, **_options):
        self._context.display(data, raw=True)

    def clear_output(self, wait=False):
        pass


class DisplayFormatter:
    def __init__(self):
        self.formatters = {mime: Formatter(mime) for mime in ("text/plain", *python_results.METHODS.values())}

    def format(self, value, include=None, exclude=None):
        return python_results.bundle(value), {}


class Formatter:
    """Registers functions that show values of a type, as sympy does."""

    def __init__(self, mime):
        self.type_printers = python_results.printers.setdefault(mime, {})
        self.enabled = True

    def for_type(self, kind, function=None):
        before = self.type_printers.get(kind)
        if function is not None:
            self.type_printers[kind] = function
        return before

    def for_type_by_name(self, module, name, function=None):
        loaded = sys.modules.get(module)
        return self.for_type(getattr(loaded, name), function) if hasattr(loaded, name) else None

    def pop(self, kind, default=None):
        return self.type_printers.pop(kind, default)
