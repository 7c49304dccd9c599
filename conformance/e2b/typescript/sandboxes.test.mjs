import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { Sandbox, SandboxNotFoundError, TimeoutError } from "e2b";
import { make } from "./support/harness.mjs";

test("a sandbox is made, found, connected to and ended", async () => {
  const key = randomUUID();
  const made = await make(Sandbox, "base", { timeoutMs: 120_000, metadata: { key, "with space": "é&=" }, envs: { A: "1" } });
  const info = await made.getInfo();
  assert.deepEqual(info.metadata, { key, "with space": "é&=" });
  assert.equal(info.state, "running");
  const pages = Sandbox.list({ query: { metadata: { "with space": "é&=", key } } });
  assert.deepEqual((await pages.nextItems()).map((found) => found.sandboxId), [made.sandboxId]);
  const again = await Sandbox.connect(made.sandboxId);
  assert.equal((await again.commands.run("echo $A $E2B_SANDBOX_ID")).stdout, `1 ${made.sandboxId}\n`);
  await made.setTimeout(60_000);
  assert.equal(await made.isRunning(), true);
  assert.equal(await made.kill(), true);
  assert.equal(await made.kill(), false);
  assert.equal(await made.isRunning(), false);
  await assert.rejects(Sandbox.connect(made.sandboxId), SandboxNotFoundError);
});

test("a pause keeps everything", async () => {
  const made = await make(Sandbox, { timeoutMs: 300_000 });
  await made.files.write("kept", "text");
  assert.equal(await made.pause(), true);
  assert.equal(await made.pause(), false);
  const again = await Sandbox.connect(made.sandboxId);
  assert.equal(await again.files.read("kept"), "text");
});

test("a pause without memory keeps the disk, and the sandbox boots", async () => {
  const made = await make(Sandbox, { timeoutMs: 300_000, envs: { COLOR: "blue" } });
  await made.files.write("kept", "text");
  await made.files.write("/dev/shm/memory", "text");
  assert.equal(await made.pause({ keepMemory: false }), true);
  const again = await Sandbox.connect(made.sandboxId);
  assert.equal(await again.files.read("kept"), "text");
  assert.equal(await again.files.exists("/dev/shm/memory"), false);
  assert.equal((await again.commands.run("echo $COLOR")).stdout, "blue\n");
});

test("a fork and a snapshot begin where their sandbox was", async () => {
  const made = await make(Sandbox, { timeoutMs: 300_000 });
  await made.files.write("kept", "before");
  const [child] = await made.fork({ timeoutMs: 120_000 });
  const snapshot = await made.createSnapshot();
  assert.deepEqual((await made.listSnapshots().nextItems()).map((found) => found.snapshotId), [snapshot.snapshotId]);
  await made.files.write("kept", "after");
  const copy = await make(Sandbox, snapshot.snapshotId);
  try {
    assert.equal(await child.files.read("kept"), "before");
    assert.equal(await copy.files.read("kept"), "before");
  } finally {
    await child.kill();
    await Sandbox.deleteSnapshot(snapshot.snapshotId);
  }
});

test("figures, a host, what may leave, and how it ends", async () => {
  const made = await make(Sandbox, {
    timeoutMs: 120_000,
    network: { allowOut: ["0.0.0.0/0"], denyOut: ["192.0.2.0/24"] },
    lifecycle: { onTimeout: "pause", autoResume: true },
  });
  const [metrics] = await made.getMetrics();
  assert.ok(metrics.memUsed > 0 && metrics.memUsed < metrics.memTotal);
  assert.deepEqual(await made.getMetrics({ start: new Date(0), end: new Date(1000) }), []);
  assert.ok(made.getHost(3000).startsWith(`3000-${made.sandboxId}.`));
  const info = await made.getInfo();
  assert.deepEqual(info.lifecycle, { onTimeout: "pause", autoResume: true });
  assert.deepEqual([info.network.allowOut, info.network.denyOut], [["0.0.0.0/0"], ["192.0.2.0/24"]]);
  await made.updateNetwork({ denyOut: ["0.0.0.0/0"] });
  assert.deepEqual((await made.getInfo()).network.allowOut, []);
  await made.betaPause();
  assert.equal((await made.commands.run("echo awake")).stdout, "awake\n");
  const sleep = await made.commands.run("sleep 100", { background: true });
  const ended = assert.rejects(sleep.wait(), (error) => {
    assert.match(error.message, /sandbox was killed or reached its end of life: it was killed/);
    return error instanceof TimeoutError;
  });
  await made.kill();
  await ended;
});
