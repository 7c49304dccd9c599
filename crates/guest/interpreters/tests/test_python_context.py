import base64
import json
import os
import signal
import unittest

from support import Ended, InterpreterTest

PICTURE = b"\x89PNG\r\n\x1a\n"


class ContextTest(InterpreterTest):
    def setUp(self):
        self.context = self.python_context()

    def run_ok(self, code):
        cell = self.context.cell(code)
        self.assertEqual((cell.status, cell.error), ("ok", None))
        return cell

    def test_variables_last_and_the_last_expression_is_the_value(self):
        self.assertEqual(self.run_ok("x = 20\ndef f(): return x + 1").results, [])
        self.assertEqual(self.run_ok("x += 1\nf() * 2").results, [{"text/plain": "44"}])
        self.assertEqual(self.run_ok("None").results, [])
        self.assertEqual(self.run_ok("").results, [])
        self.assertEqual(self.run_ok("if x: x").results, [])

    def test_a_cell_reports_its_number(self):
        self.assertEqual(self.context.cell("1", number=77).number, 77)

    def test_a_semicolon_hides_the_value(self):
        for code in ("1;", "1 ; ", "1;  # why", "(1) ;", "'é'; # ;", "(\n1\n) ;\n"):
            with self.subTest(code):
                self.assertEqual(self.run_ok(code).results, [])
        for code in ("';'", "1 # ;", "x = 1; x", "'é' # ;"):
            with self.subTest(code):
                self.assertEqual(len(self.run_ok(code).results), 1)

    def test_output_is_complete_before_the_cell_is_done(self):
        cell = self.run_ok(
            "import sys, os\nprint('é\\0', end='')\nprint('x' * 300000, file=sys.stderr)\nos.system('echo child')"
        )
        self.assertEqual(cell.stdout, "child\né\0"[:6] + "é\0")
        self.assertEqual(len(cell.stderr), 300001)
        self.assertEqual(cell.text, "0")

    def test_progress_is_seen_while_the_cell_runs(self):
        self.context.begin_cell("import time\nprint('begun')\nwhile True: time.sleep(1)")
        self.wait_until(lambda: self.context.drain() or self.context.stdout == b"begun\n")

    def test_an_error_has_only_the_users_lines(self):
        self.run_ok("def f(d):\n    return d['é']")
        cell = self.context.cell("\nf({})", number=2)
        self.assertEqual((cell.status, cell.error["name"], cell.error["value"]), ("error", "KeyError", "'é'"))
        lines = [line for line in cell.error["text"].splitlines() if set(line.strip()) - set("~^")]
        self.assertEqual(
            lines,
            [
                "Traceback (most recent call last):",
                '  File "<cell 2>", line 2, in <module>',
                "    f({})",
                '  File "<cell 1>", line 2, in f',
                "    return d['é']",
                "KeyError: 'é'",
            ],
        )
        self.assertEqual(cell.stderr, "")

    def test_a_syntax_error_is_shown_where_it_is(self):
        cell = self.context.cell("x = 1\ny = = 2")
        self.assertEqual(cell.error["name"], "SyntaxError")
        self.assertTrue(cell.error["text"].startswith('  File "<cell 1>", line 2\n    y = = 2\n'), cell.error["text"])

    def test_an_error_behind_an_await_has_no_frame_of_the_event_loop(self):
        cell = self.context.cell("import asyncio\nasync def f(): await asyncio.sleep(0); 1 / 0\nawait f()")
        self.assertEqual(cell.error["text"].count("File"), cell.error["text"].count("<cell 1>"))
        self.assertEqual(cell.error["name"], "ZeroDivisionError")

    def test_errors_that_cannot_be_printed_are_reported(self):
        code = "class E(Exception):\n    def __str__(self): 1 / 0\nraise E"
        self.assertEqual(self.context.cell(code).error["name"], "E")
        cell = self.context.cell("raise ValueError('x' * 5_000_000)")
        self.assertLess(len(cell.error["text"]), 2_000_000)
        self.assertIn("characters cut", cell.error["text"])
        self.assertEqual(self.context.cell("raise ValueError('\\ud800\\0')").error["value"], "?\0")
        self.assertEqual(self.context.cell("def f(): f()\nf()").error["name"], "RecursionError")

    def test_a_value_that_cannot_be_shown_is_an_error(self):
        cell = self.context.cell("class A:\n    def __repr__(self): raise ValueError('no')\nA()")
        self.assertEqual((cell.status, cell.error["value"], cell.results), ("error", "no", []))

    def test_exit_ends_the_cell_and_not_the_context(self):
        cell = self.context.cell("x = 5\nimport sys\nsys.exit(3)")
        self.assertEqual((cell.status, cell.error["name"], cell.error["value"]), ("error", "SystemExit", "3"))
        self.assertEqual(self.run_ok("x").text, "5")

    def test_input_finds_the_end(self):
        self.assertEqual(self.context.cell("input('name?')").error["name"], "EOFError")

    def test_top_level_await_works_in_one_event_loop(self):
        self.run_ok("import asyncio\nasync def put(): await asyncio.sleep(0.01); await queue.put(7)")
        self.run_ok(
            "queue = asyncio.Queue(); task = asyncio.get_running_loop().create_task(put()); await asyncio.sleep(0)"
        )
        self.assertEqual(self.run_ok("await queue.get()").text, "7")
        self.assertEqual(self.run_ok("async with asyncio.Lock(): y = 8\ny").text, "8")
        self.assertEqual(self.run_ok("asyncio.run(asyncio.sleep(0, 9))").text, "9")
        self.assertEqual(self.run_ok("await asyncio.sleep(0, 10)").text, "10")

    def test_future_imports_apply_to_later_cells(self):
        self.run_ok("from __future__ import annotations")
        self.assertEqual(self.run_ok("def f(x: nothing): pass\nf.__annotations__").text, "{'x': 'nothing'}")

    def test_main_belongs_to_the_user(self):
        self.run_ok("import pickle, sys\nclass A: pass")
        self.assertEqual(self.run_ok("type(pickle.loads(pickle.dumps(A()))) is A").text, "True")
        self.assertEqual(
            self.run_ok("import inspect\ndef f(): return 1\ninspect.getsource(f)").text, repr("def f(): return 1\n")
        )

    def test_a_context_ends_when_the_agent_closes_the_socket(self):
        folder = self.temporary_folder()
        self.run_ok(f"import atexit, os\natexit.register(os.mkdir, {folder!r} + '/left')")
        self.context.control.close()
        self.assertEqual(self.context.wait(), 0)
        self.assertEqual(os.listdir(folder), ["left"])

    def test_cells_sent_early_wait_for_their_turn(self):
        for number in (1, 2, 3):
            self.context.send({"cell": number, "code": f"import time; time.sleep(0.05); {number} * 10"})
        self.assertEqual([self.context.end_cell().text for _ in range(3)], ["10", "20", "30"])


class InterruptTest(InterpreterTest):
    def setUp(self):
        self.context = self.python_context()

    def interrupt_once_begun(self, code):
        self.context.begin_cell(f"print('begun', flush=True)\n{code}")
        self.wait_until(lambda: self.context.drain() or self.context.stdout.startswith(b"begun"))
        os.kill(self.context.pid, signal.SIGINT)
        return self.context.end_cell()

    def test_a_running_cell_is_interrupted(self):
        for code in (
            "while True: pass",
            "import time; time.sleep(1000)",
            "import asyncio; await asyncio.sleep(1000)",
            "import subprocess; subprocess.run(['sleep', '1000'])",
            "while True: display(1)",
        ):
            with self.subTest(code):
                cell = self.interrupt_once_begun(code)
                self.assertEqual((cell.status, cell.error["name"]), ("interrupted", "KeyboardInterrupt"))
                self.assertNotIn("python_context", cell.error["text"])
                self.assertEqual(self.context.cell("1 + 1").text, "2")

    def test_an_interrupt_between_cells_is_ignored(self):
        for _ in range(20):
            os.kill(self.context.pid, signal.SIGINT)
            cell = self.context.cell("1 + 1")
            # A signal that arrives as the cell begins interrupts the cell.
            self.assertIn(cell.status, ("ok", "interrupted"))
        os.kill(self.context.pid, signal.SIGINT)
        self.wait_until(lambda: not int(self.pending_signals(), 16) & 1 << signal.SIGINT - 1)
        self.assertEqual(self.context.cell("1 + 1").status, "ok")

    def pending_signals(self):
        with open(f"/proc/{self.context.pid}/status") as status:
            return next(line.split()[1] for line in status if line.startswith("ShdPnd"))

    def test_an_interrupt_is_not_lost_when_it_comes_before_the_cell_begins(self):
        os.kill(self.context.pid, signal.SIGSTOP)
        self.context.begin_cell("import time; time.sleep(1)", 2)
        self.context.interrupt(2)
        os.kill(self.context.pid, signal.SIGCONT)
        self.assertEqual(self.context.end_cell().status, "interrupted")
        self.assertEqual(self.context.cell("1 + 1", 3).text, "2")

    def test_an_interrupt_of_another_cell_is_ignored(self):
        for number in (1, 3):
            self.context.send({"interrupt": number})
            self.assertEqual(self.context.cell("1 + 1", 2).text, "2")

    def test_many_interrupts_lose_no_cell(self):
        for number in range(300):
            self.context.send({"cell": number, "code": "x = 1\nx"})
            for _ in range(number % 5):
                os.kill(self.context.pid, signal.SIGINT)
            cell = self.context.end_cell()
            self.assertEqual(cell.number, number)
            self.assertIn(cell.status, ("ok", "interrupted"))

    def test_code_may_catch_it_and_be_interrupted_again(self):
        self.context.begin_cell(
            "try:\n    print('begun')\n    while True: pass\n"
            "except KeyboardInterrupt: print('caught')\nwhile True: pass"
        )
        for word in (b"begun", b"caught"):
            self.wait_until(lambda: self.context.drain() or word in self.context.stdout)
            os.kill(self.context.pid, signal.SIGINT)
        self.assertEqual(self.context.end_cell().status, "interrupted")

    def test_a_handler_of_the_users_is_used_in_cells_only(self):
        self.context.cell("import signal\nsignal.signal(signal.SIGINT, lambda *_: exit(5))")
        os.kill(self.context.pid, signal.SIGINT)
        cell = self.interrupt_once_begun("while True: pass")
        self.assertEqual((cell.status, cell.error["name"], cell.error["value"]), ("error", "SystemExit", "5"))


class HostileTest(InterpreterTest):
    """User code that breaks its own process affects nothing else."""

    def setUp(self):
        self.context = self.python_context()

    def survives(self, code):
        with self.subTest(code):
            self.context.cell(code)
            cell = self.context.cell("print('é' * 3)\n6 * 7", number=9)
            self.assertEqual((cell.number, cell.status, cell.text), (9, "ok", "42"))
            return cell

    def test_streams_may_be_replaced_and_closed(self):
        self.assertEqual(self.survives("import sys\nsys.stdout.close(); sys.stderr.close()").stdout, "ééé\n")
        self.assertEqual(self.survives("import sys\nsys.stdout = None").stdout, "ééé\n")
        self.survives("import sys, io\nsys.stdout = io.StringIO()")
        self.assertEqual(self.context.cell("sys.stdout.getvalue()").text, "'ééé\\n'")
        self.survives(
            "class Odd:\n    closed = False\n    def write(self, text): pass\n    def flush(self): 1 / 0\n"
            "sys.stdout = Odd()"
        )

    def test_descriptor_1_may_be_closed(self):
        self.context.cell("import os\nos.close(1)\nprint('lost')")
        self.assertEqual(self.context.cell("6 * 7").text, "42")

    def test_output_that_looks_like_the_protocol_is_output(self):
        cell = self.survives('import os\nos.write(1, b\'{"done":1,"status":"ok","error":null}\\n\')')
        self.assertEqual(cell.stdout, "ééé\n")

    def test_children_do_not_answer(self):
        self.survives("import os\nif os.fork() == 0: x = 1\nelse: os.wait()\n'both'")
        self.survives("import os\nif os.fork() == 0: display('child'); raise ValueError\nelse: os.wait()")
        cell = self.context.cell(
            "import os\npid = os.fork()\nif pid == 0: exit(7)\nos.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])"
        )
        self.assertEqual((cell.text, len(cell.results)), ("7", 1))
        cell = self.context.cell("import ctypes, os\npid = ctypes.CDLL(None).fork()\nif pid: os.wait()\n5")
        self.assertEqual([cell.text, len(cell.results)], ["5", 1])

    def test_child_processes_do_not_have_the_control_socket(self):
        started = """
import subprocess
subprocess.run('ls -l /proc/self/fd', shell=True, close_fds=False, capture_output=True, text=True).stdout
"""
        forked = """
import os, time
read, write = os.pipe()
pid = os.fork()
if pid == 0: os.write(write, b'.'); time.sleep(1000)
os.read(read, 1)
links = [os.readlink(f'/proc/{pid}/fd/{fd}') for fd in os.listdir(f'/proc/{pid}/fd')]
os.kill(pid, 9); os.wait()
links
"""
        for code in (started, forked):
            cell = self.context.cell(code)
            self.assertIn("pipe:", cell.text)
            self.assertNotIn("socket:", cell.text)

    def test_multiprocessing_works(self):
        cell = self.context.cell(
            "import multiprocessing\ndef f(x): return x * x\n"
            "with multiprocessing.get_context('fork').Pool(2) as p: r = p.map(f, [1, 2, 3])\nr"
        )
        self.assertEqual(cell.text, "[1, 4, 9]", cell.error)

    def test_threads_keep_running_between_cells(self):
        self.survives(
            "import threading, time\ndef f():\n    while True: time.sleep(0.001)\n"
            "threading.Thread(target=f, daemon=True).start()"
        )

    def test_a_process_that_exits_sends_no_message(self):
        self.context.begin_cell("import os; os._exit(3)")
        with self.assertRaises(Ended):
            self.context.end_cell()
        self.assertEqual(self.context.wait(), 3)

    def test_names_that_the_driver_uses_may_be_overwritten(self):
        self.survives("import builtins, json, os, sys\njson = os = sys = len = repr = print = None\ndel print")
        self.survives("import json\njson.dumps_was, json.decoder.x = 1, 2")


class ResultTest(InterpreterTest):
    def setUp(self):
        self.context = self.python_context()

    def value(self, code):
        cell = self.context.cell(code)
        self.assertEqual(cell.status, "ok", cell.error)
        return cell.results[-1]

    def test_every_kind_of_representation_is_passed_on(self):
        code = """
class Rich:
    def _repr_html_(self): return '<b>é</b>'
    def _repr_markdown_(self): return '*m*'
    def _repr_svg_(self): return '<svg/>'
    def _repr_png_(self): return b'png', {'width': 1}
    def _repr_jpeg_(self): return b'jpeg'
    def _repr_latex_(self): return None
    def _repr_json_(self): return {'a': [1, 'é']}
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {'text/markdown': '*n*', 'application/x+json': {'b': 1}}
    def __repr__(self): return 'Rich()'
Rich()
"""
        found = self.value(code)
        self.assertEqual(json.loads(found.pop("application/json")), {"a": [1, "é"]})
        self.assertEqual(json.loads(found.pop("application/x+json")), {"b": 1})
        expected = {"text/plain": "Rich()", "text/html": "<b>é</b>", "text/markdown": "*n*", "image/svg+xml": "<svg/>"}
        expected["image/png"] = base64.b64encode(b"png").decode()
        expected["image/jpeg"] = base64.b64encode(b"jpeg").decode()
        self.assertEqual(found, expected)
        self.assertEqual(self.value("Rich"), {"text/plain": "<class '__main__.Rich'>"})

    def test_a_representation_that_fails_does_not_affect_others(self):
        cell = self.context.cell(
            "class A:\n    def _repr_html_(self): 1 / 0\n    def _repr_svg_(self): return 's'\n"
            "    def __repr__(self): return 'A'\nA()"
        )
        self.assertEqual(cell.results, [{"text/plain": "A", "image/svg+xml": "s"}])
        self.assertIn("ZeroDivisionError", cell.stderr)

    def test_objects_that_answer_to_every_name_have_text_only(self):
        self.assertEqual(list(self.value("from unittest.mock import Mock\nMock()")), ["text/plain"])

    def test_display_shows_at_once(self):
        self.context.begin_cell("display([1], 'é')\ndisplay({'text/html': '<i>'}, raw=True)\nwhile True: pass")
        shown = [self.context.receive() for _ in range(3)]
        self.assertEqual(
            shown,
            [
                {"result": {"text/plain": "[1]", "application/json": "[1]"}},
                {"result": {"text/plain": "'é'"}},
                {"result": {"text/html": "<i>"}},
            ],
        )

    def test_the_value_of_a_cell_is_marked_and_its_variables_are_gone_afterwards(self):
        self.context.send({"cell": 1, "code": "import os; display(1); os.environ['A']", "env": {"A": "b"}})
        displayed, value, done = [self.context.receive() for _ in range(3)]
        self.assertEqual((displayed.get("value"), value["value"], value["result"]), (None, True, {"text/plain": "'b'"}))
        self.assertEqual(done["done"], 1)
        self.assertEqual(self.context.cell("'A' in os.environ", 2).results[-1]["text/plain"], "False")

    def test_shell_lines_run_and_strings_are_not_changed(self):
        cell = self.context.cell("if True:\n    !echo one; echo two >&2\n!exit 3\n_exit_code")
        self.assertEqual((cell.stdout, cell.stderr, cell.text), ("one\n", "two\n", "3"))
        self.assertEqual(self.context.cell("x = '''\n!echo no\n'''; x", 2).text, repr("\n!echo no\n"))

    def test_only_values_that_json_can_represent_are_json(self):
        self.assertEqual(self.value("{'a': [1, None]}")["application/json"], '{"a": [1, null]}')
        for code in ("[float('nan')]", "[object()]", "x = []; x.append(x); x", "{(1, 2): 3}"):
            self.assertNotIn("application/json", self.value(code))

    def test_a_result_that_is_too_large_is_replaced_by_a_note(self):
        for code in ("'x' * (9 << 20)", "chr(0) * (3 << 20)", "'é' * (5 << 20)"):
            found = self.value(code)
            self.assertLess(len(json.dumps(found)), 100_000)
            self.assertRegex(found["text/plain"], r"\[cut: text/plain of \d{7,8} bytes; a result may have \d+ bytes\]$")
        self.assertEqual(len(self.value("'x' * (8 << 20 - 1)")["text/plain"]), (8 << 20 - 1) + 2)

    def test_a_data_frame_is_html(self):
        if self.context.cell("import pandas").status != "ok":
            self.skipTest("NOT TESTED: there is no pandas on this machine")
        found = self.value("pandas.DataFrame({'a': [1]})")
        self.assertIn("<table", found["text/html"])
        self.assertIn("a", found["text/plain"])

    def test_figures_are_pictures(self):
        # Also in the cell that imports it.
        cell = self.context.cell(
            "import matplotlib.pyplot as plt\n"
            "for i in range(2):\n    plt.plot([1, i]); plt.show()\nlen(plt.get_fignums())"
        )
        if cell.error and cell.error["name"] == "ModuleNotFoundError":
            self.skipTest("NOT TESTED: there is no matplotlib on this machine")
        self.assertEqual(cell.status, "ok", cell.error)
        figure = ["image/png", "text/plain", "application/vnd.sandling.chart+json"]
        self.assertEqual([list(result) for result in cell.results], [figure] * 2 + [["text/plain"]])
        self.assertEqual((cell.text, cell.stderr), ("0", ""))
        for code, count in (
            ("plt.plot([1]);", 1),
            ("fig, ax = plt.subplots(); ax.plot([1]); fig", 1),
            ("plt.figure();", 0),
        ):
            with self.subTest(code):
                cell = self.context.cell(code)
                self.assertEqual(len(cell.results), count)
                for result in cell.results:
                    self.assertTrue(base64.b64decode(result["image/png"]).startswith(PICTURE))
        self.assertEqual(self.context.cell("plt.get_fignums()").text, "[]")
        cell = self.context.cell("plt.plot([1]); 1 / 0")
        self.assertEqual((cell.status, len(cell.results)), ("error", 1))


if __name__ == "__main__":
    unittest.main()
