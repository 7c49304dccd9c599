import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { Sandbox, Volume } from "e2b";
import { make } from "./support/harness.mjs";

test("a volume outlives its sandboxes, and its files are seen from outside", async () => {
  const volume = await Volume.create(`conformance-${randomUUID().slice(0, 8)}`);
  try {
    assert.ok((await Volume.list()).some((known) => known.volumeId === volume.volumeId));
    await volume.writeFile("/in/note.txt", "zoë", { uid: 1000, mode: 0o640 });
    await volume.writeFile("/empty", "");
    const sandbox = await make(Sandbox, "base", { volumeMounts: { "/data": volume } });
    const { stdout } = await sandbox.commands.run("cat /data/in/note.txt; stat -c ' %a %u' /data/in/note.txt; echo out >/data/out");
    assert.equal(stdout, "zoë 640 1000\n");
    await sandbox.kill();
    assert.equal(await volume.readFile("/out"), "out\n");
    assert.equal(await volume.readFile("/empty"), "");
    assert.deepEqual((await volume.list("/in")).map((entry) => [entry.path, entry.size]), [["/in/note.txt", 4]]);
    assert.equal((await Volume.connect(volume.volumeId)).name, volume.name);
    assert.equal((await Volume.getInfo(volume.volumeId)).name, volume.name);
    assert.equal((await volume.makeDir("/d/e", { force: true, mode: 0o750 })).mode, 0o750);
    assert.equal((await volume.getInfo("/d/e")).type, "directory");
    assert.equal((await volume.updateMetadata("/d/e", { gid: 5 })).gid, 5);
    await volume.remove("/in");
    assert.equal(await volume.exists("/in"), false);
  } finally {
    assert.equal(await Volume.destroy(volume.volumeId), true);
  }
});
