// How long a sandbox lives, whether it is paused, and which of its ports are open.

import assert from "node:assert/strict";
import { test } from "node:test";
import { BadRequestError } from "@pandastack/sdk";
import { client, shared, until } from "./support/harness.mjs";

const sandbox = shared();

test("ttl and persistence can be set and read", async () => {
  assert.equal((await sandbox().setTtl(1234)).ttl_seconds, 1234);
  assert.equal((await sandbox().setPersistent(true)).persistent, true);
  const found = await sandbox().lifecycle();
  assert.deepEqual([found.ttl_seconds, found.persistent], [1234, true]);
  assert.ok(Number.isInteger(found.idle_seconds));
  assert.equal((await sandbox().setPersistent(false)).persistent, false);
});

test("a negative ttl is refused", async () => {
  await assert.rejects(sandbox().setTtl(-1), BadRequestError);
});

test("pause and resume show in the status and may be repeated", async () => {
  const status = async () => (await client.sandboxes.get(sandbox().id)).status;
  for (const _ of [1, 2]) {
    await sandbox().pause();
    assert.equal(await status(), "paused");
  }
  for (const _ of [1, 2]) {
    await sandbox().resume();
    assert.equal(await status(), "running");
  }
  assert.equal((await sandbox().exec("echo back")).stdout, "back\n");
});

test("previewUrl names the port and the sandbox", () => {
  assert.equal(sandbox().previewUrl(3000), `https://3000-${sandbox().id}.127.0.0.1`);
  assert.throws(() => sandbox().previewUrl(0), RangeError);
});

test("previewUrls lists the ports that are open", async () => {
  await sandbox().exec("setsid python3 -m http.server 8124 >/dev/null 2>&1 </dev/null &", { check: true });
  const urls = await until("the port is listed", async () => {
    const found = await sandbox().previewUrls();
    return 8124 in found && found;
  });
  assert.equal(urls[8124], sandbox().previewUrl(8124));
});
