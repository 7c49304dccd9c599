import assert from "node:assert/strict";
import { test } from "node:test";
import { Sandbox as Interpreter } from "older-code-interpreter";
import { Sandbox } from "older-e2b";
import { make } from "./support/harness.mjs";

test("the oldest client that can be pointed elsewhere, which forgets to say whose files it means", async () => {
  const sandbox = await make(Sandbox, { timeoutMs: 120_000 });
  assert.equal((await sandbox.commands.run("id -un")).stdout, "user\n");
  await sandbox.files.write("a/b.txt", "text");
  assert.equal(await sandbox.files.read("/home/user/a/b.txt"), "text");
  const again = await Sandbox.connect(sandbox.sandboxId);
  assert.deepEqual((await again.files.list("a")).map((entry) => entry.name), ["b.txt"]);
});

test("the oldest interpreter", async () => {
  const sandbox = await make(Interpreter, { timeoutMs: 120_000 });
  await sandbox.runCode("x = 20");
  assert.equal((await sandbox.runCode("x + 1")).text, "21");
  const context = await sandbox.createCodeContext({ cwd: "/tmp" });
  assert.equal((await sandbox.runCode("import os; os.getcwd()", { context })).text, "/tmp");
});
