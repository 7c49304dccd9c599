import os
import signal
import time
import unittest

from support import DEADLINE_S, ENVIRONMENT, PYTHON, Ended, InterpreterTest, Zygote, reference

# Code whose output and exit status must be those of `python3 -c`.
AS_PYTHON_ITSELF = {
    "prints": "print(1 + 1)",
    "exits with a number": "import sys; sys.exit(3)",
    "exits with a number beyond a byte": "import sys; sys.exit(259)",
    "exits with words": "import sys; sys.exit('no\\nmore')",
    "exits with nothing": "import sys; print(1); sys.exit()",
    "leaves by os._exit": "import os; os._exit(9)",
    "dies by a signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "is interrupted": "raise KeyboardInterrupt",
    "arguments": "import sys; print(sys.argv, __name__, sys.path[0] == '', '__file__' in globals())",
    "names of main": "print(sorted(globals()), __import__('__main__').__dict__ is globals())",
    "pickles its own class": "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)",
    "atexit": "import atexit\natexit.register(print, 'a')\natexit.register(print, 'b')\nprint('c')",
    "waits for threads": "import threading, time\n"
    "threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()\nprint('main')",
    "does not wait for daemons": "import threading, time\n"
    "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\nprint('main')",
    "executor": "from concurrent.futures import ThreadPoolExecutor\n"
    "print(ThreadPoolExecutor(2).submit(pow, 2, 9).result())",
    "finalisers": "class A:\n    def __del__(self): print('gone', len('x'))\na = A()\nb = A(); b.me = b\nprint('end')",
    "finalisers after an error": "class A:\n    def __del__(self): print('gone')\na = A()\n1/0",
    "open file": "import sys\nf = open('/proc/self/fd/1', 'w')\nf.write('kept in a buffer')",
    "no newline at the end": "import sys; sys.stdout.write('x')",
    "binary output": "import sys; sys.stdout.buffer.write(b'\\xff\\x00'); sys.stdout.buffer.flush()",
    "streams": "import sys\nfor s in (sys.stdin, sys.stdout, sys.stderr):\n"
    "    print(s.name, s.encoding, s.errors, s.mode, s.fileno(), s.buffer.raw.closefd, s.newlines)",
    "input": "print(input(), input())",
    "input at its end": "input(), input(), input()",
    "iterates stdin": "import sys\nfor line in sys.stdin: print(repr(line))",
    "reads bytes": "import sys; print(sys.stdin.buffer.read())",
    "prints what is no text": "print('\\udcff')",
    "multiprocessing": "import multiprocessing as m\n"
    "def f(x): return x * x\n"
    "if __name__ == '__main__':\n    with m.get_context('fork').Pool(2) as p: print(p.map(f, range(5)))",
    "fork": "import os\npid = os.fork()\nif pid: print('parent', os.waitpid(pid, 0)[1])\n"
    "else: print('child'); raise SystemExit(4)",
    "subprocess": "import subprocess; print(subprocess.run(['cat'], input=b'x', stdout=-1).stdout)",
    "interrupt handler": "import signal; print(signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGPIPE))",
    "excepthook": "import sys\n"
    "sys.excepthook = lambda *a: print(a[0], a[2].tb_frame.f_code.co_name, a[2].tb_next)\n1/0",
    "main thread": "import threading; "
    "print(threading.current_thread() is threading.main_thread(), threading.active_count())",
    "own session": "import os; print(os.path.exists('/proc/self/fd/3'))",
    "future": "from __future__ import annotations\ndef f(x: nonsense): pass\nprint(f.__annotations__)",
    "no future of ours": "def f(x: 1 + 1): pass\nprint(f.__annotations__)",
    "asyncio": "import asyncio\nasync def f(): return 5\nprint(asyncio.run(f()))",
    "broken standard output": "import os, sys; sys.stdout.write('x'); os.close(1)",
    "closed standard output": "import sys; print('x'); sys.stdout.close()",
    "recursion": "def f(n): return n and f(n - 1)\nprint(f(900))",
}


class ScriptTest(InterpreterTest):
    """A script without a zygote."""

    def spare(self):
        return self.python("script")

    def test_scripts_behave_as_in_plain_python(self):
        for name, code in AS_PYTHON_ITSELF.items():
            with self.subTest(name):
                spare = self.spare()
                stdin = b"one\ntwo\xc3\xa9\n"
                status = spare.run_script(code, stdin=stdin)
                expected = reference([PYTHON, "-c"], code, stdin)
                self.assertEqual((status, spare.stdout), expected[:2], spare.stderr)
                self.assertEqual(bool(spare.stderr), bool(expected[2]), spare.stderr)

    def test_a_line_is_seen_before_the_script_ends(self):
        spare = self.spare()
        spare.activate("script", code="print('begun')\nprint('half', end='')\nimport time\ntime.sleep(1000)", args=[])
        end = time.monotonic() + DEADLINE_S
        while spare.stdout != b"begun\n" and time.monotonic() < end:
            spare.drain()
        self.assertEqual(spare.stdout, b"begun\n")

    def test_a_traceback_has_no_lines_of_the_driver(self):
        spare = self.spare()
        status = spare.run_script("def f():\n    {}['a']\n\nf()")
        lines = [line for line in spare.stderr.decode().splitlines() if set(line.strip()) - set("~^")]
        self.assertEqual(status, 1)
        self.assertEqual(
            lines,
            [
                "Traceback (most recent call last):",
                '  File "<main>", line 4, in <module>',
                "    f()",
                '  File "<main>", line 2, in f',
                "    {}['a']",
                "KeyError: 'a'",
            ],
        )

    def test_a_syntax_error_is_shown_where_it_is(self):
        spare = self.spare()
        self.assertEqual(spare.run_script("x = 1\ny = = 2"), 1)
        self.assertIn('File "<main>", line 2\n    y = = 2\n', spare.stderr.decode())
        self.assertNotIn("Traceback", spare.stderr.decode())

    def test_arguments_environment_and_folder_are_set(self):
        spare = self.spare()
        folder = self.temporary_folder()
        environment = {**ENVIRONMENT, "A": "ä=1", "TZ": "Asia/Kathmandu", "PYTHONPATH": folder}
        with open(os.path.join(folder, "beside.py"), "w") as module:
            module.write("here = True")
        code = (
            "import os, sys, time, beside\n"
            "print(sys.argv, dict(os.environ) == %r, os.getcwd(), time.timezone, beside.here)" % environment
        )
        self.assertEqual(spare.run_script(code, ["x", "ü"], env=environment, cwd="/usr"), 0, spare.stderr)
        self.assertEqual(spare.stdout.decode(), "['-c', 'x', 'ü'] True /usr -20700 True\n")

    def test_standard_output_is_not_buffered_when_asked(self):
        spare = self.spare()
        environment = {**ENVIRONMENT, "PYTHONUNBUFFERED": "1"}
        spare.run_script("import os; print('x', end=''); os._exit(0)", env=environment)
        self.assertEqual(spare.stdout, b"x")

    def test_the_driver_leaves_no_file_open(self):
        spare = self.spare()
        spare.run_script("import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))")
        # The last one belongs to the listing itself.
        self.assertEqual(spare.stdout, b"[0, 1, 2, 3]\n")

    def test_it_leads_its_own_session(self):
        spare = self.spare()
        spare.run_script("import os; print(os.getsid(0) == os.getpgrp() == os.getpid())")
        self.assertEqual(spare.stdout, b"True\n")

    @unittest.skipUnless(os.getuid() == 0, "NOT TESTED: needs root")
    def test_it_becomes_another_user(self):
        spare = self.spare()
        code = "import os; print(os.getresuid(), os.getresgid(), os.getgroups())"
        spare.run_script(code, uid=65534, gid=65533, groups=[65533, 100])
        self.assertEqual(spare.stdout, b"(65534, 65534, 65534) (65533, 65533, 65533) [100, 65533]\n")

    @unittest.skipUnless(os.getuid() == 0, "NOT TESTED: needs root")
    def test_a_folder_that_user_may_not_enter_is_refused(self):
        spare = self.spare()
        folder = self.temporary_folder()
        os.chmod(folder, 0o700)
        answer = spare.activate("script", code="", args=[], cwd=folder, uid=65534, gid=65534)
        self.assertIn("Permission denied", answer["failed"])
        self.assertEqual(spare.wait(), 1)

    def test_a_missing_folder_is_refused(self):
        spare = self.spare()
        answer = spare.activate("script", code="print(1)", args=[], cwd="/nonexistent")
        self.assertIn("/nonexistent", answer["failed"])
        self.assertEqual(spare.wait(), 1)
        self.assertEqual(spare.stdout, b"")

    def test_an_interrupt_ends_it_as_it_ends_python(self):
        spare = self.spare()
        spare.activate("script", code="print('x', flush=True)\nwhile True: pass", args=[])
        self.wait_until(lambda: spare.drain() or spare.stdout)
        os.kill(spare.pid, signal.SIGINT)
        self.assertEqual(spare.wait(), -signal.SIGINT)
        self.assertTrue(spare.stderr.decode().endswith("KeyboardInterrupt\n"), spare.stderr)

    def test_the_end_is_reported_on_request_and_only_by_the_script(self):
        for code, status in (
            ("print('x')", 0),
            ("import sys; print('x'); sys.exit(3)", 3),
            ("print('x'); raise KeyboardInterrupt", -signal.SIGINT),
            ("import os\nif os.fork(): os.wait(); print('x')", 0),
            ("import ctypes, os\nif ctypes.CDLL(None).fork(): os.wait(); print('x')", 0),
        ):
            with self.subTest(code):
                spare = self.spare()
                self.assertEqual(spare.run_script(code, report_end=True), status)
                self.assertEqual(spare.receive(), {"ended": status})
                self.assertEqual(spare.stdout, b"x\n")
                with self.assertRaises(Ended):
                    spare.receive()
        for code in ("import os; os._exit(4)", "import os; os.closerange(3, 200)"):
            with self.subTest(code):
                spare = self.spare()
                spare.run_script(code, report_end=True)
                with self.assertRaises(Ended):
                    spare.receive()

    def test_a_long_script_arrives_complete(self):
        spare = self.spare()
        self.assertEqual(spare.run_script("x = '%s'\nprint(len(x))" % ("é" * 2_000_000)), 0)
        self.assertEqual(spare.stdout, b"2000000\n")

    def test_it_ends_when_the_agent_closes_the_socket(self):
        spare = self.spare()
        spare.control.close()
        self.assertEqual(spare.wait(), 0)


class WarmScriptTest(ScriptTest):
    """The same scripts, in a spare of a zygote."""

    @classmethod
    def setUpClass(cls):
        cls.shared = Zygote()

    @classmethod
    def tearDownClass(cls):
        cls.shared.close()

    def spare(self):
        return self.opened(self.shared.fork())


if __name__ == "__main__":
    unittest.main()
