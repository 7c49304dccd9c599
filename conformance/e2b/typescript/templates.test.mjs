import assert from "node:assert/strict";
import { test } from "node:test";
import { Sandbox, Template } from "e2b";
import { make } from "./support/harness.mjs";

test("a template is built from steps, found, tagged and removed", async () => {
  const lines = [];
  const template = Template().fromBaseImage().setEnvs({ MODE: "built" }).runCmd("echo said; id -un >who");
  await Template.build(template, "conformance-js", { tags: ["default", "v1"], onBuildLogs: (entry) => lines.push(entry.message) });
  assert.ok(lines.some((line) => line.includes("said")));
  assert.equal(await Template.exists("conformance-js"), true);
  assert.deepEqual((await Template.getTags("conformance-js")).map((tag) => tag.tag).sort(), ["default", "v1"]);
  const sandbox = await make(Sandbox, "conformance-js:v1", { timeoutMs: 120_000 });
  assert.equal((await sandbox.commands.run("cat who; echo $MODE")).stdout, "user\nbuilt\n");
  await Template.removeTags("conformance-js", ["v1"]);
  assert.equal(await Sandbox.deleteSnapshot("conformance-js"), true);
  assert.equal(await Template.exists("conformance-js"), false);
});
