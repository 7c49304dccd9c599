import json
import os
import signal
import subprocess
import unittest

from support import ENVIRONMENT, NODE, InterpreterTest, reference

# Code whose output and exit status must be those of `node -e`.
AS_NODE_ITSELF = {
    "prints": "console.log(1 + 1); console.error('é')",
    "exits with a number": "process.exit(3)",
    "exits later with a number": "process.exitCode = 4; setTimeout(() => console.log('late'), 10)",
    "throws": "throw new Error('x')",
    "throws later": "setTimeout(() => { throw new Error('x') }, 1)",
    "rejects": "Promise.reject(new Error('x'))",
    "is no JavaScript": "let x = ;",
    "exit handlers": "process.on('exit', (code) => console.log('exit', code)); "
    "process.on('beforeExit', () => console.log('before'))",
    "requires": "console.log(require('path').sep, typeof require('fs').readFileSync, typeof module, typeof exports)",
    "reads stdin": "process.stdin.on('data', (d) => console.log(String(d))).on('end', () => console.log('end'))",
    "reads stdin at once": "console.log(require('fs').readFileSync(0, 'utf8'))",
    "children": "console.log(require('child_process').execSync('cat; echo $0').toString())",
    "dies by a signal": "process.kill(process.pid, 'SIGTERM'); setTimeout(() => {}, 5000)",
    "worker": "const { Worker } = require('worker_threads');\n"
    "new Worker('require(\"worker_threads\").parentPort.postMessage(5)', { eval: true }).on('message', console.log)",
    "dynamic import": "import('fs').then((fs) => console.log(typeof fs.readFileSync))",
    "names": "console.log(process.title, process.argv0, Object.keys(globalThis).includes('sandling'))",
    "much output": "for (let i = 0; i < 20000; i++) console.log('line', i)",
    "fetch": "fetch('data:,x').then((r) => r.text()).then(console.log)",
    "interrupt handlers": "console.log(process.listenerCount('SIGINT'), process.listenerCount('uncaughtException'))",
}


class ScriptTest(InterpreterTest):
    def test_scripts_behave_as_in_plain_node(self):
        for name, code in AS_NODE_ITSELF.items():
            with self.subTest(name):
                spare = self.node()
                stdin = b"one\ntwo\xc3\xa9\n"
                status = spare.run_script(code, stdin=stdin)
                expected = reference([NODE, "-e"], code, stdin)
                self.assertEqual((status, spare.stdout), expected[:2], spare.stderr)
                self.assertEqual(bool(spare.stderr), bool(expected[2]), spare.stderr)

    def test_a_cold_interpreter_can_become_a_script_or_a_context(self):
        script = self.node(mode="cold")
        self.assertEqual((script.run_script("console.log(require('path').sep)"), script.stdout), (0, b"/\n"))
        context = self.node(mode="cold")
        self.assertEqual(context.activate("context"), {"activated": True})
        self.assertEqual(context.cell("const a = await 20; a + 1").text, "21")
        self.assertEqual(context.cell("a").text, "20")

    def test_certificate_authorities_of_the_environment_are_trusted(self):
        folder = self.temporary_folder()
        made = subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
             "-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "own.pem"],
            cwd=folder, capture_output=True,
        )  # fmt: skip
        self.assertEqual(made.returncode, 0, made.stderr)
        code = """
            const [fs, https] = [require('fs'), require('https')];
            const own = { key: fs.readFileSync('key.pem'), cert: fs.readFileSync('own.pem') };
            const server = https.createServer(own, (_, answer) => answer.end('well')).listen(0, async () => {
              const at = `https://localhost:${server.address().port}/`;
              const plain = () => new Promise((done) => https.get(at, { agent: false },
                (answer) => answer.on('data', (text) => done(String(text)))).on('error', (problem) => done(problem.code)));
              console.log(await plain());
              console.log(await fetch(at).then((answer) => answer.text(), (problem) => problem.cause.code));
              server.close();
              server.closeAllConnections();
            });
        """
        for name, expected in [("own.pem", "well\nwell\n"), (None, "DEPTH_ZERO_SELF_SIGNED_CERT\n" * 2)]:
            spare = self.node()
            extra = {"NODE_EXTRA_CA_CERTS": os.path.join(folder, name)} if name else {}
            self.assertEqual(spare.run_script(code, cwd=folder, env={**ENVIRONMENT, **extra}), 0, spare.stderr)
            self.assertEqual(spare.stdout.decode(), expected, spare.stderr)

    def test_it_is_the_main_module_of_its_folder(self):
        folder = self.temporary_folder()
        with open(os.path.join(folder, "beside.js"), "w") as module:
            module.write("module.exports = __filename")
        spare = self.node()
        code = (
            "console.log(JSON.stringify([process.argv.slice(1), __filename, require.main === module, "
            "require('./beside')]))"
        )
        self.assertEqual(spare.run_script(code, ["a", "ü"], cwd=folder), 0, spare.stderr)
        main = f"{folder}/main.js"
        self.assertEqual(spare.stdout.decode(), f'[["{main}","a","ü"],"{main}",true,"{folder}/beside.js"]\n')

    def test_an_error_has_no_lines_of_the_driver(self):
        spare = self.node()
        self.assertEqual(spare.run_script("function f() {\n  null.x;\n}\nf();"), 1)
        text = spare.stderr.decode()
        self.assertTrue(text.startswith("/main.js:2\n  null.x;\n       ^\n"), text)
        self.assertIn("at f (/main.js:2:8)\n    at Object.<anonymous> (/main.js:4:1)", text)
        self.assertNotIn("node.js", text.replace("Node.js", ""))

    def test_code_that_can_only_be_a_module_is_one(self):
        folder = self.temporary_folder()
        os.mkdir(f"{folder}/node_modules")
        os.mkdir(f"{folder}/node_modules/only-import")
        files = {
            "beside.mjs": "export const here = 'beside'",
            "node_modules/only-import/package.json": '{"exports": {"import": "./index.mjs"}}',
            "node_modules/only-import/index.mjs": "export default 'package'",
        }
        for name, text in files.items():
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        code = (
            "import fs from 'fs';\nimport { here } from './beside.mjs';\nimport only from 'only-import';\n"
            "console.log(here, only, await Promise.resolve(5), fs.readdirSync('.').length);\nexport {};"
        )
        spare = self.node()
        self.assertEqual(spare.run_script(code, cwd=folder), 0, spare.stderr)
        self.assertEqual(spare.stdout, b"beside package 5 2\n")
        self.assertEqual(sorted(os.listdir(folder)), ["beside.mjs", "node_modules"])

    def test_a_module_that_fails_leaves_no_file_and_fails(self):
        folder = self.temporary_folder()
        for code, word in (
            ("import 'fs';\nthrow new Error('x')", "Error: x"),
            ("import './nothing.mjs'", "nothing.mjs"),
            ("await 1; let x = ;", "SyntaxError"),
            ("import 'fs'; process.exit(1)", ""),
        ):
            with self.subTest(code):
                spare = self.node()
                self.assertEqual(spare.run_script(code, cwd=folder), 1)
                self.assertIn(word, spare.stderr.decode())
                self.assertEqual(os.listdir(folder), [])

    def test_the_word_import_alone_does_not_make_a_module(self):
        spare = self.node()
        spare.run_script("console.log(typeof require, 'import x from y', /* await */ this === module.exports)")
        self.assertEqual(spare.stdout, b"function import x from y true\n")

    def test_environment_and_folder_are_set(self):
        environment = {**ENVIRONMENT, "A": "ä=1", "TZ": "Asia/Kathmandu"}
        spare = self.node()
        code = "console.log(JSON.stringify([{ ...process.env }, process.cwd(), new Date(0).getTimezoneOffset()]))"
        spare.run_script(code, env=environment, cwd="/usr")
        self.assertEqual(json.loads(spare.stdout), [environment, "/usr", -330])

    @unittest.skipUnless(os.getuid() == 0, "NOT TESTED: needs root")
    def test_it_becomes_another_user(self):
        spare = self.node()
        code = "console.log(process.getuid(), process.geteuid(), process.getgid(), process.getgroups().sort())"
        spare.run_script(code, uid=65534, gid=65533, groups=[65533, 100])
        self.assertEqual(spare.stdout, b"65534 65534 65533 [ 100, 65533 ]\n")

    def test_a_missing_folder_is_refused(self):
        spare = self.node()
        answer = spare.activate("script", code="", args=[], cwd="/nonexistent")
        self.assertIn("/nonexistent", answer["failed"])
        self.assertEqual(spare.wait(), 1)

    def test_an_interrupt_ends_it(self):
        spare = self.node()
        spare.activate("script", code="console.log('x'); setInterval(() => {}, 1000)", args=[])
        self.wait_until(lambda: spare.drain() or spare.stdout)
        os.kill(spare.pid, signal.SIGINT)
        self.assertEqual(spare.wait(), -signal.SIGINT)

    def test_it_ends_when_the_agent_closes_the_socket(self):
        spare = self.node()
        spare.control.close()
        self.assertEqual(spare.wait(), 0)


if __name__ == "__main__":
    unittest.main()
