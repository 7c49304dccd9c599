"""What notebooks have beside Python: indented cells, magics, `get_ipython` and `IPython.display`."""

import base64
import os
import unittest

from support import InterpreterTest

PICTURE = b"\x89PNG\r\n\x1a\n"


class NotebookTest(InterpreterTest):
    def setUp(self):
        self.context = self.python_context()

    def run_ok(self, code):
        cell = self.context.cell(code)
        self.assertEqual((cell.status, cell.error), ("ok", None))
        return cell


class SourceTest(NotebookTest):
    def test_a_cell_may_be_indented(self):
        for code in (
            "\n    x = 1\n    x\n",
            "    x = 1\n    if x:\n        x\n    x",
            "\tx = 1\n\n\tx\n    ",
            "\r\n  x = 1\r\n  x\r\n",
            "  # why\n  x = 1\n  x",
        ):
            with self.subTest(code):
                self.assertEqual(self.run_ok(code).text, "1")
        self.assertEqual(self.run_ok("    # why\nx = 2\nx").text, "2")
        cell = self.context.cell("\n    y = 0\n    1 / y\n", 2)
        self.assertIn('File "<cell 2>", line 3, in <module>\n    1 / y\n', cell.error["text"])
        self.assertEqual(self.context.cell("x = 1\n    x").error["name"], "IndentationError")

    def test_only_lines_that_are_no_python_are_replaced(self):
        cell = self.run_ok("s = '''\n!echo no\n%time no\nno?\n'''\n!echo yes\nt = [5\n  %3]\ns, t")
        self.assertEqual((cell.stdout, cell.text), ("yes\n", repr(("\n!echo no\n%time no\nno?\n", [2]))))
        cell = self.context.cell("!echo 'it\nx = = 1", 2)
        self.assertEqual((cell.status, cell.error["name"]), ("error", "SyntaxError"))

    def test_shell_lines_take_values_and_give_lines(self):
        cell = self.run_ok(
            "name = 'é'\ndef f():\n    inner = 3\n    !echo {inner + 1} $name $HOME $$ {print $1}\nf()\n"
            "out = !printf 'a\\nb'\nout, out.n, _exit_code"
        )
        home = os.environ.get("HOME", "/")
        self.assertEqual(cell.stdout, f"4 é {home} $ {{print }}\n")
        self.assertEqual(cell.text, repr((["a", "b"], "a\nb", 0)))
        self.assertEqual(self.run_ok("!echo one \\\n  two\n1").stdout, "one two\n")


class MagicTest(NotebookTest):
    def test_magics_with_nothing_to_do_are_accepted(self):
        cell = self.run_ok(
            "%matplotlib inline\n%load_ext autoreload\n%autoreload 2\n"
            "%config InlineBackend.figure_format = 'retina'\nx = 1\nx"
        )
        self.assertEqual((cell.text, cell.stdout, cell.stderr), ("1", "", ""))

    def test_unknown_magics_are_named(self):
        for code, said in (("%nosuch 1", "`%nosuch`"), ("%%nosuch\nx", "`%%nosuch`")):
            cell = self.context.cell(code)
            self.assertEqual((cell.status, cell.error["name"]), ("error", "UsageError"))
            self.assertIn(said, cell.error["value"])

    def test_time_gives_the_value_and_says_how_long_it_took(self):
        for code in ("%time sum([1, 2])", "%%time\nx = 1\nx + 2", "%%time\n\n  x = 1\n  x + 2"):
            with self.subTest(code):
                cell = self.run_ok(code)
                self.assertEqual(cell.text, "3")
                self.assertRegex(cell.stdout, r"CPU times: user .+, sys: .+, total: .+\nWall time: [\d.]+ \S+\n")
        self.assertRegex(self.run_ok("y = 2\n%timeit -n 3 -r 2 y + 1").stdout, r"per loop .* of 2 runs, 3 loops each")
        cell = self.context.cell("%time 1 / 0", 5)
        self.assertEqual(cell.error["name"], "ZeroDivisionError")
        self.assertNotIn("python_magics", cell.error["text"])
        self.assertEqual(self.run_ok("%%time\nimport asyncio\nawait asyncio.sleep(0, 4)").text, "4")

    def test_cells_in_other_languages_run(self):
        cell = self.run_ok("%%bash\nx=5\necho $x {a,b}")
        self.assertEqual(cell.stdout, "5 a b\n")
        self.assertEqual(self.context.cell("%%bash\nexit 3").error["name"], "CalledProcessError")
        self.assertEqual(self.run_ok("%%html\n<b>x</b>").results[0]["text/html"], "<b>x</b>")

    def test_files_folders_and_variables(self):
        folder = self.temporary_folder()
        self.assertEqual(self.run_ok(f"%cd {folder}").stdout, folder + "\n")
        self.assertEqual(self.run_ok("%%writefile a.py\nz = 7\n").stdout, "Writing a.py\n")
        self.assertEqual(self.run_ok("%run a.py\nz").text, "7")
        self.assertEqual(self.run_ok("%ls").stdout, "a.py\n")
        self.assertEqual(self.run_ok("here = %pwd\nhere").text, repr(folder))
        self.assertEqual(self.run_ok("%env A_B=c d\nimport os\nos.environ['A_B']").text, "'c d'")
        self.assertEqual(self.run_ok("%who_ls").text, "['here', 'z']")

    def test_capture_keeps_what_is_printed_and_shown(self):
        cell = self.run_ok("%%capture out\nprint('a')\ndisplay(1)")
        self.assertEqual((cell.stdout, cell.results), ("", []))
        self.assertEqual(self.run_ok("out.stdout, len(out.outputs)").text, r"('a\n', 1)")

    def test_a_question_shows_the_documentation(self):
        self.assertIn("Return the number of items", self.run_ok("len?").stdout)
        self.assertIn("not found", self.run_ok("?nosuch").stdout)

    def test_a_shell_line_is_interrupted(self):
        import signal

        self.context.begin_cell("!echo begun; sleep 1000")
        self.wait_until(lambda: self.context.drain() or self.context.stdout.startswith(b"begun"))
        os.kill(self.context.pid, signal.SIGINT)
        self.assertEqual(self.context.end_cell().status, "interrupted")


class IPythonTest(NotebookTest):
    def test_display_classes_are_results(self):
        for code, mime, content in (
            ("HTML('<b>é</b>')", "text/html", "<b>é</b>"),
            ("Markdown('*m*')", "text/markdown", "*m*"),
            ("Latex('$x$')", "text/latex", "$x$"),
            ("Math('x')", "text/latex", "$\\displaystyle x$"),
            ("SVG('<svg/>')", "image/svg+xml", "<svg/>"),
            ("JSON({'a': 1})", "application/json", '{"a": 1}'),
            ("Javascript('x()')", "application/javascript", "x()"),
            ("Image(data=b'\\xff\\xd8x')", "image/jpeg", base64.b64encode(b"\xff\xd8x").decode()),
            ("Image(url='http://a/b.png', width=3)", "text/html", '<img src="http://a/b.png" width="3"/>'),
            ("IFrame('http://a', 10, 20)", "text/html", None),
            ("Audio([0, 1, -1], rate=8000)", "text/html", None),
            # An installed IPython colors it.
            ("Code('a < b')", "text/html", None),
        ):
            for shown in (code, f"display({code})"):
                with self.subTest(shown):
                    found = self.run_ok(f"from IPython.display import *\n{shown}").results
                    self.assertEqual(len(found), 1)
                    self.assertIn("text/plain", found[0])
                    self.assertEqual(found[0][mime], content or found[0][mime])
        cell = self.run_ok("import IPython\nIPython.display.HTML('a')")
        self.assertEqual(cell.text, "<IPython.core.display.HTML object>")

    def test_display_returns_a_handle_and_data_can_be_published(self):
        cell = self.run_ok(
            "from IPython.display import display, update_display, clear_output, publish_display_data, display_html\n"
            "h = display(1, display_id=True); h.update(2); clear_output(); publish_display_data({'text/html': 'a'})\n"
            "display_html('<i>', raw=True)"
        )
        expected = [{"text/plain": "1"}, {"text/plain": "2"}, {"text/html": "a"}, {"text/html": "<i>"}]
        self.assertEqual(cell.results, expected)

    def test_get_ipython_is_what_libraries_look_for(self):
        cell = self.run_ok(
            "from IPython import get_ipython as imported\nip = get_ipython()\n"
            "ip.run_line_magic('matplotlib', 'inline')\nip.system('echo hi')\nip.push({'pushed': 5})\n"
            "(ip is imported(), type(ip).__name__, ip.user_ns is globals(), pushed, ip.getoutput('echo a'))"
        )
        self.assertEqual(cell.stdout, "hi\n")
        self.assertEqual(cell.text, "(True, 'ZMQInteractiveShell', True, 5, ['a'])")

    def test_magics_and_printers_can_be_registered(self):
        cell = self.run_ok(
            "ip = get_ipython()\nip.register_magic_function(lambda line: line * 2, 'line', 'twice')\n"
            "class A: pass\nip.display_formatter.formatters['text/latex'].for_type(A, lambda a: '$A$')\n"
            "ip.display_formatter.formatters['text/plain'].for_type(A, lambda a, p, cycle: p.text('an A'))\n"
            "x = %twice ab\ndisplay(A())\nx"
        )
        self.assertEqual(cell.results, [{"text/latex": "$A$", "text/plain": "an A"}, {"text/plain": "'abab'"}])

    def test_an_object_that_shows_itself_has_no_other_result(self):
        cell = self.run_ok("class A:\n    def _ipython_display_(self): display('shown')\nA()")
        self.assertEqual(cell.results, [{"text/plain": "'shown'"}])

    def test_an_installed_ipython_shows_here(self):
        folder = self.temporary_folder()
        for name, content in {
            "IPython/__init__.py": "from .core.getipython import get_ipython\n",
            "IPython/core/__init__.py": "",
            "IPython/core/getipython.py": "def get_ipython(): return None\n",
            "IPython/core/display_functions.py": "__all__ = ['display']\ndef display(*a): print('not ours')\n",
            "IPython/display.py": "from .core.display_functions import *\nreal = True\n",
        }.items():
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
            with open(os.path.join(folder, name), "w") as file:
                file.write(content)
        cell = self.run_ok(
            f"import sys; sys.path.insert(0, {folder!r})\nfrom IPython.display import display, real\n"
            "import IPython\ndisplay(5)\nIPython.get_ipython() is get_ipython()"
        )
        self.assertEqual([result["text/plain"] for result in cell.results], ["5", "True"])

    def test_scripts_have_no_notebook(self):
        process = self.python("script")
        code = "import sys\ntry: get_ipython()\nexcept NameError: print('none')"
        self.assertEqual(process.run_script(code), 0)
        self.assertEqual(process.stdout, b"none\n")


class PictureTest(NotebookTest):
    def require(self, module):
        if self.context.cell(f"import {module}").status != "ok":
            self.skipTest(f"NOT TESTED: there is no {module} on this machine")

    def test_pictures_of_pillow_are_shown(self):
        self.require("PIL")
        folder = self.temporary_folder()
        for code in ("image", "image.show()", f"image.save('{folder}/a.png')"):
            with self.subTest(code):
                cell = self.run_ok(f"from PIL import Image\nimage = Image.new('RGBA', (2, 2))\n{code}")
                self.assertEqual(len(cell.results), 1)
                self.assertTrue(base64.b64decode(cell.results[0]["image/png"]).startswith(PICTURE))
        self.assertEqual(os.listdir(folder), ["a.png"])
        cell = self.run_ok(f"import io\nfor i in range(30): image.save('{folder}/a.png')\nimage.save(io.BytesIO(), 'png')")
        self.assertEqual(len(cell.results), 20)

    def test_charts_may_have_texts_on_an_axis_and_numbers_stay_numbers(self):
        self.require("matplotlib")
        import json

        for kind in ("plot", "scatter"):
            cell = self.run_ok(f"import matplotlib.pyplot as plt\nplt.{kind}([0, 1], ['A', 'B']); plt.show()")
            chart = json.loads(cell.results[0]["application/vnd.sandling.chart+json"])
            self.assertEqual((chart["x_scale"], chart["y_scale"]), ("linear", "categorical"))
            self.assertEqual((chart["y_ticks"], chart["y_tick_labels"]), (["A", "B"], ["A", "B"]))
            self.assertEqual(json.dumps(chart["elements"][0]["points"]), '[[0.0, "A"], [1.0, "B"]]')

    def test_a_figure_that_is_saved_is_shown_once(self):
        self.require("matplotlib")
        folder = self.temporary_folder()
        cell = self.run_ok(f"import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.savefig('{folder}/a.png')")
        self.assertEqual(len(cell.results), 1)


if __name__ == "__main__":
    unittest.main()
