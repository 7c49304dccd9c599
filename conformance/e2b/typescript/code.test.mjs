import assert from "node:assert/strict";
import { test } from "node:test";
import { NotFoundError, Sandbox } from "@e2b/code-interpreter";
import { shared } from "./support/harness.mjs";

const sandbox = shared(Sandbox, { timeoutMs: 600_000 });

test("variables last, results and errors are data", async () => {
  await sandbox().runCode("x = 20");
  const out = [];
  const execution = await sandbox().runCode("print('é'); x + 1", { onStdout: (message) => out.push(message.line) });
  assert.deepEqual([execution.text, execution.logs.stdout.join(""), out.join("")], ["21", "é\n", "é\n"]);
  assert.equal((await sandbox().runCode("1 / 0")).error.name, "ZeroDivisionError");
  assert.equal((await sandbox().runCode("1 + 1", { language: "javascript" })).text, "2");
  assert.equal((await sandbox().runCode("const n: number = 41\nn + 1", { language: "typescript" })).text, "42");
  assert.equal((await sandbox().runCode("import os; os.environ['A']", { envs: { A: "b" } })).text, "b");
});

test("contexts are made, listed, restarted and removed", async () => {
  const context = await sandbox().createCodeContext({ cwd: "/tmp" });
  await sandbox().runCode("y = 1", { context });
  assert.equal((await sandbox().runCode("y", { context })).text, "1");
  assert.ok((await sandbox().listCodeContexts()).some((found) => found.id === context.id));
  await sandbox().restartCodeContext(context);
  assert.equal((await sandbox().runCode("y", { context })).error.name, "NameError");
  await sandbox().removeCodeContext(context);
  await assert.rejects(sandbox().runCode("y", { context }), NotFoundError);
});

test("a chart is a picture and data", async () => {
  const code = "import matplotlib.pyplot as plt\nplt.bar(['a', 'b'], [1, 2])\nplt.show()";
  // A busy host that emulates the machine needs longer than the client's own minute.
  const { results: [{ png, chart }] } = await sandbox().runCode(code, { timeoutMs: 300_000 });
  assert.ok(Buffer.from(png, "base64").subarray(1, 4).equals(Buffer.from("PNG")));
  assert.equal(chart.type, "bar");
  assert.deepEqual(chart.elements.map((bar) => [bar.label, bar.value]), [["a", 1], ["b", 2]]);
});
