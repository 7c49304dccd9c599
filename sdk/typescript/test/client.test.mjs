import assert from "node:assert/strict";
import { once } from "node:events";
import { createReadStream } from "node:fs";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import * as sandling from "../dist/index.js";
import { fakeServer } from "./fake-server.mjs";

const BOX = { id: "box", template: "base", status: "running", persistent: false };

/** Runs `work` with a client of a scripted server. */
async function against(answers, work, options = {}) {
  const server = await fakeServer({ "GET /v1/sandboxes/box": { body: BOX }, ...answers });
  const client = new sandling.Client({ apiUrl: server.url, apiKey: "key", ...options });
  try {
    const sent = () => server.requests.filter(({ method, path }) => `${method} ${path}` !== "GET /v1/sandboxes/box");
    return await work(client, sent, () => client.sandboxes.get("box"));
  } finally {
    client.close();
    server.close();
  }
}

test("a full server is asked again with the same key", async () => {
  const full = { status: 503, body: { error: "no room", code: "no_capacity" }, headers: { "retry-after": "0" } };
  const heard = [];
  const answers = { "POST /v1/sandboxes": [full, { hangUp: true }, { status: 201, body: BOX }] };
  await against(
    answers,
    async (client, sent) => {
      assert.equal((await client.sandboxes.create({ template: "base", ttlSeconds: 9 })).id, "box");
      assert.equal(new Set(sent().map(({ headers }) => headers["idempotency-key"])).size, 1);
      assert.deepEqual(sent()[2].body, { template: "base", ttl_seconds: 9 });
      assert.equal(sent()[0].headers.authorization, "Bearer key");
    },
    { onCreateRetry: (event) => heard.push(event.error.code) },
  );
  assert.deepEqual(heard, ["no_capacity"]);
});

test("an error of code that a create ran comes from firstRun", async () => {
  const error = { error: "too slow", code: "command_timeout", status: 504, stdout: "x" };
  const answer = { status: 201, body: { ...BOX, run: { error } } };
  await against({ "POST /v1/sandboxes": answer }, async (client, sent, box) => {
    await client.sandboxes.create({ template: "base", run: "1 + 1" });
    const run = { code: "1", language: "node", timeoutSeconds: 5 };
    const sandbox = await client.sandboxes.create({ template: "base", run });
    assert.throws(() => sandbox.firstRun(), { name: "SandboxTimeout", status: 504, stdout: "x" });
    const sentRuns = sent().map(({ body }) => body.run);
    assert.deepEqual(sentRuns, [{ code: "1 + 1" }, { code: "1", language: "node", timeout_seconds: 5 }]);
    await assert.rejects(async () => (await box()).firstRun(), /without code/);
  });
});

test("a quota is not waited for", async () => {
  const quota = { status: 429, body: { error: "max sandboxes reached", code: "quota", request_id: "r" } };
  await against({ "POST /v1/sandboxes": quota }, async (client, sent) => {
    const { LimitError } = sandling;
    await assert.rejects(client.sandboxes.create(), (error) => {
      assert(error instanceof LimitError);
      assert.deepEqual([error.status, error.code, error.requestId], [429, "quota", "r"]);
      return true;
    });
    assert.equal(sent().length, 1);
  });
});

test("waiting for room can be cancelled", async () => {
  const full = { status: 503, body: { error: "no room" }, headers: { "retry-after": "30" } };
  await against({ "POST /v1/sandboxes": full }, async (client) => {
    const signal = AbortSignal.timeout(50);
    await assert.rejects(client.sandboxes.create({ signal }), { name: "AbortError" });
  });
});

test("a command is never sent twice", async () => {
  await against({ "POST /v1/sandboxes/box/exec": { hangUp: true } }, async (_, sent, box) => {
    await assert.rejects((await box()).exec("rm -r /x"), sandling.ConnectionError);
    assert.equal(sent().length, 1);
  });
});

test("a deadline may be months away", async () => {
  const MONTHS = 100 * 24 * 3600;
  const answers = { "POST /v1/sandboxes/box/exec": { afterMs: 100, body: { stdout: "late", exit_code: 0 } } };
  const work = async (_, __, box) => {
    assert.equal((await (await box()).exec("x", { timeoutSeconds: MONTHS })).stdout, "late");
  };
  await against(answers, work, { timeoutMs: MONTHS * 1000 });
});

const START = 'event: start\ndata: {"id":"e1","pid":7}\n\n';
const OUT = 'event: stdout\ndata: {"chunk":"so far"}\n\n';
const DIED = 'event: error\ndata: {"error":"the guest died","code":"guest_died"}\n\n';
const LATE = 'event: exit\ndata: {"exit_code":137,"reason":"timeout"}\n\n';
const REFUSED = 'event: error\ndata: {"error":"paused","code":"sandbox_paused","status":409}\n\n';
for (const [body, kind, status, code] of [
  [OUT, "ExecInterrupted", undefined, "interrupted"],
  [OUT + DIED, "ServerError", 500, "guest_died"],
  [OUT + REFUSED, "ConflictError", 409, "sandbox_paused"],
  [OUT + LATE, "SandboxTimeout", 504, "command_timeout"],
]) {
  test(`a stream that ends with ${kind} keeps what was printed`, async () => {
    await against({ "POST /v1/sandboxes/box/exec/stream": { body } }, async (_, __, box) => {
      await assert.rejects((await box()).execStream("x"), (error) => {
        assert(error instanceof sandling[kind], error.name);
        assert.equal(error.stdout ?? error.details.stdout, "so far");
        assert.deepEqual([error.status, error.code, error.requestId], [status, code, "abc123"]);
        return true;
      });
    });
  });
}

for (const [name, follow] of Object.entries({
  "that is started": (box) => box.exec("x", { onStdout: () => {} }),
  "that runs by itself": (box) => box.commands.get("e1").wait(),
})) {
  test(`a connection that is cut while a command ${name} is followed keeps what was printed`, async () => {
    const cut = { body: START + OUT, cut: true };
    const answers = { "POST /v1/sandboxes/box/exec/stream": cut, "GET /v1/sandboxes/box/execs/e1/output?from=0": cut };
    await against(answers, async (_, sent, box) => {
      await assert.rejects(follow(await box()), (error) => {
        assert(error instanceof sandling.ExecInterrupted, error.name);
        assert.deepEqual([error.stdout, error.stderr, error.id], ["so far", "", "e1"]);
        assert.deepEqual([error.code, error.requestId], ["interrupted", "abc123"]);
        assert(error.cause instanceof sandling.ConnectionError);
        return true;
      });
      assert.equal(sent().length, 1);
    });
  });
}

test("a command whose start is not answered is not one that was interrupted", async () => {
  await against({ "POST /v1/sandboxes/box/exec/stream": { hangUp: true } }, async (_, __, box) => {
    await assert.rejects((await box()).execStream("x"), sandling.ConnectionError);
  });
});

const WRITE = "PUT /v1/sandboxes/box/fs?path=%2Ff";
for (const [name, write] of Object.entries({
  "a file to upload that is missing": (box) => box.files.upload("/nowhere/file", "/f"),
  "a stream that failed before it was read": (box) => box.files.write("/f", createReadStream("/nowhere/file")),
  "a source that throws halfway": (box) => box.files.write("/f", halfway()),
})) {
  test(`${name} is its own error`, async () => {
    await against({ [WRITE]: { body: { path: "/f", bytes: 0 } } }, async (_, sent, box) => {
      await assert.rejects(write(await box()), (error) => {
        assert.equal(error.code, "ENOENT");
        assert(!(error instanceof sandling.SandlingError));
        return true;
      });
      assert.deepEqual(sent(), []);
    });
  });
}

async function* halfway() {
  yield Buffer.alloc(100_000);
  throw Object.assign(new Error("mine"), { code: "ENOENT" });
}

test("a connection that is lost while a file is sent is no fault of the file", async () => {
  async function* endless() {
    for (;;) yield Buffer.alloc(100_000);
  }
  const server = createServer((socket) => socket.once("data", () => socket.destroy())).listen(0, "127.0.0.1");
  await once(server, "listening");
  const client = new sandling.Client({ apiUrl: `http://127.0.0.1:${server.address().port}`, apiKey: "key" });
  const sent = client.transport.fetch("PUT", "/", { content: endless(), timeoutMs: null });
  await assert.rejects(sent, sandling.ConnectionError);
  client.close();
  server.close();
});

test("forks, snapshots and sleep as the contract has them", async () => {
  const child = { id: "c1", status: "running", metadata: { fork_tree_id: "t" } };
  const promoted = { winner: "c1", tree_id: "t", deleted: ["c2"], failures: {} };
  const answers = {
    "POST /v1/sandboxes/box/fork": [{ body: { sandbox: child } }, { body: { children: [child] } }, { body: child }],
    "POST /v1/sandboxes/box/fork-tree": { body: { children: [child, { ...child, id: "c2" }] } },
    "POST /v1/sandboxes/c1/promote": { body: promoted },
    "POST /v1/sandboxes/box/snapshots": { body: { id: "snap", sandbox_id: "box" } },
    "POST /v1/sandboxes/box/hibernate": { body: { status: "hibernated" } },
    "POST /v1/sandboxes/box/wake": { body: { status: "running" } },
    "GET /v1/snapshots?sandbox_id=box": { body: { snapshots: [{ id: "snap" }] } },
  };
  await against(answers, async (client, sent, box) => {
    const parent = await box();
    for (const options of [undefined, { metadata: { a: "b" } }, {}]) {
      const made = await parent.fork(options);
      assert.deepEqual([made.id, made.metadata.fork_parent_id, made.template], ["c1", "box", "base"]);
    }
    const [first, second] = await parent.fork(2, { metadata: { a: "b" } });
    assert.deepEqual([first.id, second.id], ["c1", "c2"]);
    assert.deepEqual((await first.promote({ cleanupSiblings: true })).deleted, ["c2"]);
    assert.deepEqual(await parent.snapshot(), { id: "snap", sandboxId: "box" });
    assert.equal((await client.snapshots.list({ sandboxId: "box" }))[0].id, "snap");
    await parent.hibernate();
    assert.equal(parent.status, "hibernated");
    await parent.wake();
    assert.equal(parent.status, "running");
    const bodies = sent().map(({ body }) => body);
    const tree = { count: 2, metadata: { a: "b" } };
    assert.deepEqual(bodies.slice(0, 4), [undefined, { metadata: { a: "b" } }, undefined, tree]);
    assert.deepEqual(bodies[4], { cleanup_siblings: true });
  });
});

test("a volume is made once even if two want it", async () => {
  const answers = {
    "GET /v1/volumes/v": [{ status: 404, body: { error: "no" } }, { body: { name: "v", size_mb: 2048 } }],
    "POST /v1/volumes": { status: 409, body: { error: "there is one" } },
  };
  await against(answers, async (client, sent) => {
    const volume = await sandling.Volume.getOrCreate("v", 2, client);
    assert.equal(volume.sizeMb, 2048);
    assert.deepEqual(sent()[1].body, { name: "v", size_mb: 2048 });
    assert.deepEqual(volume.mount("/data", { readOnly: true }), { name: "v", mount: "/data", readOnly: true });
  });
});

test("a volume is copied to the node that is named", async () => {
  const answers = {
    "GET /v1/volumes/v": { body: { name: "v", size_mb: 16 } },
    "POST /v1/volumes/v/clone": { status: 201, body: { name: "copy", size_mb: 16 } },
  };
  await against(answers, async (client, sent) => {
    const volume = await sandling.Volume.get("v", client);
    await volume.clone("near");
    assert.equal((await volume.clone("far", { node: "b" })).name, "copy");
    const bodies = sent().map(({ body }) => body);
    assert.deepEqual(bodies.slice(1), [{ name: "near" }, { name: "far", node: "b" }]);
  });
});

function explorable(codes) {
  const ids = codes.map((_, index) => `c${index}`);
  const children = ids.map((id) => ({ id, status: "running", metadata: { fork_tree_id: "t" } }));
  const answers = { "POST /v1/sandboxes/box/fork-tree": { body: { children } } };
  const ended = (exit_code) => ({ body: { stdout: "x\n", stderr: "", exit_code } });
  for (const [index, id] of ids.entries()) {
    answers[`POST /v1/sandboxes/${id}/exec`] = [ended(0), ended(codes[index]), ended(0)];
    answers[`DELETE /v1/sandboxes/${id}`] = { status: 204 };
    const deleted = ids.filter((other) => other !== id);
    answers[`POST /v1/sandboxes/${id}/promote`] = { body: { winner: id, tree_id: "t", deleted } };
  }
  return answers;
}

test("an exploration keeps the best and ends the others", async () => {
  await against(explorable([1, 0, 0]), async (_, sent, box) => {
    const scores = { c1: 1, c2: 5 };
    const result = await (await box()).explore(["a", "b", "c"], { scoreFn: (fork) => scores[fork.id] ?? 0 });
    assert.deepEqual([result.winner.id, result.treeId, result.reaped], ["c2", "t", ["c0", "c1"]]);
    assert.deepEqual(
      result.outcomes.map(({ label }) => label),
      ["c", "b", "a"],
    );
    assert.deepEqual(result.winnerOutcome.filesChanged, ["x"]);
    assert.deepEqual(sent()[0].body, { count: 3, metadata: { explore: "1", explore_ttl: "600" } });
  });
});

test("an exploration without a winner leaves nothing", async () => {
  await against(explorable([1, 2]), async (_, sent, box) => {
    await assert.rejects((await box()).explore(["a", "b"]), sandling.ExploreError);
    const deleted = sent().filter(({ method }) => method === "DELETE");
    assert.deepEqual(deleted.map(({ path }) => path).sort(), ["/v1/sandboxes/c0", "/v1/sandboxes/c1"]);
  });
});

test("an exploration that fails begins nothing more", async () => {
  await against(explorable([0, 0, 0, 0]), async (_, __, box) => {
    const begun = [];
    let goOn;
    const candidate = (label, wait) => ({ label, fn: () => (begun.push(label), wait) });
    const waiting = new Promise((resolve) => (goOn = resolve));
    const candidates = [candidate("a"), candidate("b", waiting), candidate("c"), candidate("d")];
    const onOutcome = ({ label }) => label === "a" && Promise.reject(new Error("mine"));
    const options = { maxConcurrency: 2, captureFiles: false, onOutcome };
    await assert.rejects((await box()).explore(candidates, options), /mine/);
    goOn();
    await sleep(100);
    assert.deepEqual(begun, ["a", "b"]);
  });
});

test("a reader of a stream may take its time", async () => {
  const answers = { "GET /v1/large": { body: Buffer.alloc(20_000_000) } };
  await against(answers, async (client) => {
    let size = 0;
    for await (const piece of client.transport.stream("GET", "/v1/large", { silenceMs: 1000 })) {
      if (size === 0) await sleep(2500);
      size += piece.length;
    }
    assert.equal(size, 20_000_000);
  });
});

test("a server that falls silent is not waited for", async () => {
  await against({ "GET /v1/quiet": { body: "so far", hold: true } }, async (client) => {
    const pieces = [];
    const read = async (options) => {
      for await (const piece of client.transport.stream("GET", "/v1/quiet", options)) pieces.push(String(piece));
    };
    await assert.rejects(read({ silenceMs: 500 }), sandling.RequestTimeout);
    await assert.rejects(read({ timeoutMs: 500 }), sandling.RequestTimeout);
    assert.deepEqual(pieces, ["so far", "so far"]);
  });
});

test("a file can be downloaded twice at once", async () => {
  const scratch = await mkdtemp(join(tmpdir(), "client-"));
  const target = join(scratch, "file");
  await against({ "GET /v1/sandboxes/box/fs?path=%2Ff": { body: "content" } }, async (_, __, box) => {
    const { files } = await box();
    await Promise.all([files.download("/f", target), files.download("/f", target)]);
    assert.equal(await readFile(target, "utf8"), "content");
    assert.deepEqual(await readdir(scratch), ["file"]);
  });
  await rm(scratch, { recursive: true });
});

test("changes that are made at once all hold", async () => {
  const policy = { mode: "deny", allow: [], tls: "sealed", secrets: [], limits: {}, counts: {} };
  const server = await fakeServer(({ method, body }) => {
    if (method === "PUT") Object.assign(policy, body);
    if (body?.secrets) policy.secrets = body.secrets.map((name) => ({ name, placeholder: name }));
    return { body: { ...BOX, ...policy } };
  });
  const client = new sandling.Client({ apiUrl: server.url, apiKey: "key" });
  const { network, secrets } = await client.sandboxes.get("box");
  await Promise.all([network.allow("a"), network.allow("b"), secrets.grant("X"), secrets.grant("Y")]);
  assert.deepEqual([policy.mode, policy.allow], ["allow", ["a", "b"]]);
  assert.deepEqual(
    policy.secrets.map(({ name }) => name),
    ["X", "Y"],
  );
  client.close();
  await server.close();
});

test("what is refused in any case is told, and stays when more is allowed", async () => {
  const policy = { mode: "open", allow: [], tls: "sealed" };
  const refused = { ...policy, deny: ["192.0.2.0/24"] };
  const rest = { limits: {}, secrets: [], counts: {} };
  const answers = {
    "GET /v1/sandboxes/box/network": { body: { ...refused, ...rest, bound: refused } },
    "PUT /v1/sandboxes/box/network": { body: { ...policy, ...rest, bound: policy } },
    "GET /v1/network": { body: { policy: refused, limits: {} } },
    "PUT /v1/network": { body: { policy, limits: {} } },
  };
  await against(answers, async (client, sent, box) => {
    const { network } = await box();
    const told = [await network.get(), (await network.get()).bound, await client.network.get()];
    for (const { deny } of told) assert.deepEqual(deny, ["192.0.2.0/24"]);
    const after = [await network.allow("pypi"), (await network.set({ deny: [] })).bound];
    after.push(await client.network.set({ deny: ["192.0.2.1"] }));
    for (const { deny } of after) assert.deepEqual(deny, []);
    const bodies = sent().flatMap(({ method, body }) => (method === "PUT" ? [body] : []));
    assert.deepEqual(bodies, [{ mode: "open", allow: ["pypi"] }, { deny: [] }, { deny: ["192.0.2.1"] }]);
  });
});

test("a server that is not there is named without its password", async () => {
  const nobody = createServer().listen(0, "127.0.0.1");
  await once(nobody, "listening");
  const { port } = nobody.address();
  nobody.close();
  await once(nobody, "close");
  const client = new sandling.Client({ apiUrl: `http://user:secret@127.0.0.1:${port}`, apiKey: "key" });
  await assert.rejects(client.me(), (error) => {
    assert.ok(error instanceof sandling.ConnectionError);
    assert.match(error.message, new RegExp(`the server at http://127.0.0.1:${port} failed: .`));
    assert.doesNotMatch(error.message, /secret/);
    return true;
  });
});

test("how the best is selected is checked before anything is forked", async () => {
  await against({}, async (_, sent, box) => {
    const sandbox = await box();
    await assert.rejects(sandbox.explore(["echo"], { select: "maximum" }), { name: "TypeError", message: /"maximum"/ });
    assert.deepEqual(sent(), []);
  });
});

test("a file is not emptied by mistake", async () => {
  await against({ "PUT /v1/sandboxes/box/fs?path=%2Ff": { body: {} } }, async (_, sent, box) => {
    const { files } = await box();
    for (const bad of [undefined, null, 7, {}]) {
      await assert.rejects(files.write("/f", bad), { name: "TypeError", message: /a string, a Uint8Array or/ });
    }
    async function* pieces() {
      yield Buffer.from("x");
    }
    for (const good of ["", "x", new Uint8Array(1), pieces()]) await files.write("/f", good);
    assert.equal(sent().length, 4);
  });
});

const BUILD = { id: "b", name: "mine", status: "queued" };
const LOG = "data:   indented\n\ndata: second\n\nevent: done\ndata: end\n\n";

/** A server whose template build ends with this status. */
function building(ended) {
  return {
    "POST /v1/templates/build": { status: 202, body: BUILD },
    "GET /v1/templates/builds/b/logs?follow=1": { body: LOG },
    "GET /v1/templates/builds/b": { body: { ...BUILD, ...ended } },
    "GET /v1/templates/mine": { body: { name: "mine", memory_mb: 512 } },
  };
}

test("a template is built, and its log is heard", async () => {
  await against(building({ status: "done" }), async (client, sent) => {
    const heard = [];
    const onLog = (line) => heard.push(line);
    const wanted = { packages: ["ffmpeg"], pip: ["six==1.16.0"], requirements: "idna\n", memoryMb: 512 };
    const made = await sandling.Template.build("mine", { ...wanted, onLog }, client);
    assert.deepEqual([made.name, made.memoryMb], ["mine", 512]);
    assert.deepEqual(heard, ["  indented", "second"]);
    const { memoryMb: memory_mb, ...packages } = wanted;
    assert.deepEqual(sent()[0].body, { name: "mine", ...packages, memory_mb });
    assert.equal((await client.templates.waitForBuild("b")).status, "done");
  });
});

test("a build that fails, or is not done in time, is an error", async () => {
  const { TemplateBuildError } = sandling;
  await against(building({ status: "failed", error: "no such package" }), async (client) => {
    await assert.rejects(sandling.Template.build("mine", {}, client), (error) => {
      assert(error instanceof TemplateBuildError && error.message === "no such package");
      assert.equal(error.details.build.status, "failed");
      return true;
    });
  });
  await against(building({}), async (client) => {
    await assert.rejects(client.templates.waitForBuild("b", { timeoutSeconds: -1 }), /not done after/);
  });
});

test("a build's deadline holds while its log is heard, and a log that is lost ends no build", async () => {
  const logs = "GET /v1/templates/builds/b/logs?follow=1";
  const options = { onLog: () => {}, timeoutSeconds: 0.5 };
  await against({ ...building({}), [logs]: { body: LOG.slice(0, 20), hold: true } }, async (client) => {
    await assert.rejects(sandling.Template.build("mine", options, client), /not done after 0.5 s/);
  });
  await against({ ...building({ status: "done" }), [logs]: { body: LOG, cut: true } }, async (client) => {
    assert.equal((await sandling.Template.build("mine", options, client)).name, "mine");
  });
});

/** Chromium says one of `versions` each time it is asked, and ends with `exitCode` while it starts. */
function scriptedChromium(versions, exitCode) {
  const told = () => {
    const version = versions.shift() ?? "";
    return { body: { exit_code: version ? 0 : 7, stdout: version, stderr: "" } };
  };
  return ({ method, path, body }) => {
    switch (`${method} ${path}`) {
      case "GET /v1/sandboxes/box":
        return { body: BOX };
      case "POST /v1/sandboxes/box/exec":
        return body.detached ? { body: { id: "c", pid: 1 } } : told();
      case "GET /v1/sandboxes/box/execs/c":
        return { body: { id: "c", status: exitCode === undefined ? "running" : "exited", exit_code: exitCode } };
      case "GET /v1/sandboxes/box/execs/c/output?from=0":
        return {
          headers: { "content-type": "text/event-stream" },
          body:
            'event: stderr\ndata: {"chunk": "no display\\n"}\n\n' +
            `event: exit\ndata: {"exit_code": ${exitCode}, "reason": "exited"}\n\n`,
        };
      case "POST /v1/sandboxes/box/preview-token":
        return { status: 201, body: { path_url: "https://h:1/v1/p/t.s/", port: 9222 } };
    }
  };
}

/** Runs `work` with a sandbox whose Chromium is scripted. */
async function withChromium(answers, work) {
  const server = await fakeServer(answers);
  const client = new sandling.Client({ apiUrl: server.url, apiKey: "key" });
  try {
    await work(await client.sandboxes.get("box"), () => server.requests.filter(({ body }) => body?.detached).length);
  } finally {
    client.close();
    server.close();
  }
}

test("a browser is started unless it runs", async () => {
  const version = JSON.stringify({ webSocketDebuggerUrl: "ws://localhost:9222/devtools/browser/b-1" });
  for (const [versions, started] of [
    [[version], 0],
    [["", "", version], 1],
  ]) {
    await withChromium(scriptedChromium(versions), async (sandbox, starts) => {
      assert.equal(await sandbox.browser.cdpUrl(), "wss://h:1/v1/p/t.s/devtools/browser/b-1");
      assert.equal(starts(), started);
    });
  }
});

test("a browser that cannot start is an error", async () => {
  await withChromium(scriptedChromium([], 1), async (sandbox) => {
    await assert.rejects(sandbox.browser.cdpUrl(), /Chromium ended with 1 when it started: no display/);
  });
  await withChromium(scriptedChromium([]), async (sandbox) => {
    await assert.rejects(sandbox.browser.cdpUrl({ timeoutSeconds: 0 }), /did not open port 9222 within 0 s/);
  });
});
