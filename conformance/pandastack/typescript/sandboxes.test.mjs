// Create, list, get, delete.

import assert from "node:assert/strict";
import { test } from "node:test";
import { BadRequestError, NotFoundError, PandaStackError } from "@pandastack/sdk";
import { client, make, MISSING } from "./support/harness.mjs";

test("create without arguments gives a running sandbox of the client's default template", async (t) => {
  const sandbox = await client.sandboxes.create();
  t.after(() => sandbox.kill());
  assert.equal(sandbox.status, "running");
  assert.equal((await sandbox.exec("echo up")).stdout, "up\n");
});

test("create keeps every field it was given", async () => {
  const metadata = { owner: "zoë 😀", "cma.session_id": "s-1" };
  const made = await make({ metadata, ttlSeconds: 777, persistent: true });
  const [listed] = (await client.sandboxes.list()).filter((sandbox) => sandbox.id === made.id);
  for (const { info } of [made, listed, await client.sandboxes.get(made.id)]) {
    assert.equal(info.metadata.owner, metadata.owner);
    assert.equal(info.metadata["cma.session_id"], "s-1");
    assert.equal(info.persistent, true);
    assert.ok(Number.isInteger(info.cpu) && Number.isInteger(info.memory_mb));
    assert.ok(!Number.isNaN(Date.parse(info.created_at)));
  }
  assert.equal((await made.lifecycle()).ttl_seconds, 777);
});

test("persistent: false is sent, and means what it says", async () => {
  assert.equal((await make({ persistent: false })).info.persistent, false);
});

test("the deprecated size options do no harm", async () => {
  assert.equal((await make({ cpu: 1, memoryMb: 256 })).status, "running");
});

test("a deleted sandbox is gone everywhere", async () => {
  const sandbox = await make();
  await sandbox.kill();
  assert.ok(!(await client.sandboxes.list()).some((listed) => listed.id === sandbox.id));
  await assert.rejects(client.sandboxes.get(sandbox.id), NotFoundError);
  await assert.rejects(sandbox.exec("true"), NotFoundError);
  await assert.rejects(sandbox.kill(), NotFoundError);
});

test("asyncDispose deletes the sandbox", async () => {
  const sandbox = await make();
  await sandbox[Symbol.asyncDispose]();
  await assert.rejects(client.sandboxes.get(sandbox.id), NotFoundError);
});

test("an unknown id is not found after the client's one retry", async () => {
  const started = Date.now();
  await assert.rejects(client.sandboxes.get(MISSING), (error) => {
    return error instanceof NotFoundError && error.statusCode === 404 && error.message.length > 0;
  });
  assert.ok(Date.now() - started >= 190);
  await assert.rejects(client.sandboxes.delete(MISSING), NotFoundError);
});

test("an id with odd characters is not found", async () => {
  for (const id of ["../me", "a b", "😀", "x/../../me"]) {
    await assert.rejects(client.sandboxes.get(id), (error) => [400, 404].includes(error.statusCode));
  }
});

test("an unknown template is refused", async () => {
  await assert.rejects(client.sandboxes.create({ template: "no-such-template" }), (error) => {
    return error instanceof BadRequestError && error.statusCode === 400;
  });
});

test("what is asked for and not there is refused, not left out", async () => {
  for (const wish of [{ fromSnapshot: "no-such-snapshot" }, { volumes: [{ name: "no-such-volume" }] }]) {
    await assert.rejects(client.sandboxes.create({ template: "base", ...wish }), PandaStackError);
  }
});
