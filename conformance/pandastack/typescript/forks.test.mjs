// Forks, snapshots and hibernation.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { BadRequestError, NotFoundError } from "@pandastack/sdk";
import { client, make, MISSING } from "./support/harness.mjs";

const adopt = (children) => {
  after(() => Promise.allSettled(children.map((child) => child.kill())));
  return children;
};

test("fork copies the whole machine", async () => {
  const parent = await make();
  const context = await parent.createCodeContext();
  await context.runCode("x = 41");
  await parent.exec("echo before > /root/file", { check: true });
  const [child] = adopt([await parent.fork({ metadata: { role: "heir" } })]);
  assert.notEqual(child.id, parent.id);
  assert.equal((await child.exec("cat /root/file")).stdout, "before\n");
  await child.exec("echo after > /root/file", { check: true });
  assert.equal((await parent.exec("cat /root/file")).stdout, "before\n");
  const { info: found } = await client.sandboxes.get(child.id);
  assert.equal(found.metadata.fork_parent_id, parent.id);
  assert.equal(found.metadata.role, "heir");
});

test("forkTree gives as many as were asked for, and promote keeps one", async () => {
  const parent = await make();
  const [winner, ...losers] = adopt(await parent.forkTree({ count: 3 }));
  assert.equal(losers.length, 2);
  const told = await winner.promote({ cleanupSiblings: true });
  assert.deepEqual([...told.deleted].sort(), losers.map((loser) => loser.id).sort());
  assert.equal((await winner.exec("echo here")).stdout, "here\n");
  for (const loser of losers) await assert.rejects(client.sandboxes.get(loser.id), NotFoundError);
});

test("explore keeps the best", async () => {
  const parent = await make();
  const result = await parent.explore(["echo 2", "echo 5", "echo 3"], {
    scoreFn: (_, outcome) => Number(outcome.stdoutTail),
  });
  adopt([result.winner]);
  assert.equal(result.outcomes.length, 3);
  assert.equal(result.outcomes[0].stdoutTail.trim(), "5");
});

test("a sandbox begins at a snapshot", async () => {
  const saved = await make();
  await saved.exec("echo then > /root/file", { check: true });
  const snapshot = await saved.snapshot();
  after(() => client.snapshots.delete(snapshot.id).catch(() => {}));
  await saved.exec("echo later > /root/file", { check: true });
  const begun = await make({ from_snapshot: snapshot.id });
  assert.equal((await begun.exec("cat /root/file")).stdout, "then\n");
  const listed = await client.snapshots.list({ sandboxId: saved.id });
  assert.ok(listed.some((known) => known.id === snapshot.id));
  await client.snapshots.delete(snapshot.id);
  await assert.rejects(client.snapshots.get(snapshot.id), NotFoundError);
  await assert.rejects(make({ from_snapshot: MISSING }), NotFoundError);
});

test("a sandbox sleeps, wakes by itself, and both may be repeated", async () => {
  const own = await make();
  await own.exec("echo before > /root/file", { check: true });
  for (let round = 0; round < 2; round += 1) await own.hibernate();
  assert.equal((await client.sandboxes.get(own.id)).info.status, "hibernated");
  assert.equal((await own.exec("cat /root/file")).stdout, "before\n");
  for (let round = 0; round < 2; round += 1) await own.wake();
  assert.equal((await client.sandboxes.get(own.id)).info.status, "running");
});

test("a sandbox of no tree cannot be promoted", async () => {
  const own = await make();
  await assert.rejects(own.promote({ cleanupSiblings: true }), BadRequestError);
});
