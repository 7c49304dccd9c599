// Commands: output, exit codes, timeouts.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, CommandError, NetworkError, SandboxTimeout } from "@pandastack/sdk";
import { shared } from "./support/harness.mjs";

const sandbox = shared();

test("stdout, stderr and exit code come apart", async () => {
  const result = await sandbox().exec("echo out; echo err >&2; exit 3");
  assert.deepEqual([result.stdout, result.stderr, result.exit_code, result.exitCode], ["out\n", "err\n", 3, 3]);
  assert.ok(Number.isInteger(result.duration_ms));
});

test("commands.run is exec", async () => {
  assert.equal((await sandbox().commands.run("echo hello")).stdout, "hello\n");
});

test("check rejects with the whole result", async () => {
  await assert.rejects(sandbox().exec("echo partial; echo why >&2; exit 9", { check: true }), (error) => {
    assert.ok(error instanceof CommandError);
    assert.deepEqual([error.exitCode, error.stdout, error.stderr], [9, "partial\n", "why\n"]);
    return true;
  });
});

test("text in any script comes back as it was", async () => {
  const text = "zoë ☃ 日本語 😀 \u0085\u2028 end";
  assert.equal((await sandbox().exec(`printf %s '${text}'`)).stdout, text);
});

test("five mebibytes of output come back whole", async () => {
  const result = await sandbox().exec("seq 1 2000000 | head -c 5242880");
  assert.equal(result.stdout.length, 5242880);
});

test("a deadline ends the command in time", async () => {
  const started = Date.now();
  await assert.rejects(sandbox().exec("sleep 60", { timeoutSeconds: 1 }), SandboxTimeout);
  assert.ok(Date.now() - started < 10_000);
});

test("many commands run at once", async () => {
  const started = Date.now();
  const results = await Promise.all([1, 2, 3, 4, 5, 6].map((n) => sandbox().exec(`sleep 2; echo ${n}`)));
  assert.deepEqual(results.map((result) => result.stdout), ["1\n", "2\n", "3\n", "4\n", "5\n", "6\n"]);
  assert.ok(Date.now() - started < 10_000, "they ran one after another");
});

test("a client that gives up does the sandbox no harm", async () => {
  const hasty = await new Client({ timeoutMs: 1000 }).sandboxes.get(sandbox().id);
  await assert.rejects(hasty.exec("sleep 5"), NetworkError);
  assert.equal((await sandbox().exec("echo still here")).stdout, "still here\n");
});

test("runCode runs shell by default and Python when asked", async () => {
  assert.equal((await sandbox().runCode("echo $((6 * 7))")).stdout, "42\n");
  const python = await sandbox().runCode("s = 'it\\'s \"zoë\" $HOME 😀'\nif s:\n    print(s)", "python");
  assert.equal(python.stdout, "it's \"zoë\" $HOME 😀\n");
});

test("runCode reports an exception on stderr with exit code 1", async () => {
  const result = await sandbox().runCode("raise ValueError('why')", "python");
  assert.equal(result.exitCode, 1);
  assert.match(result.stderr, /ValueError: why/);
});
