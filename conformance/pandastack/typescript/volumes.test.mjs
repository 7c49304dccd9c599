// Volumes: named disks that outlive sandboxes.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { NotFoundError, PandaStackError } from "@pandastack/sdk";
import { client, make } from "./support/harness.mjs";

test("what is written to a volume outlives the sandbox", async () => {
  const name = `conformance-ts-${process.pid}`;
  const made = await client.volumes.create({ name, size_mb: 64 });
  after(() => client.volumes.delete(name).catch(() => {}));
  assert.equal(made.name, name);
  const writer = await make({ volumes: [{ name }] });
  await writer.exec(`echo kept > /mnt/${name}/file`, { check: true });
  await assert.rejects(make({ volumes: [{ name, readOnly: true }] }), PandaStackError);
  await assert.rejects(client.volumes.delete(name), PandaStackError);
  await writer.kill();
  const reader = await make({ volumes: [{ name, readOnly: true }] });
  assert.equal((await reader.exec(`cat /mnt/${name}/file`)).stdout, "kept\n");
  await reader.kill();
  assert.ok((await client.volumes.list()).some((volume) => volume.name === name));
  await client.volumes.delete(name);
  await assert.rejects(client.volumes.get(name), NotFoundError);
});
