/** Pools, with a server that simulates machines. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import * as sandling from "../dist/index.js";
import { fakeServer } from "./fake-server.mjs";

const RAN = { body: { stdout: "hi\n", stderr: "", exit_code: 0, reason: "exited" } };
const LATE = {
  status: 504,
  body: { error: "command timeout after 1s", code: "command_timeout", stdout: "so far", stderr: "" },
};
const OUT = 'event: stdout\ndata: {"chunk":"a"}\n\nevent: stdout\ndata: {"chunk":"b"}\n\n';
const EXIT = 'event: exit\ndata: {"exit_code":3,"reason":"exited"}\n\n';
const CELL = { stdout: "", stderr: "", results: [], error: { ename: "ZeroDivisionError" }, exit_code: 1 };
const NOTHING = { status: 404, body: { error: "nothing there", code: "not_found" } };

/** Runs `work` with a pool of a server that records which machines are alive. */
async function against(options, work, answers = {}) {
  const alive = new Set();
  const made = [];
  const answer = ({ method, path, body }) => {
    const [, , , id, ...rest] = path.split("?")[0].split("/");
    const found = answers[`${method} ${rest.join("/")}`];
    if (method === "POST" && !id) {
      if (answers.create) return answers.create;
      made.push(body);
      const name = `m${made.length}`;
      alive.add(name);
      return { status: 201, body: { id: name, template: "base", status: "running" } };
    }
    if (method === "PATCH" && !alive.has(id)) return { status: 404, body: { error: "sandbox not found" } };
    if (method === "PATCH") return { body: { ttl_seconds: 1, idle_seconds: 0, persistent: false } };
    if (method === "DELETE") return (alive.delete(id), { status: 204 });
    return typeof found === "function" ? found(body) : (found ?? NOTHING);
  };
  const server = await fakeServer(answer);
  const client = new sandling.Client({ apiUrl: server.url, apiKey: "key" });
  const pool = new sandling.SandboxPool({ template: "base", ...options }, client).start();
  try {
    return await work(pool, { alive, made });
  } finally {
    await pool.close();
    assert.equal(alive.size, 0, "machines were left behind");
    client.close();
    server.close();
  }
}

async function until(comesTrue) {
  for (let tries = 0; !comesTrue(); tries += 1) {
    assert(tries < 1000, "it never came true");
    await sleep(10);
  }
}

test("everyone gets a fresh machine and nothing is left", async () => {
  await against({ size: 2, ttlSeconds: 77, env: { A: "b" } }, async (pool, { alive, made }) => {
    const seen = new Set();
    for (let number = 0; number < 5; number += 1) {
      const lease = await pool.lease({ timeoutSeconds: 30 });
      seen.add(lease.sandbox.id);
      assert.equal(pool.status().busy, 1);
      await lease[Symbol.asyncDispose]();
      assert(!alive.has(lease.sandbox.id));
    }
    await until(() => pool.status().ready === 2);
    assert.deepEqual(pool.status(), { size: 2, ready: 2, warming: 0, busy: 0, served: 5, lastError: null });
    assert.equal(seen.size, 5);
    assert.deepEqual(made[0], { template: "base", ttl_seconds: 77, env: { A: "b" } });
  });
});

test("a machine whose time was over is not handed out", async () => {
  await against({ size: 1 }, async (pool, { alive }) => {
    await until(() => pool.status().ready === 1);
    alive.clear();
    const sandbox = await pool.acquire({ timeoutSeconds: 30 });
    assert.equal(sandbox.id, "m2");
    await pool.release(sandbox);
    assert.equal(pool.status().busy, 0);
  });
});

test("no more than allowed are out at once", async () => {
  await against({ size: 2, maxBusy: 1 }, async (pool) => {
    const first = await pool.acquire({ timeoutSeconds: 30 });
    await assert.rejects(pool.acquire({ timeoutSeconds: 0.1 }), sandling.CapacityError);
    await pool.release(first);
    await pool.release(await pool.acquire({ timeoutSeconds: 30 }));
  });
});

test("a pool that cannot work says why, and one without stock makes on demand", async () => {
  const create = { status: 400, body: { error: "there is no such template" } };
  const broken = { size: 1, prepare: () => Promise.reject(new TypeError("mine")) };
  await against(broken, (pool) => assert.rejects(pool.acquire({ timeoutSeconds: 30 }), { message: "mine" }));
  await against({ size: 0 }, async (pool) => {
    assert.equal(pool.status().warming, 0);
    await pool.release(await pool.acquire({ timeoutSeconds: 30 }));
  });
  const refused = async (pool) => {
    await assert.rejects(pool.acquire(), sandling.BadRequestError);
    assert.match(pool.status().lastError, /no such template/);
  };
  await against({ size: 1 }, refused, { create });
});

test("a large pool that has to wait raises no alarm", async () => {
  const warnings = [];
  const heard = (warning) => warnings.push(warning.name);
  process.on("warning", heard);
  const create = { status: 500, body: { error: "not now" } };
  const refused = async (pool) => {
    await until(() => pool.status().lastError);
    await sleep(100);
  };
  await against({ size: 20 }, refused, { create });
  process.off("warning", heard);
  assert.deepEqual(warnings, []);
});

test("a machine may be waited for as long as one likes", async () => {
  const prepare = () => sleep(100);
  await against({ size: 0, prepare }, async (pool) => {
    await pool.release(await pool.acquire({ timeoutSeconds: 100 * 24 * 3600 }));
  });
});

test("a run is reported, advised and recorded", async () => {
  const scratch = await mkdtemp(join(tmpdir(), "pool-"));
  const log = join(scratch, "audit.jsonl");
  const config = { timeoutSeconds: 5, memoryMb: 256, allowedImports: ["math"], env: { KEY: "secret" }, user: "user" };
  const code = "import math, os.path as p\nfrom socket import socket\nprint('hi')";
  const runs = [RAN, LATE, RAN];
  await against(
    { size: 1, config, audit: new sandling.AuditLog(log) },
    async (pool, { made }) => {
      const first = await pool.run(code, { actor: "ada" });
      assert.deepEqual([first.ok, first.stdout], [true, "hi\n"]);
      assert.deepEqual(
        first.advice.map((line) => line.split(",")[0]),
        ["imports os", "imports socket"],
      );
      const second = await pool.run("while True: pass");
      assert.deepEqual([second.timedOut, second.exitCode, second.stdout], [true, null, "so far"]);
      await pool.run("1", { config: { memoryMb: 2048 } });
      assert.deepEqual(new Set(made.map((body) => body.memory_mb)), new Set([256, 2048]));
    },
    { "POST exec": () => runs.shift() },
  );
  const text = await readFile(log, "utf8");
  const records = text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  assert.deepEqual(
    records.map(({ actor, outcome }) => [actor, outcome]),
    [
      ["ada", "ok"],
      [null, "timeout"],
      [null, "ok"],
    ],
  );
  const how = {
    language: "python",
    timeout_seconds: 5,
    memory_mb: 256,
    output_limit: null,
    cpu_seconds: null,
    disk_limit_mb: null,
  };
  assert.deepEqual(records[0].input, { code, ...how, env: ["KEY"], user: "user", allowed_imports: ["math"] });
  assert(!text.includes("secret") && records[0].output.stdout === "hi\n");
  assert.notEqual(records[0].sandbox_id, records[1].sandbox_id);
  assert.equal((await stat(log)).mode & 0o077, 0);
  await rm(scratch, { recursive: true });
});

test("all that is done in a machine that was lent is recorded", async () => {
  const scratch = await mkdtemp(join(tmpdir(), "pool-"));
  const local = join(scratch, "local");
  await writeFile(local, Buffer.alloc(300_000, 0xfe));
  const records = [];
  const answers = {
    "POST exec": (body) => (body.cmd?.includes("sleep") ? LATE : RAN),
    "POST exec/stream": { body: OUT + EXIT, headers: { "content-type": "text/event-stream" } },
    "POST repl/sessions": { status: 201, body: { id: "ctx", language: "python" } },
    "POST repl/sessions/ctx/run": { body: CELL },
    "PUT fs": { body: { path: "/f", bytes: 2 } },
    "GET fs": { body: Buffer.from([0xff, 0]) },
    "POST fork": { status: 201, body: { sandbox: { id: "copy", status: "running" } } },
  };
  const work = async (pool) => {
    const sandbox = await pool.acquire({ timeoutSeconds: 30, actor: "ada" });
    await sandbox.exec("echo hi", { env: { KEY: "secret" } });
    await assert.rejects(sandbox.exec("sleep 9", { timeoutSeconds: 1 }), sandling.SandboxTimeout);
    await sandbox.execStream("echo ab; exit 3");
    for await (const _ of sandbox.stream("echo ab")) break;
    await (await sandbox.contexts.create()).runCode("1 / 0");
    await sandbox.files.write("/f", "é");
    await sandbox.files.upload(local, "/f");
    assert.deepEqual(await sandbox.files.read("/f"), Buffer.from([0xff, 0]));
    await sandbox.files.download("/f", join(scratch, "copy"));
    await assert.rejects(sandbox.files.stat("/missing"), sandling.NotFoundError);
    await (await sandbox.fork()).exec("echo hi");
    await pool.release(sandbox);
    await pool.run("print()");
  };
  await against({ size: 1, audit: new sandling.AuditLog((record) => records.push(record)) }, work, answers);
  const own = records.pop();
  const gone = records.pop();
  assert.deepEqual(
    records.map(({ action, outcome }) => `${action} ${outcome}`),
    [
      "POST /exec ok",
      "POST /exec timeout",
      "POST /exec/stream failed",
      "POST /exec/stream left",
      "POST /repl/sessions ok",
      "POST /repl/sessions/ctx/run failed",
      "PUT /fs ok",
      "PUT /fs ok",
      "GET /fs ok",
      "GET /fs ok",
      "GET /fs/stat error",
      "POST /fork ok",
      "POST /exec ok",
    ],
  );
  assert.deepEqual([gone.action, own.action], ["DELETE /", "run"]);
  assert.deepEqual(new Set([...records, gone].map(({ actor }) => actor)), new Set(["ada"]));
  assert.deepEqual(new Set(records.map(({ sandboxId }) => sandboxId)), new Set(["m1", "copy"]));
  assert.deepEqual(records[0].input, { cmd: "echo hi", env: ["KEY"] });
  assert.deepEqual(records[0].output, RAN.body);
  assert(records[1].output.stdout === "so far" && records[1].output.error.includes("timeout"));
  assert.deepEqual([records[2].output.stdout, records[2].output.exit_code], ["ab", 3]);
  assert.deepEqual(records[3].output, { stdout: "a" });
  assert(records[5].input.code === "1 / 0" && records[5].output.error.ename === "ZeroDivisionError");
  const digest = (data) => createHash("sha256").update(data).digest("hex");
  assert.deepEqual(records[6].input, { path: "/f", content: "é" });
  assert.deepEqual([records[7].input.size, records[7].input.sha256], [300_000, digest(await readFile(local))]);
  assert.deepEqual([records[8].input, records[8].output], [{ path: "/f" }, { content_base64: "/wA=" }]);
  assert.deepEqual(records[9].output, { size: 2, sha256: digest(Buffer.from([0xff, 0])) });
  assert(records[10].output.error.includes("nothing there"));
  await rm(scratch, { recursive: true });
});
