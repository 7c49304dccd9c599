import os
import resource
import socket
import sys
import unittest

from support import ENVIRONMENT, InterpreterTest, Process


class ZygoteTest(InterpreterTest):
    def test_imports_are_done_before_it_is_ready_and_failures_are_named(self):
        zygote = self.zygote(["colorsys", "no_such_module", "xml.dom.minidom", "os.path.nothing"])
        self.assertTrue(zygote.ready["ready"])
        self.assertEqual(zygote.ready["failed_imports"], ["no_such_module", "os.path.nothing"])
        spare = self.opened(zygote.fork())
        spare.run_script("import sys; print([name in sys.modules for name in ('colorsys', 'xml.dom.minidom')])")
        self.assertEqual(spare.stdout, b"[True, True]\n")

    def test_a_spare_is_an_orphan_with_its_own_streams(self):
        zygote = self.zygote()
        spares = [self.opened(zygote.fork()) for _ in range(3)]
        for number, spare in enumerate(spares):
            code = "import os; print(os.getppid(), os.getpid(), input())"
            self.assertEqual(spare.run_script(code, stdin=b"%d\n" % number), 0)
            self.assertEqual(spare.stdout.decode(), f"{os.getpid()} {spare.pid} {number}\n")

    def test_a_spare_may_become_a_context(self):
        spare = self.opened(self.zygote().fork())
        self.assertEqual(spare.activate("context"), {"activated": True})
        self.assertEqual(spare.cell("x = 2").results, [])
        self.assertEqual(spare.cell("x * 21").text, "42")
        self.assertEqual(
            spare.cell("import os; sorted(map(int, os.listdir('/proc/self/fd')))").text, "[0, 1, 2, 3, 100]"
        )

    def test_spares_do_not_affect_each_other(self):
        zygote = self.zygote()
        self.opened(zygote.fork()).run_script("import builtins, json; builtins.print = json.dumps = None")
        spare = self.opened(zygote.fork())
        self.assertEqual(spare.run_script("import json; print(json.dumps([]))"), 0, spare.stderr)

    def test_it_survives_a_fork_that_fails(self):
        zygote = self.zygote()
        before = resource.prlimit(zygote.pid, resource.RLIMIT_NOFILE)
        # With room for 3 descriptors, the spare's do not arrive; with room for 8, there is no room for a pipe.
        for room in (3, 8):
            resource.prlimit(zygote.pid, resource.RLIMIT_NOFILE, (room, before[1]))
            spare = self.opened(Process())
            spare.status = 0
            socket.send_fds(zygote.control, [b'{"fork":true}\n'], spare.theirs)
            self.assertIn("could not fork", zygote.receive()["failed"])
            spare.close_theirs()
        resource.prlimit(zygote.pid, resource.RLIMIT_NOFILE, before)
        self.assertEqual(self.opened(zygote.fork()).run_script("pass"), 0)

    def test_a_spare_without_a_rehearsal_works(self):
        spare = self.opened(self.zygote().fork(rehearse=None))
        self.assertEqual(spare.run_script("import os\nprint(os.environ['LANG'])"), 0)
        spare.drain()
        self.assertEqual(spare.stdout, b"C.UTF-8\n")

    def test_exit_functions_of_a_script_run(self):
        for rehearse in (ENVIRONMENT, None):
            spare = self.opened(self.zygote().fork(rehearse))
            code = "import atexit, threading, time, weakref\natexit.register(print, 'exit')\n" \
                "class C: pass\nc = C()\nweakref.finalize(c, print, 'finalized')\n" \
                "threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()"
            self.assertEqual(spare.run_script(code), 0)
            spare.drain()
            self.assertEqual(sorted(spare.stdout.split()), [b"exit", b"finalized", b"thread"])

    def test_packages_installed_later_are_found_and_replace_loaded_ones(self):
        environment = {**ENVIRONMENT, "HOME": self.temporary_folder()}
        packages = os.path.join(environment["HOME"], ".local/lib/python%d.%d/site-packages" % sys.version_info[:2])

        def install(name, version):
            os.makedirs(packages, exist_ok=True)
            with open(os.path.join(packages, f".{name}"), "w") as file:
                file.write(f"VERSION = {version}")
            os.rename(file.name, os.path.join(packages, f"{name}.py"))

        install("loaded", 1)
        zygote = self.zygote(["loaded"], environment)
        self.assertEqual(zygote.ready["failed_imports"], [])
        code = "import sys\nwarm = 'loaded' in sys.modules\nimport loaded\nprint(warm, loaded.VERSION, %s)"

        def printed(what):
            spare = self.opened(zygote.fork(environment))
            self.assertEqual(spare.run_script(code % what, env=environment, report_end=True), 0, spare.stderr)
            return spare.stdout.decode().strip()

        self.assertEqual(printed("0"), "True 1 0")
        install("later", 7)
        self.assertEqual(printed("__import__('later').VERSION"), "True 1 7")
        install("loaded", 200)  # Another size, because within one second only the size identifies a compiled file.
        self.assertEqual(printed("__import__('later').VERSION"), "False 200 7")
        context = self.opened(zygote.fork(environment))
        self.assertEqual(context.activate("context", env=environment), {"activated": True})
        self.assertEqual(context.cell("import loaded; loaded.VERSION").text, "200")

    def test_it_leaks_no_descriptor_and_no_child(self):
        zygote = self.zygote()
        count = lambda: len(os.listdir(f"/proc/{zygote.pid}/fd"))  # noqa: E731
        before = count()
        for _ in range(20):
            self.opened(zygote.fork())
        self.assertEqual(count(), before)
        with open(f"/proc/{zygote.pid}/task/{zygote.pid}/children") as children:
            self.assertEqual(children.read(), "")

    def test_it_ends_when_the_agent_closes_the_socket_and_its_spares_keep_running(self):
        zygote = self.zygote()
        spare = self.opened(zygote.fork())
        zygote.control.close()
        self.assertEqual(zygote.wait(), 0)
        self.assertEqual(spare.run_script("print(1)"), 0)


if __name__ == "__main__":
    unittest.main()
