import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Sandbox, Template, waitForFile } from "e2b";
import { make, until } from "./support/harness.mjs";

test("a template is built from steps, found, tagged and removed", async () => {
  const lines = [];
  const template = Template().fromBaseImage().setEnvs({ MODE: "built" }).runCmd("echo said; id -un >who")
    .setStartCmd("touch /tmp/started; exec sleep 1000", waitForFile("/tmp/started"));
  await Template.build(template, "conformance-js", { tags: ["default", "v1"], onBuildLogs: (entry) => lines.push(entry.message) });
  assert.ok(lines.some((line) => line.includes("said")));
  assert.equal(await Template.exists("conformance-js"), true);
  assert.deepEqual((await Template.getTags("conformance-js")).map((tag) => tag.tag).sort(), ["default", "v1"]);
  const sandbox = await make(Sandbox, "conformance-js:v1", { timeoutMs: 120_000 });
  assert.equal((await sandbox.commands.run("cat who; echo $MODE; pgrep -c sleep")).stdout, "user\nbuilt\n1\n");
  await Template.removeTags("conformance-js", ["v1"]);
  assert.equal(await Sandbox.deleteSnapshot("conformance-js"), true);
  assert.equal(await Template.exists("conformance-js"), false);
});

test("a build goes on behind, takes files along and gets tags afterwards", async () => {
  const context = await mkdtemp(join(tmpdir(), "context-"));
  try {
    await writeFile(join(context, "note.txt"), "zoë");
    const template = Template({ fileContextPath: context })
      .fromTemplate("base")
      .setWorkdir("/srv")
      .setUser("root")
      .copy("note.txt", "/srv/note.txt")
      .runCmd("touch /tmp/ready")
      .setReadyCmd(waitForFile("/tmp/ready"));
    const built = await Template.buildInBackground(template, "conformance-js-behind");
    const ended = async () => {
      const { status } = await Template.getBuildStatus(built);
      return ["ready", "error"].includes(status) && status;
    };
    assert.equal(await until("its end", ended, 150), "ready");
    await Template.assignTags("conformance-js-behind", ["stable"]);
    const sandbox = await make(Sandbox, "conformance-js-behind:stable", { timeoutMs: 120_000 });
    assert.equal((await sandbox.commands.run("id -un; pwd; cat note.txt")).stdout, "root\n/srv\nzoë");
    await Template.removeTags("conformance-js-behind", ["stable"]);
    assert.equal(await Sandbox.deleteSnapshot("conformance-js-behind"), true);
  } finally {
    await rm(context, { recursive: true });
  }
});
