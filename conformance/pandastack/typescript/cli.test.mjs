// PandaStack's own command line, as it comes with the package.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { test } from "node:test";
import { promisify } from "node:util";

const program = fileURLToPath(new URL("./node_modules/.bin/pandastack", import.meta.url));
const execute = (...argv) => promisify(execFile)(program, argv);
const run = async (...argv) => JSON.parse((await execute(...argv)).stdout);

test("a sandbox can be made, used and deleted from the shell", async (t) => {
  const made = await run("sandbox", "create", "--template", "base", "--ttl", "600", "--metadata", "from=cli");
  t.after(() => execute("sandbox", "delete", made.id));
  assert.equal(made.metadata.from, "cli");
  assert.ok((await run("sandbox", "list")).some((listed) => listed.id === made.id));
  assert.equal((await run("sandbox", "lifecycle", made.id)).ttl_seconds, 600);
  assert.equal((await execute("sandbox", "exec", made.id, "--", "echo", "zoë")).stdout, "zoë\n");
  await assert.rejects(execute("sandbox", "exec", made.id, "--", "exit 3"), { code: 3 });
  await run("fs", "write", made.id, "--path", "/tmp/f", "--content", "from the shell");
  assert.equal((await execute("fs", "read", made.id, "--path", "/tmp/f")).stdout, "from the shell");
});

test("me and templates answer", async () => {
  assert.ok(Object.keys(await run("me")).length > 0);
  assert.ok((await run("template", "list")).some((template) => template.name === "base"));
});
