// Code contexts: interpreters whose variables last, and rich results.

import assert from "node:assert/strict";
import { test } from "node:test";
import { BadRequestError, NotFoundError, SandboxTimeout } from "@pandastack/sdk";
import { shared } from "./support/harness.mjs";

const sandbox = shared({ template: "code-interpreter" });

test("variables last from cell to cell, and the last value is a result", async () => {
  const context = await sandbox().createCodeContext();
  await context.runCode("x = 41");
  const cell = await context.runCode("print('zoë 😀')\nx + 1");
  assert.deepEqual([cell.stdout, cell.stderr, cell.text, cell.exit_code], ["zoë 😀\n", "", "42", 0]);
  assert.equal(cell.error, undefined);
  await context.close();
});

test("an exception is data and the context goes on", async () => {
  const context = await sandbox().createCodeContext("py");
  const cell = await context.runCode("raise ValueError('why')");
  assert.match(cell.error, /ValueError: why/);
  assert.notEqual(cell.exit_code, 0);
  assert.equal((await context.runCode("1 + 1")).text, "2");
  await context.close();
});

test("a figure is a png and a data frame is html", async () => {
  const context = await sandbox().createCodeContext();
  const figure = await context.runCode("import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()");
  assert.equal(Buffer.from(figure.png, "base64").subarray(0, 4).toString("latin1"), "\x89PNG");
  assert.ok(figure.results.some((result) => result.chart === figure.png));
  const frame = await context.runCode("import pandas as pd\npd.DataFrame({'größe': [1, 2]})");
  assert.match(frame.results[0].html, /<table/);
  assert.match(frame.results[0].text, /größe/);
  await context.close();
});

test("json, svg and markdown keep their types", async () => {
  const context = await sandbox().createCodeContext();
  const shown = async (method, value) => {
    const cell = await context.runCode(`class Shown:\n    def ${method}(self):\n        return ${value}\nShown()`);
    return cell.results[0];
  };
  assert.deepEqual((await shown("_repr_json_", "{'a': [1, None]}")).json, { a: [1, null] });
  assert.equal((await shown("_repr_svg_", "'<svg/>'")).svg, "<svg/>");
  assert.equal((await shown("_repr_markdown_", "'# zoë'")).markdown, "# zoë");
  await context.close();
});

test("a deadline ends the cell and the context goes on", async () => {
  const context = await sandbox().createCodeContext();
  await assert.rejects(context.runCode("while True:\n    pass", { timeoutSeconds: 2 }), SandboxTimeout);
  assert.equal((await context.runCode("1 + 1")).text, "2");
  await context.close();
});

test("a closed context is not found, and closing it twice is no error", async () => {
  const context = await sandbox().createCodeContext();
  await context[Symbol.asyncDispose]();
  await assert.rejects(context.runCode("1"), NotFoundError);
  await context.close();
});

test("a language that is not there is refused", async () => {
  await assert.rejects(sandbox().createCodeContext("cobol"), BadRequestError);
});
