"""Clones do not repeat each other's randomness. Processes in the same state stand for clones of one machine."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from support import ENVIRONMENT, FOLDER, NODE, PYTHON, InterpreterTest

DRAW = "[random.random(), random.getrandbits(64)]"
ENTROPY = "ab" * 32


class PythonReseedTest(InterpreterTest):
    def test_spares_of_one_zygote_draw_different_numbers(self):
        zygote = self.zygote()
        for told in ([], [{"reseed": ENTROPY}]):
            drawn = set()
            for entropy in (None, ENTROPY, ENTROPY):
                for message in told:
                    zygote.send(message)
                spare = self.opened(zygote.fork())
                spare.run_script("import random, uuid; print(random.random())", entropy=entropy)
                drawn.add(spare.stdout)
            self.assertEqual(len(drawn), 3)

    def test_a_reseeded_context_draws_other_numbers(self):
        contexts = [self.python_context() for _ in range(2)]
        for context in contexts:
            context.cell("import random, tempfile, uuid\nrandom.seed(5)\ntempfile._get_candidate_names()")
        self.assertEqual(*[context.cell(DRAW).text for context in contexts])
        for context in contexts:
            context.send({"reseed": ENTROPY})
        self.assertNotEqual(*[context.cell(DRAW).text for context in contexts])
        self.assertEqual(contexts[0].cell("tempfile._name_sequence is None").text, "True")

    def test_a_reseeded_context_asks_for_its_host_name_again(self):
        context = self.python_context()
        context.cell("import platform\nplatform.uname()\nplatform._uname_cache = platform._uname_cache._replace(node='before')")
        self.assertEqual(context.cell("platform.node()").text, "'before'")
        context.send({"reseed": ENTROPY})
        self.assertEqual(context.cell("platform.node() == platform.os.uname().nodename").text, "True")

    def test_a_running_cell_is_reseeded_at_once(self):
        context = self.python_context()
        for loop in ("pass", "time.sleep(0.01)"):
            with self.subTest(loop):
                context.begin_cell(
                    "import random, time\nrandom.seed(5)\nstate = random.getstate()\nprint('begun')\n"
                    f"while random.getstate() == state: {loop}\n'left'"
                )
                self.wait_until(lambda: context.drain() or context.stdout)
                context.send({"reseed": ENTROPY})
                self.assertEqual(context.end_cell().text, "'left'")

    def test_many_reseeds_do_not_disturb_a_cell(self):
        context = self.python_context()
        context.cell("import random")
        for number in range(100):
            context.send({"reseed": ENTROPY})
            context.begin_cell("sum(random.random() < 1 for _ in range(2000))", number)
            for _ in range(5):
                context.send({"reseed": ENTROPY})
            cell = context.end_cell()
            self.assertEqual((cell.number, cell.text), (number, "2000"))

    def test_generators_of_one_kind_draw_different_numbers(self):
        # numpy's legacy generator is the same as `random`'s, so the same seed gives the same numbers.
        code = """
from types import SimpleNamespace
import _thread, python_reseed
given = []
bits = SimpleNamespace(lock=_thread.allocate_lock())
fake = SimpleNamespace(mtrand=SimpleNamespace(_rand=SimpleNamespace(_bit_generator=bits)), seed=given.append)
seed = bytes(range(64))
python_reseed._reseed_numpy(fake, seed)
number = int.from_bytes(seed, "little")
print(given[0] == [number >> 32 * at & 0xFFFFFFFF for at in range(16)])
"""
        ran = subprocess.run([PYTHON, "-c", code], cwd=FOLDER, capture_output=True, text=True, check=True)
        self.assertEqual(ran.stdout, "False\n")

    def test_a_reseed_imports_nothing(self):
        context = self.python_context()
        before = context.cell("import sys; before = set(sys.modules)")
        self.assertEqual(before.status, "ok")
        context.send({"reseed": ENTROPY})
        self.assertEqual(context.cell("set(sys.modules) - before").text, "set()")

    def test_a_users_module_of_the_same_name_is_ignored(self):
        context = self.python_context()
        context.cell("import sys, types\nsys.modules['random'] = sys.modules['uuid'] = types.ModuleType('random')")
        context.send({"reseed": ENTROPY})
        self.assertEqual(context.cell("1").text, "1")

    def test_openssl_is_reseeded(self):
        context = self.python_context()
        context.cell("import _ssl\ntold = []\n_ssl.RAND_add = lambda data, entropy: told.append(data)")
        context.send({"reseed": ENTROPY})
        self.assertIn(repr(bytes.fromhex(ENTROPY))[2:-1], context.cell("told[0]").text)

    def test_openssl_of_a_clone_draws_other_numbers(self):
        # As in clone.rs: a child that OpenSSL cannot tell from its parent.
        code = (
            """
import ctypes, os, ssl, sys
sys.path.insert(0, %r)
from python_reseed import reseed
ssl.RAND_bytes(8)
r, w = os.pipe()
child = ctypes.CDLL(None).fork() == 0
if sys.argv[1] == 'reseed': reseed(bytes(32))
drawn = ssl.RAND_bytes(8).hex()
if child: os.write(w, drawn.encode()); os._exit(0)
print(drawn, os.read(r, 100).decode())
"""
            % FOLDER
        )
        library = compiled(self, "tests/clone.rs")
        environment = {**ENVIRONMENT, "LD_PRELOAD": library}
        drawn = {}
        for word in ("repeat", "reseed"):
            done = subprocess.run(
                [PYTHON, "-c", code, word], env=environment, capture_output=True, text=True, timeout=60
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            drawn[word] = done.stdout.split()
        self.assertEqual(*drawn["repeat"], "the clone is none: this test shows nothing")
        self.assertNotEqual(*drawn["reseed"])

    def test_numpy_draws_other_numbers(self):
        contexts = [self.python_context() for _ in range(2)]
        for context in contexts:
            if context.cell("import numpy\nnumpy.random.seed(5)").status != "ok":
                self.skipTest("NOT TESTED: there is no numpy on this machine")
        self.assertEqual(*[context.cell("numpy.random.rand(3)").text for context in contexts])
        for context in contexts:
            context.send({"reseed": ENTROPY})
        self.assertNotEqual(*[context.cell("numpy.random.rand(3)").text for context in contexts])

    def test_a_reseed_during_a_draw_of_numpy_does_not_deadlock(self):
        context = self.python_context()
        code = """
import numpy, time
numpy.random.seed(5)
class Slow(list):
    def __getitem__(self, place):
        print('begun')
        time.sleep(0.1)
        return super().__getitem__(place)
numpy.random.shuffle(Slow([1, 2, 3]))
time.sleep(0.1)
numpy.random.rand()
"""
        if context.cell("import numpy").status != "ok":
            self.skipTest("NOT TESTED: there is no numpy on this machine")
        context.begin_cell(code)
        self.wait_until(lambda: context.drain() or context.stdout)
        context.send({"reseed": ENTROPY})
        self.assertEqual(context.end_cell().status, "ok")


def compiled(test, source, *options):
    """Compiles a library with the command at the top of node_reseed.rs, or skips the test."""
    if shutil.which("rustc") is None:
        test.skipTest("NOT TESTED: there is no rustc on this machine")
    target = tempfile.mkdtemp(prefix="sandling-test-")
    test.addCleanup(shutil.rmtree, target)
    with open(os.path.join(FOLDER, "node_reseed.rs")) as text:
        command = re.search(r"^//! (rustc .*)\\\n//! (.*)$", text.read(), re.MULTILINE)
    words = (command[1] + command[2]).split()
    output = os.path.join(target, "library.node")
    words[words.index("-o") + 1] = output
    words[-1] = os.path.join(FOLDER, source)
    subprocess.run([*words, *options], check=True)
    return output


class NodeReseedTest(InterpreterTest):
    def folder_with_addon(self):
        """The files as they are installed."""
        if NODE is None:
            self.skipTest("NOT TESTED: there is no node on this machine")
        folder = self.temporary_folder()
        for name in os.listdir(FOLDER):
            if name.endswith(".js"):
                shutil.copy(os.path.join(FOLDER, name), folder)
        shutil.copy(compiled(self, "node_reseed.rs"), os.path.join(folder, "node_reseed.node"))
        return folder

    def test_openssl_and_the_caches_of_a_clone_draw_other_numbers(self):
        folder = self.folder_with_addon()
        library = compiled(self, "tests/clone.rs", "--cfg", "node")
        code = """
const crypto = require('crypto'), fs = require('fs');
const { reseed, dropCaches } = require('%s/node_reseed.js');
const { fork } = require('%s');
const draw = () => [crypto.randomBytes(8).toString('hex'), crypto.randomUUID(), crypto.randomInt(2 ** 40),
  Math.random(), crypto.getRandomValues(new Uint8Array(8)).join()];
draw();
const child = fork() === 0;
if (process.argv[1] === 'reseed') { reseed(''); dropCaches(); }
fs.writeSync(1, JSON.stringify(draw()) + '\\n');
if (child) process.kill(Number(fs.readlinkSync('/proc/self')), 'SIGKILL');
""" % (folder, library)
        environment = {**ENVIRONMENT, "LD_PRELOAD": library}
        drawn = {}
        for word in ("repeat", "reseed"):
            done = subprocess.run([NODE, "-e", code, word], env=environment, capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            drawn[word] = [json.loads(line) for line in done.stdout.splitlines()]
            self.assertEqual(len(drawn[word]), 2, done.stderr)
        self.assertEqual(*drawn["repeat"], "the clone is none: this test shows nothing")
        for one, other in zip(*drawn["reseed"]):
            self.assertNotEqual(one, other)

    def test_the_spare_reports_whether_openssl_is_reseeded(self):
        self.assertTrue(self.node(self.folder_with_addon()).ready["openssl_reseed"])
        self.assertFalse(self.node().ready["openssl_reseed"])

    def test_without_the_addon_crypto_reads_from_the_kernel(self):
        code = """
const crypto = require('crypto'), assert = require('assert'), { promisify } = require('util');
assert.strictEqual(crypto.randomBytes(33).length, 33);
assert.match(crypto.randomUUID(), /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
assert.notStrictEqual(crypto.randomUUID(), crypto.webcrypto.randomUUID());
const drawn = new Set(Array.from({ length: 500 }, () => crypto.randomInt(3, 6)));
assert.deepStrictEqual([...drawn].sort(), [3, 4, 5]);
assert.throws(() => crypto.randomInt(5, 5), RangeError);
assert.throws(() => crypto.randomBytes(-1), RangeError);
const some = crypto.randomFillSync(Buffer.alloc(20), 10);
assert(some.subarray(0, 10).every((x) => x === 0) && some.subarray(10).some((x) => x !== 0));
assert(crypto.webcrypto.getRandomValues(new Uint32Array(9)).some((x) => x > 0xffff));
assert.throws(() => crypto.randomFillSync(Buffer.alloc(4), 2, 4), RangeError);
(async () => {
  assert.strictEqual((await promisify(crypto.randomBytes)(5)).length, 5);
  assert.strictEqual((await promisify(crypto.randomFill)(new Uint16Array(5))).length, 5);
  assert((await promisify(crypto.randomInt)(9)) < 9);
  console.log('done');
})();
"""
        spare = self.node()
        self.assertEqual((spare.run_script(code), spare.stdout), (0, b"done\n"), spare.stderr)

    def test_math_random_is_uniform_and_never_the_same_twice(self):
        code = """
const boxes = new Array(16).fill(0), seen = new Set();
for (let i = 0; i < 160000; i++) { const x = Math.random(); seen.add(x); boxes[Math.floor(x * 16)]++; }
console.log(seen.size, Math.min(...boxes) > 9500, Math.max(...boxes) < 10500);
"""
        outputs = []
        for _ in range(2):
            spare = self.node()
            spare.send({"reseed": ENTROPY})
            spare.run_script(code + "console.log(Math.random())", entropy=ENTROPY)
            outputs.append(spare.stdout.decode().split("\n"))
        self.assertEqual(outputs[0][0], "160000 true true")
        self.assertNotEqual(outputs[0][1], outputs[1][1])

    def test_a_context_handles_a_reseed(self):
        context = self.node_context(self.folder_with_addon())
        context.send({"reseed": ENTROPY})
        self.assertEqual(context.cell("Math.random() < 1").text, "true")


if __name__ == "__main__":
    unittest.main()
