"""Runs cells of R and Java as the server sends them, in the guest's Python context. Needs R and a JDK on this machine."""

import base64
import json
import os
import shutil
import signal
import stat
import sys
import tempfile
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(FOLDER, *[os.pardir] * 5, "guest/interpreters/tests"))
from support import ENVIRONMENT, PYTHON, InterpreterTest, Process
from support import FOLDER as GUEST_DRIVERS

DRIVERS = {"r": "driver.R", "java": "Driver.java"}
PNG = b"\x89PNG\r\n\x1a\n"


def source(name):
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return file.read()


def as_python(language, code, environment):
    """The cell as `bridge.rs` builds it."""
    cell = {"language": language, "driver": source(DRIVERS[language]), "code": code, "environment": environment}
    bridge = source("bridge.py").replace("GRACE_S = 10", "GRACE_S = 2")
    return f"bridge = {json.dumps(bridge)}\ncell = {json.dumps(cell)}\n{source('cell.py')}"


def is_running(process):
    with open(f"/proc/{process}/stat") as state:
        return state.read().rpartition(")")[2].split()[0] != "Z"


class BridgeTest(InterpreterTest):
    language = program = None

    @classmethod
    def setUpClass(cls):
        """Starts one context for all tests of a language, because the languages start slowly."""
        if shutil.which(cls.program) is None:
            raise unittest.SkipTest(f"NOT TESTED: there is no {cls.program} on this machine")
        folder = tempfile.mkdtemp(prefix="sandling-test-")
        cls.addClassCleanup(shutil.rmtree, folder)
        cls.context = Process([PYTHON, os.path.join(GUEST_DRIVERS, "python.py"), "context"])
        cls.addClassCleanup(cls.context.close)
        environment = {**ENVIRONMENT, "TMPDIR": folder, "GIVEN": "to the sandbox"}
        assert cls.context.activate("context", cwd="/usr", env=environment) == {"activated": True}
        # As the agent ends a context.
        cls.addClassCleanup(os.killpg, cls.context.pid, signal.SIGKILL)

    def run_cell(self, code, **environment):
        return self.context.cell(as_python(self.language, code, environment))

    def run_ok(self, code, **environment):
        cell = self.run_cell(code, **environment)
        self.assertEqual((cell.status, cell.error), ("ok", None))
        return cell

    def error_of(self, code):
        cell = self.run_cell(code)
        self.assertEqual((cell.status, cell.stderr), ("error", ""))
        return cell.error

    def interrupted_after_output(self, code, output):
        """Interrupts a cell once it has printed the output."""
        self.context.begin_cell(as_python(self.language, code, {}))
        self.wait_until(lambda: self.context.drain() or self.context.stdout.decode() == output)
        os.kill(self.context.pid, signal.SIGINT)
        cell = self.context.end_cell()
        self.assertEqual((cell.status, cell.error["name"]), ("interrupted", "KeyboardInterrupt"))
        return cell


class RTest(BridgeTest):
    language, program = "r", "R"

    def test_visible_values_are_results_and_variables_last(self):
        self.assertEqual(self.run_ok("x <- 41; invisible(x)").results, [])
        self.assertEqual(self.run_ok("x + 1").results, [{"text/plain": "[1] 42"}])
        cell = self.run_ok("x\nprint('printed')\nlist(a = 'é')$a\ngetwd()")
        self.assertEqual([result["text/plain"] for result in cell.results], ["[1] 41", '[1] "é"', '[1] "/usr"'])
        self.assertEqual(cell.stdout, '[1] "printed"\n')
        self.assertEqual(self.run_ok("closeAllConnections()\nx").text, "[1] 41")
        many = [f"[1] {number}" for number in range(11)]
        cell = self.run_ok("\n".join(map(str, range(11))))
        self.assertEqual([result["text/plain"] for result in cell.results], many)

    def test_variables_of_a_run_are_gone_in_the_next(self):
        read = "cat(Sys.getenv(c('GIVEN', 'FOO', 'EMPTY'), unset = 'none'), sep = '|')"
        cell = self.run_ok(read, GIVEN="to the run", FOO="a=b\n+%é", EMPTY="")
        self.assertEqual(cell.stdout, "to the run|a=b\n+%é|")
        self.assertEqual(self.run_ok(read).stdout, "to the sandbox|none|none")

    def test_output_streams_and_an_interrupt_keeps_the_variables(self):
        self.run_ok("x <- 1")
        cell = self.interrupted_after_output("message('told'); cat('begun'); repeat {}", "begun")
        self.assertEqual(cell.stderr, "told\n")
        self.interrupted_after_output("cat('again'); Sys.sleep(1000)", "again")
        self.assertEqual(self.run_ok("x").text, "[1] 1")

    def test_code_that_ignores_interrupts_is_ended(self):
        code = "repeat tryCatch({ cat('begun'); repeat {} }, interrupt = function(ignored) NULL)"
        self.assertIn("R ended by SIGKILL", self.interrupted_after_output(code, "begun").error["value"])
        self.assertEqual(self.run_ok("1").text, "[1] 1")

    def test_an_error_has_the_calls_that_led_to_it(self):
        error = self.error_of("f <- function(a) stop('bad ', a)\ng <- function() f(1)\ng()")
        self.assertEqual((error["name"], error["value"]), ("ERROR", "bad 1"))
        self.assertEqual(error["text"], 'ERROR: bad 1\nTraceback:\n1. g()\n2. f(1)\n3. stop("bad ", a)\n')
        self.assertEqual(self.error_of("missing_name")["value"], "object 'missing_name' not found")
        self.assertIn("<text>:2:6: unexpected '='", self.error_of("x <- 1\nx <- = 2")["value"])

    def test_plots_are_pictures(self):
        cell = self.run_ok("plot(1:3)\nhist(c(1, 2, 2))\n'value'")
        pictures = [base64.b64decode(result["image/png"])[:8] for result in cell.results[:2]]
        self.assertEqual((pictures, cell.text), ([PNG, PNG], '[1] "value"'))
        self.assertEqual(self.run_ok("par(mfrow = c(1, 2))").results, [])
        self.assertEqual([list(result) for result in self.run_ok("plot(1)").results], [["image/png"]])

    def test_a_process_that_ended_starts_anew(self):
        self.run_ok("x <- 1")
        # The background process inherits the pipes.
        error = self.error_of("system('sleep 60 >/dev/null 2>&1 &')\nquit(status = 3)")
        self.assertEqual(error["name"], "UnexpectedEndOfExecution")
        self.assertIn("R ended with the exit code 3", error["value"])
        self.assertEqual(self.run_ok("exists('x')").text, "[1] FALSE")
        process = int(self.run_ok("cat(Sys.getpid())").stdout)
        os.kill(process, signal.SIGKILL)
        self.wait_until(lambda: not is_running(process))
        self.assertEqual(self.run_ok("1").text, "[1] 1")

    def test_files_of_the_bridge_are_private(self):
        folder = self.run_ok("cat(dirname(sub('--file=', '', grep('--file=', commandArgs(), value = TRUE))))").stdout
        self.assertEqual(stat.S_IMODE(os.stat(folder).st_mode), 0o700)
        self.assertEqual(os.listdir(folder), ["driver.R"])


class JavaTest(BridgeTest):
    language, program = "java", "jshell"

    def test_the_last_expression_is_the_value_and_variables_last(self):
        self.assertEqual(self.run_ok("int x = 41;\n// Not a value.").results, [])
        self.assertEqual(self.run_ok("x = x + 1; x").results, [{"text/plain": "42"}])
        self.assertEqual(
            self.run_ok("int f(int a) { return g(a) * 2; }\nint g(int a) { return a + x; }\nf(1)").text, "86"
        )
        # The server removes the quotes.
        self.assertEqual(self.run_ok('String.join("\\n", List.of("\\"é\\"", "b"))').text, '""é"\nb"')
        self.assertEqual(self.run_ok('System.getProperty("user.dir")').text, '"/usr"')
        for code in ("x = 3", "null", "System.out.println(x)", "Math.max(1, 2); int y = 1;", ""):
            with self.subTest(code):
                self.assertEqual(self.run_ok(code).results, [])

    def test_variables_are_properties_and_those_of_a_run_are_gone_in_the_next(self):
        read = 'List.of(System.getProperty("GIVEN"), System.getProperty("FOO", "none"), System.getenv("GIVEN"))'
        cell = self.run_ok(read, GIVEN="to the run", FOO="a=b\n+%é")
        self.assertEqual(cell.text, "[to the run, a=b\n+%é, to the sandbox]")
        self.assertEqual(self.run_ok(read).text, "[to the sandbox, none, to the sandbox]")

    def test_output_streams_and_an_interrupt_keeps_the_variables(self):
        self.run_ok("int x = 1;")
        code = 'System.err.println("told"); System.out.print("begun"); while (true) {}'
        self.assertEqual(self.interrupted_after_output(code, "begun").stderr, "told\n")
        self.interrupted_after_output('System.out.println("again"); Thread.sleep(1000000);', "again\n")
        self.assertEqual(self.run_ok("x").text, "1")

    def test_errors_have_a_name_a_value_and_a_place(self):
        error = self.error_of("int f() { return 1 / 0; }\nf()")
        self.assertEqual((error["name"], error["value"]), ("ArithmeticException", "/ by zero"))
        self.assertIn("\n    at .f(#", error["text"])
        error = self.error_of('throw new IllegalStateException("bad", new RuntimeException("why"))')
        self.assertIn("Caused by: java.lang.RuntimeException: why", error["text"])
        error = self.error_of('int y = 1;\nint z = "a";')
        self.assertEqual(error["name"], "CompilationException")
        self.assertIn('    int z = "a";\n            ^', error["text"])
        self.assertEqual(self.error_of("Missing missing;")["value"], "not declared: class Missing")
        self.assertEqual(self.error_of("int z = (1")["name"], "CompilationException")
        error = self.error_of("System.exit(3)")
        self.assertIn("Java ended with the exit code 3", error["value"])
        self.assertEqual(self.run_ok("1 + 1").text, "2")


class MissingTest(InterpreterTest):
    def test_the_error_names_the_package_that_the_template_lacks(self):
        context = self.python_context(env={**ENVIRONMENT, "PATH": "/nowhere"})
        for language, package in (("r", "r-base-core"), ("java", "default-jdk-headless")):
            with self.subTest(language):
                error = context.cell(as_python(language, "1", {})).error
                self.assertEqual(error["name"], "InterpreterMissing")
                self.assertIn(f"`sandling template build NAME --packages {package}`", error["value"])
                self.assertEqual(error["text"], f"InterpreterMissing: {error['value']}\n")
