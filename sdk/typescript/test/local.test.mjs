/** The local server. The tests start the real binary that `SANDLING_BINARY` names; the last one creates a machine. */

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, beforeEach, test } from "node:test";
import { promisify } from "node:util";

import { WebSocketServer } from "ws";

import {
  AuditLog,
  Client,
  ConfigError,
  ensureLocalServer,
  Sandbox,
  SandboxPool,
  setDefaultClient,
  stopLocalServer,
} from "../dist/index.js";
import { fakeServer } from "./fake-server.mjs";

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
  // Its clients continue without waiting for a restart.
  assert.equal(JSON.parse(readFileSync(join(process.env.SANDLING_HOME, "local-server.json"), "utf8")).url, next.url);
  assert.equal((await client.me()).workspace, "default");
  client.close();
});

/** Announces a server like `sandling serve` does. Returns a function that removes the announcement. */
async function announce(url) {
  const directory = process.env.SANDLING_HOME;
  writeFileSync(join(directory, "token"), "sdl_secret");
  writeFileSync(join(directory, "server"), `${url}\n`);
  const holder = spawn("flock", ["-x", join(directory, "server"), "sh", "-c", "echo; exec cat"]);
  await once(holder.stdout, "data");
  return async () => {
    holder.stdin.end();
    await once(holder, "exit");
  };
}

test("a server that somebody announced is used while it holds its word", async () => {
  const withdraw = await announce("http://127.0.0.1:4242");
  assert.deepEqual(await ensureLocalServer(), { url: "http://127.0.0.1:4242", token: "sdl_secret" });
  await withdraw();
  process.env.SANDLING_BINARY = "/nowhere/sandling";
  await assert.rejects(ensureLocalServer(), ConfigError);
});

/** A server with one simulated sandbox. */
async function smallServer() {
  const server = await fakeServer({
    "GET /v1/sandboxes/box": { body: { id: "box", template: "base", status: "running", persistent: false } },
    "POST /v1/sandboxes/box/exec": { body: { exit_code: 0 } },
    "POST /v1/sandboxes/box/exec/stream": { body: 'event: exit\ndata: {"exit_code":0}\n\n' },
    "PUT /v1/sandboxes/box/fs?path=%2Ff": { body: { path: "/f", bytes: 6 } },
    "POST /v1/sandboxes": { body: { id: "box", template: "base", status: "running", persistent: false } },
    "PATCH /v1/sandboxes/box/lifecycle": { body: { persistent: false } },
    "DELETE /v1/sandboxes/box": { status: 204 },
  });
  const terminals = new WebSocketServer({ noServer: true });
  server.http.on("upgrade", (request, socket, head) => {
    terminals.handleUpgrade(request, socket, head, (terminal) => terminal.send(Buffer.from("$ ")));
  });
  return server;
}

const FILE = new URL("fake-server.mjs", import.meta.url).pathname;
const MANY = () => Promise.all([Sandbox.get("box"), Sandbox.get("box"), Sandbox.get("box")]);
for (const [name, work] of Object.entries({
  "a request": (box) => box.exec("x"),
  "a stream": (box) => box.execStream("x"),
  "an upload": (box) => box.files.upload(FILE, "/f"),
  "a terminal": async (box) => {
    const terminal = await box.terminal();
    assert.equal(String(await terminal.readUntil("$ ")), "$ ");
    await terminal.close();
  },
  "many at once": MANY,
})) {
  test(`a server that is replaced elsewhere is found again by ${name}`, async () => {
    const [first, second] = [await smallServer(), await smallServer()];
    const client = new Client();
    setDefaultClient(client);
    let withdraw = await announce(first.url);
    try {
      const box = await client.sandboxes.get("box");
      // Otherwise the client might reuse a connection before it notices its end.
      client.close();
      await first.close();
      await withdraw();
      withdraw = await announce(second.url);
      await work(box);
      assert.equal(await client.apiUrl(), second.url);
      const sent = second.requests.map(({ body }) => body).filter(Boolean);
      if (name === "an upload") assert.deepEqual(sent, [readFileSync(FILE)]);
    } finally {
      setDefaultClient();
      client.close();
      await withdraw();
      await second.close();
    }
  });
}

test("a machine that a pool lent finds its server again, and its terminal is recorded once", async () => {
  const [first, second] = [await smallServer(), await smallServer()];
  const records = [];
  const client = new Client();
  let withdraw = await announce(first.url);
  const pool = new SandboxPool({ size: 1, audit: new AuditLog((record) => records.push(record)) }, client).start();
  try {
    const box = await pool.acquire();
    await (await box.terminal()).close();
    client.close();
    await first.close();
    await withdraw();
    withdraw = await announce(second.url);
    await (await box.terminal()).close();
    const terminals = records.filter(({ action }) => action === "GET /exec/pty");
    assert.deepEqual(
      terminals.map(({ outcome }) => outcome),
      ["ok", "ok"],
    );
  } finally {
    await pool.close();
    client.close();
    await withdraw();
    await second.close();
  }
});

test("a server that is gone, and cannot be replaced, is named so", async () => {
  const server = await smallServer();
  const client = new Client();
  const withdraw = await announce(server.url);
  const box = await client.sandboxes.get("box");
  client.close();
  await server.close();
  await withdraw();
  process.env.SANDLING_BINARY = "/nowhere/sandling";
  await assert.rejects(box.exec("x"), ConfigError);
  client.close();
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

test("a server that cannot be started leaves no file open", async () => {
  process.env.SANDLING_BINARY = "/nowhere/sandling";
  await assert.rejects(ensureLocalServer(), ConfigError);
  const open = readdirSync("/proc/self/fd").map((number) => {
    try {
      return readlinkSync(`/proc/self/fd/${number}`);
    } catch {
      return "";
    }
  });
  const home = process.env.SANDLING_HOME;
  assert.deepEqual(
    open.filter((path) => path.startsWith(home)),
    [],
  );
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
