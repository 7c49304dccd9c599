/** The local server. These start the real binary that `SANDLING_BINARY` names; the last one makes a machine. */

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, beforeEach, test } from "node:test";
import { promisify } from "node:util";

import { Client, ConfigError, ensureLocalServer, Sandbox, setDefaultClient, stopLocalServer } from "../dist/index.js";

const real = process.env.SANDLING_BINARY;
const options = { skip: real ? false : "SANDLING_BINARY names no server to start" };

const homes = [];

beforeEach(async () => {
  await stopLocalServer();
  process.env.SANDLING_HOME = mkdtempSync(join(tmpdir(), "sandling-"));
  homes.push(process.env.SANDLING_HOME);
  if (real) process.env.SANDLING_BINARY = real;
  delete process.env.SANDLING_API;
  delete process.env.SANDLING_TOKEN;
});
after(async () => {
  await stopLocalServer();
  for (const home of homes) rmSync(home, { recursive: true, force: true });
});

function isRunning(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

test("many processes at once start one server", options, async () => {
  const code = `import { Client } from ${JSON.stringify(new URL("../dist/index.js", import.meta.url).href)};
    const client = new Client();
    console.log(await client.apiUrl(), (await client.me()).scope);
    client.close();`;
  const one = () => promisify(execFile)(process.execPath, ["--input-type=module", "--eval", code]);
  const printed = await Promise.all(Array.from({ length: 4 }, one));
  assert.equal(new Set(printed.map(({ stdout }) => stdout)).size, 1);
  assert.match(printed[0].stdout, /operator/);
});

test("a server that died is replaced, and one that was stopped starts again", options, async () => {
  const before = await ensureLocalServer();
  const { pid } = JSON.parse(readFileSync(join(process.env.SANDLING_HOME, "local-server.json"), "utf8"));
  process.kill(pid, "SIGKILL");
  while (isRunning(pid)) await new Promise((resolve) => setTimeout(resolve, 10));
  const next = await ensureLocalServer();
  assert.notEqual(next.url, before.url);
  const client = new Client();
  assert.equal((await client.me()).workspace, "default");
  client.close();
  assert.equal(await stopLocalServer(), true);
  assert.equal(await stopLocalServer(), false);
});

test("a server that somebody announced is used while it holds its word", async () => {
  const directory = process.env.SANDLING_HOME;
  writeFileSync(join(directory, "token"), "sdl_secret");
  writeFileSync(join(directory, "server"), "http://127.0.0.1:4242\n");
  const holder = spawn("flock", ["-x", join(directory, "server"), "sh", "-c", "echo; exec cat"]);
  await once(holder.stdout, "data");
  assert.deepEqual(await ensureLocalServer(), { url: "http://127.0.0.1:4242", token: "sdl_secret" });
  holder.stdin.end();
  await once(holder, "exit");
  process.env.SANDLING_BINARY = "/nowhere/sandling";
  await assert.rejects(ensureLocalServer(), ConfigError);
});

test("a server that cannot start says why", async () => {
  const broken = join(process.env.SANDLING_HOME, "broken");
  writeFileSync(broken, "#!/bin/sh\necho the disk is full >&2\nexit 3\n");
  chmodSync(broken, 0o755);
  process.env.SANDLING_BINARY = broken;
  await assert.rejects(
    ensureLocalServer(),
    (error) => error instanceof ConfigError && /disk is full/.test(error.message),
  );
});

test("a binary that is not there is named", async () => {
  process.env.SANDLING_BINARY = "/nowhere/sandling";
  await assert.rejects(ensureLocalServer(), /SANDLING_BINARY names \/nowhere\/sandling/);
});

test("a binary beside this Node is found", async () => {
  const beside = join(process.env.SANDLING_HOME, "bin");
  mkdirSync(beside);
  writeFileSync(join(beside, "sandling"), "#!/bin/sh\necho started beside >&2\nexit 3\n", { mode: 0o755 });
  const { execPath, env } = process;
  const { PATH } = env;
  try {
    process.execPath = join(beside, "node");
    env.PATH = "/nowhere:/usr/bin:/bin";
    delete env.SANDLING_BINARY;
    await assert.rejects(ensureLocalServer(), /started beside/);
  } finally {
    process.execPath = execPath;
    env.PATH = PATH;
  }
});

test("a template that is not built is named with the command that builds it", options, async () => {
  const { SANDLING_TEMPLATES } = process.env;
  process.env.SANDLING_TEMPLATES = join(process.env.SANDLING_HOME, "no-templates");
  const client = new Client();
  try {
    await assert.rejects(client.sandboxes.create(), /`sandling template build code-interpreter`/);
  } finally {
    client.close();
    if (SANDLING_TEMPLATES) process.env.SANDLING_TEMPLATES = SANDLING_TEMPLATES;
    else delete process.env.SANDLING_TEMPLATES;
  }
});

const machines = { skip: real && process.env.SANDLING_TEMPLATES ? false : "SANDLING_TEMPLATES names no templates" };
test("a sandbox is made where nothing is set", machines, async () => {
  const client = new Client();
  setDefaultClient(client);
  const sandbox = await Sandbox.create();
  try {
    assert.equal(sandbox.template, "code-interpreter");
    assert.equal((await sandbox.runCode("import pandas; print(6 * 7)")).stdout, "42\n");
  } finally {
    await sandbox.close();
    client.close();
    setDefaultClient();
  }
});
