// E2B's command line.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, test } from "node:test";

import { Sandbox } from "e2b";

import { make, until } from "./support/harness.mjs";

const manifest = createRequire(import.meta.url).resolve("@e2b/cli/package.json");
const program = path.join(path.dirname(manifest), "dist/index.js");

/** Runs the command line, and returns its output and its exit code. */
function e2b(words, { input = "", ...options } = {}) {
  return new Promise((resolve) => {
    const child = execFile(process.execPath, [program, ...words], options, (error, stdout, stderr) =>
      resolve({ stdout, stderr, code: error?.code ?? 0 }),
    );
    child.stdin.end(input);
  });
}

/** What a command prints as JSON, behind an empty line. */
async function json(...words) {
  const { stdout, stderr, code } = await e2b([...words, "--format", "json"]);
  assert.equal(code, 0, stdout + stderr);
  return JSON.parse(stdout.slice(stdout.search(/[[{]/)));
}

test("the command line creates, lists, pauses, resumes and kills", async () => {
  const created = await e2b(["sandbox", "create", "base", "--detach", "--timeout", "300"]);
  const [id] = (created.stdout + created.stderr).match(/[0-9a-f]{32}/) ?? assert.fail(created.stdout + created.stderr);
  after(() => Sandbox.kill(id));
  const ids = async (...more) => (await json("sandbox", "list", ...more)).map((sandbox) => sandbox.sandboxId);
  assert.ok((await ids()).includes(id));
  const info = await json("sandbox", "info", id);
  assert.deepEqual([info.sandboxId, info.state, info.templateId], [id, "running", "base"]);
  assert.equal((await json("sandbox", "metrics", id)).cpuCount, 1);

  assert.equal((await e2b(["sandbox", "pause", id])).code, 0);
  assert.ok((await ids("--state", "paused")).includes(id));
  assert.equal((await e2b(["sandbox", "resume", id])).code, 0);
  assert.match((await e2b(["sandbox", "kill", id])).stdout, /has been killed/);
  const again = await e2b(["sandbox", "kill", id]);
  assert.match(again.stdout + again.stderr, /wasn't found/);
});

test("the command line runs commands and shows logs", async () => {
  const sandbox = await make(Sandbox, "base", { timeoutMs: 300_000 });
  const exec = (...words) => e2b(["sandbox", "exec", ...words]);
  assert.equal((await exec(sandbox.sandboxId, "echo $((6 * 7))")).stdout, "42\n");
  assert.equal((await exec(sandbox.sandboxId, "exit 3")).code, 3);
  assert.equal((await e2b(["sandbox", "exec", sandbox.sandboxId, "cat"], { input: "given" })).stdout, "given");
  assert.equal((await exec("--user", "root", "--cwd", "/tmp", sandbox.sandboxId, "whoami; pwd")).stdout, "root\n/tmp\n");
  await sandbox.commands.run("echo said >/dev/console", { user: "root" });
  const logs = async () => (await e2b(["sandbox", "logs", sandbox.sandboxId])).stdout;
  await until("the line", async () => (await logs()).includes("said"));
});

test("the command line makes snapshots and templates", async () => {
  const sandbox = await make(Sandbox, "base", { timeoutMs: 300_000 });
  const snapshot = ["sandbox", "snapshot"];
  const made = await e2b([...snapshot, "create", sandbox.sandboxId, "--name", "from-the-cli"]);
  assert.match(made.stdout + made.stderr, /Created snapshot from-the-cli/);
  assert.match((await e2b([...snapshot, "list"])).stdout, /from-the-cli/);
  assert.equal((await e2b([...snapshot, "delete", "from-the-cli:default"])).code, 0);

  const directory = await mkdtemp(path.join(tmpdir(), "cli."));
  after(() => rm(directory, { recursive: true }));
  await writeFile(path.join(directory, "e2b.Dockerfile"), "FROM e2bdev/base:latest\nRUN echo built >/etc/built\n");
  const built = await e2b(["template", "create", "made-by-cli"], { cwd: directory });
  assert.equal(built.code, 0, built.stdout + built.stderr);
  const child = await make(Sandbox, "made-by-cli", { timeoutMs: 300_000 });
  assert.equal(await child.files.read("/etc/built"), "built\n");
  assert.ok((await json("template", "list")).some((template) => template.aliases.includes("made-by-cli")));
  // A template belongs to its workspace.
  const published = await e2b(["template", "publish", "made-by-cli", "--yes"]);
  assert.ok(published.code !== 0 && /workspace/.test(published.stdout + published.stderr), published.stderr);
  assert.equal((await e2b(["template", "delete", "made-by-cli", "--yes"])).code, 0);
});
