import json
import os
import random
import signal
import subprocess
import time
import unittest

from support import NODE, InterpreterTest


def removes_types(mode):
    """Whether this Node can make JavaScript of TypeScript in this mode."""
    code = f"require('module').stripTypeScriptTypes('', {{ mode: '{mode}' }})"
    return NODE and subprocess.run([NODE, "-e", code], stderr=subprocess.DEVNULL, check=False).returncode == 0


class ContextTest(InterpreterTest):
    def setUp(self):
        self.context = self.node_context()

    def run_ok(self, code):
        cell = self.context.cell(code)
        self.assertEqual((cell.status, cell.error), ("ok", None))
        return cell

    def test_variables_last_and_can_be_declared_again(self):
        self.run_ok("const a = 1; let b = 2; class C { x() { return a } }; function f() { return a + b }")
        self.assertEqual(self.run_ok("f()").text, "3")
        self.assertEqual(self.run_ok("const a = 10; class C {}; let b = 20; f()").text, "30")

    def test_the_value_is_that_of_the_last_expression(self):
        for code, text in (
            ("1 + 1", "2"),
            ("'é'", "'é'"),
            ("10n", "10n"),
            ("-0", "-0"),
            ("NaN", "NaN"),
            ("null", "null"),
            ("Symbol('x')", "Symbol(x)"),
            ("({ a: 1 })", "{ a: 1 }"),
            ("new Map([[1, 2]])", "Map(1) { 1 => 2 }"),
        ):
            with self.subTest(code):
                self.assertEqual(self.run_ok(code).text, text)
        for code in ("undefined", "let x = 5", "", "// nothing", "function g() {}"):
            with self.subTest(code):
                self.assertEqual(self.run_ok(code).results, [])

    @unittest.skipUnless(removes_types("strip"), "this Node cannot remove the types of TypeScript")
    def test_types_are_removed_from_typescript(self):
        def run(code):
            return self.context.cell(code, typescript=True)

        first = run("interface P { x: number }\nconst double = <T extends P>(p: T): number => p.x * 2")
        self.assertEqual((first.status, first.stderr), ("ok", ""))
        self.assertEqual(run("const p: P = { x: 21 }\ndouble<P>(p)").text, "42")
        self.assertEqual(run("import { sep } from 'path'\nawait Promise.resolve(sep! as string)").text, "'/'")
        thrown = run("const a: number = 1\nthrow new TypeError('no' as string)")
        self.assertEqual((thrown.status, thrown.error["name"]), ("error", "TypeError"))
        self.assertIn(":2:7", thrown.error["text"])
        wrong = run("let x: = 1")
        self.assertEqual(wrong.error["name"], "SyntaxError")
        self.assertIn("let x: = 1\n       ^", wrong.error["text"])
        self.assertNotIn("    at ", wrong.error["text"])

    @unittest.skipUnless(removes_types("strip"), "this Node cannot remove the types of TypeScript")
    def test_typescript_that_is_more_than_types_is_translated_or_refused(self):
        def run(code):
            return self.context.cell(code, typescript=True)

        color = run("enum Color { Red, Green }\nColor.Green as number")
        if removes_types("transform"):
            self.assertEqual(color.text, "1")
            counter = "class C { constructor(private x: number) {} get() { return this.x } }"
            self.assertEqual(run(f"{counter}\nnew C(4).get()").text, "4")
        else:
            self.assertIn("translates nothing", color.error["value"])

    @unittest.skipIf(removes_types("strip"), "this Node can remove the types of TypeScript")
    def test_typescript_that_cannot_run_says_what_is_missing(self):
        cell = self.context.cell("1 as number", typescript=True)
        self.assertEqual(cell.error["name"], "TypeScriptUnsupported")
        self.assertIn("TypeScript needs Node 22.13 or newer", cell.error["value"])
        self.assertNotIn("    at ", cell.error["text"])

    def test_plain_values_are_json_too(self):
        found = self.run_ok("({ a: [1, 'é', null] })").results[0]
        self.assertEqual(json.loads(found["application/json"]), {"a": [1, "é", None]})
        for code in ("[1n]", "const o = {}; o.o = o; o", "new Date(0)", "new (class A {})", "5"):
            with self.subTest(code):
                self.assertEqual(list(self.run_ok(code).results[0]), ["text/plain"])

    def test_display_shows_values_in_their_own_form(self):
        cell = self.run_ok(
            "display(1, 'é'); "
            "({ [Symbol.for('Jupyter.display')]() { return { 'text/html': '<b>', 'image/png': Buffer.from('x') } } })"
        )
        self.assertEqual([result["text/plain"] for result in cell.results[:2]], ["1", "'é'"])
        self.assertEqual((cell.results[2]["text/html"], cell.results[2]["image/png"]), ("<b>", "eA=="))

    def test_output_is_complete_before_the_cell_is_done(self):
        cell = self.run_ok(
            "console.log('é'); console.error('x'.repeat(300000)); "
            "require('child_process').execSync('echo child', { stdio: 'inherit' }); 5"
        )
        self.assertEqual((cell.stdout, len(cell.stderr), cell.text), ("é\nchild\n", 300001, "5"))

    def test_top_level_await_works_and_timers_run_between_cells(self):
        self.assertEqual(self.run_ok("const x = await new Promise((r) => setTimeout(r, 10, 7)); x").text, "7")
        self.run_ok("let ticks = 0; const timer = setInterval(() => ticks++, 1)")
        self.wait_until(lambda: int(self.run_ok("ticks").text) > 5)
        self.run_ok("clearInterval(timer)")

    def test_imports_work_in_both_forms(self):
        folder = self.temporary_folder()
        with open(f"{folder}/beside.mjs", "w") as module:
            module.write("export const a = 1, b = 2; export default 'd'")
        context = self.node_context(cwd=folder)
        for code, text in (
            ("import d, { a as c, b } from './beside.mjs'\n[d, c, b]", "[ 'd', 1, 2 ]"),
            ("import * as all from './beside.mjs'; import 'fs'; all.a", "1"),
            ('import d2, * as all2 from "./beside.mjs"\n;[d2, all2.b]', "[ 'd', 2 ]"),
            ("import {\n  a,\n  b as z,\n} from './beside.mjs';\na + z", "3"),
            ("(await import('./beside.mjs')).default", "'d'"),
            ("'import x from \"y\"' // import('z')", "'import x from \"y\"'"),
            ("const text = `import(${1 + 1})`; text", "'import(2)'"),
            ("const o = { import: (x) => x }; o.import(5)", "5"),
            ("require('path').basename(__dirname) === require('path').basename(process.cwd())", "true"),
        ):
            with self.subTest(code):
                cell = context.cell(code)
                self.assertEqual((cell.status, cell.text), ("ok", text), cell.error)
        error = context.cell("import {\n  a,\n} from './beside.mjs';\nnull.x", number=7).error
        self.assertIn("[cell-7]:4:", error["text"])

    def test_an_error_has_only_the_users_frames(self):
        self.run_ok("function f(x) {\n  return x.y.z;\n}")
        cell = self.context.cell("\nf({})", number=2)
        self.assertEqual((cell.status, cell.error["name"]), ("error", "TypeError"))
        self.assertIn("reading 'z'", cell.error["value"])
        frames = [line for line in cell.error["text"].splitlines() if line.startswith("    at ")]
        self.assertEqual(frames, ["    at f ([cell-1]:2:14)", "    at [cell-2]:2:1"])

    def test_a_syntax_error_is_shown_where_it_is(self):
        cell = self.context.cell("let q = 1;\nlet r = = 2;")
        self.assertEqual(cell.error["name"], "SyntaxError")
        self.assertTrue(cell.error["text"].startswith("[cell-1]:2\nlet r = = 2;\n        ^\n"), cell.error["text"])
        self.assertIn("at JSON.parse", self.context.cell("JSON.parse('{')").error["text"])

    def test_anything_may_be_thrown(self):
        for code, value in (
            ("throw 5", "5"),
            ("throw { a: 1 }", "{ a: 1 }"),
            ("throw undefined", "undefined"),
            ("throw null", "null"),
        ):
            with self.subTest(code):
                cell = self.context.cell(code)
                self.assertEqual((cell.status, cell.error["name"], cell.error["value"]), ("error", "Uncaught", value))
        cell = self.context.cell("throw Object.defineProperty(new Error, 'message', { get() { throw 1 } })")
        self.assertEqual(cell.status, "error")
        cell = self.context.cell("throw Object.defineProperty(new SyntaxError, 'stack', { get() { throw 1 } })")
        self.assertEqual(cell.status, "error")
        self.assertEqual(
            self.context.cell("({ [Symbol.for('nodejs.util.inspect.custom')]() { throw new Error('no') } })").error[
                "value"
            ],
            "no",
        )

    def test_exit_ends_the_cell_and_not_the_context(self):
        self.run_ok("let kept = 5")
        cell = self.context.cell("process.exit(3)")
        self.assertEqual((cell.status, cell.error["name"]), ("error", "ProcessExit"))
        self.assertEqual(self.run_ok("kept").text, "5")

    def test_a_failure_between_cells_goes_to_stderr(self):
        self.context.cell("setTimeout(() => { throw new Error('late') }, 1); Promise.reject(new Error('refused')); 0")
        self.wait_until(
            lambda: self.context.drain() or b"late" in self.context.stderr and b"refused" in self.context.stderr
        )
        self.assertEqual(self.run_ok("1").text, "1")

    def test_interrupts(self):
        for code in (
            "console.log('begun'); while (true) {}",
            "function f() { console.log('begun'); for (;;) {} }; f()",
            # Sent by a timer, so that it arrives while the cell waits.
            "setTimeout(() => console.log('begun'), 5); await new Promise(() => {})",
        ):
            with self.subTest(code):
                self.context.begin_cell(code)
                self.wait_until(lambda: self.context.drain() or self.context.stdout)
                self.context.interrupt()
                self.assertEqual(self.context.end_cell().status, "interrupted")
                self.assertEqual(self.run_ok("1 + 1").text, "2")

    def test_an_interrupt_within_a_write_leaves_the_stream_usable(self):
        wait = "require('fs').writeSync(2, 'begun'); for (;;) {}"
        for place in (wait, f"write.apply(this, args); {wait}"):
            with self.subTest(place):
                self.context.begin_cell(f"""
                    handle = process.stdout._handle; write = handle.writeUtf8String;
                    handle.writeUtf8String = function (...args) {{ delete handle.writeUtf8String; {place} }};
                    console.log('cut'); 0""")
                self.wait_until(lambda: self.context.drain() or self.context.stderr)
                self.context.interrupt()
                self.assertEqual(self.context.end_cell().status, "interrupted")
                cell = self.run_ok("console.log('whole'); 7")
                self.assertEqual((cell.stdout, cell.text), ("whole\n", "7"))

    def test_a_late_interrupt_never_stops_the_next_cell(self):
        self.run_ok("let kept = 5; const spin = (rounds) => { for (let i = 0; i < rounds; i++); }")
        chance = random.Random(0)
        interrupted = 0
        for number in range(0, 600, 2):
            self.context.begin_cell(f"spin({chance.randrange(1_000_000)})", number)
            time.sleep(chance.random() / 1000)
            cell = self.context.interrupt_until_done(number)
            self.assertEqual(cell.number, number)
            interrupted += cell.status == "interrupted"
            next_cell = self.context.cell("spin(10_000); kept", number + 1)
            self.assertEqual((next_cell.number, next_cell.status, next_cell.text), (number + 1, "ok", "5"))
        # Some cells were stopped and some were not, so the interrupts came around the end.
        self.assertTrue(10 < interrupted < 290, interrupted)

    def test_a_signal_that_is_on_its_way_when_the_cell_ends_stops_that_cell(self):
        self.context.begin_cell("require('fs').writeSync(1, 'begun'); let end = Date.now() + 50; while (Date.now() < end);")
        self.wait_until(lambda: self.context.drain() or self.context.stdout)
        self.assertTrue(self.context.take_permit())
        time.sleep(0.3)
        os.kill(self.context.pid, signal.SIGINT)
        self.assertEqual(self.context.end_cell().status, "interrupted")
        self.assertEqual(self.run_ok("1 + 1").text, "2")

    def test_a_cell_that_handles_the_signal_itself_ends_nevertheless(self):
        for code in (
            "process.on('SIGINT', () => {}); console.log('begun'); const end = Date.now() + 100; while (Date.now() < end);",
            "console.log('begun'); try { new (require('vm').Script)('for (;;);').runInThisContext({ breakOnSigint: true }) "
            "} catch {}",
        ):
            with self.subTest(code):
                self.context.begin_cell(code)
                self.wait_until(lambda: self.context.drain() or self.context.stdout)
                self.context.interrupt()
                self.context.end_cell()
                self.assertEqual(self.run_ok("1 + 1").text, "2")

    def test_an_interrupt_of_another_cell_is_ignored(self):
        wait = "await new Promise((resolve) => setTimeout(resolve, 50, 5))"
        for number in (1, 3):
            self.context.begin_cell(wait, 2)
            self.context.send({"interrupt": number})
            cell = self.context.end_cell()
            self.assertEqual((cell.status, cell.text), ("ok", "5"))

    def test_an_interrupt_is_not_lost_when_it_comes_before_the_cell_begins(self):
        for code in ("await new Promise(() => {})", "for (;;);"):
            self.context.begin_cell(code)
            self.assertEqual(self.context.interrupt_until_done().status, "interrupted")

    def test_a_signal_between_cells_is_ignored(self):
        self.run_ok("let kept = 5")
        os.kill(self.context.pid, signal.SIGINT)
        # A signal that arrives after the next cell has begun interrupts that cell.
        self.assertIn(self.context.cell("await new Promise((r) => setTimeout(r, 50))").status, ("ok", "interrupted"))
        self.assertEqual(self.run_ok("kept").text, "5")

    def test_a_result_that_is_too_large_is_replaced_by_a_note(self):
        for code in ("'x'.repeat(9 << 20)", "[0, '\\u0000'.repeat(3 << 20)]"):
            text = self.run_ok(code).text
            self.assertLess(len(text), 100_000)
            self.assertTrue(text.endswith(" bytes; a result may have 8387584 bytes]"), text[-200:])
        self.assertEqual(len(self.run_ok("'x'.repeat(8 << 19)").text), (8 << 19) + 2)

    def test_a_lone_surrogate_breaks_no_line(self):
        error = self.context.cell("throw new Error('\\ud800x')").error
        self.assertEqual(error["value"], "\ufffdx")

    def test_children_inherit_neither_the_control_socket_nor_the_permit(self):
        cell = self.context.cell(
            "require('child_process').execSync('ls -l /proc/self/fd | grep -v \" [012] \"').toString()"
        )
        self.assertNotIn("socket:", cell.text)
        self.assertNotIn("eventfd", cell.text)

    def test_cells_sent_early_wait_for_their_turn(self):
        for number in (1, 2, 3):
            self.context.send({"cell": number, "code": f"await new Promise((r) => setTimeout(r, 20, {number} * 10))"})
        self.assertEqual([self.context.end_cell().text for _ in range(3)], ["10", "20", "30"])

    def test_a_context_ends_when_the_agent_closes_the_socket(self):
        self.run_ok("setInterval(() => {}, 1000); 0")
        self.context.control.close()
        self.assertEqual(self.context.wait(), 0)


if __name__ == "__main__":
    unittest.main()
