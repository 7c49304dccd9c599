// Files through the API.

import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { BadRequestError, NotFoundError } from "@pandastack/sdk";
import { call, shared } from "./support/harness.mjs";

const sandbox = shared();
const files = () => sandbox().filesystem;

test("text that was written is read", async () => {
  const text = "zoë ☃ 😀\r\n\u2028";
  const answer = await files().write("/tmp/text/deep/f", text);
  assert.deepEqual(answer, { path: "/tmp/text/deep/f", bytes: Buffer.byteLength(text) });
  assert.equal(await files().read("/tmp/text/deep/f"), text);
});

test("bytes that were written are those bytes", async () => {
  const bytes = Uint8Array.from({ length: 1024 }, (_, index) => index % 256);
  await files().write("/tmp/bytes", bytes);
  const answer = await call("GET", `/v1/sandboxes/${sandbox().id}/fs?path=/tmp/bytes`);
  assert.deepEqual(new Uint8Array(await answer.arrayBuffer()), bytes);
});

test("upload and download carry local text files", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "conformance-"));
  t.after(() => rm(folder, { recursive: true }));
  await writeFile(join(folder, "here"), "zoë\n");
  await files().upload(join(folder, "here"), "/tmp/there");
  await files().download("/tmp/there", join(folder, "sub", "back"));
  assert.equal(await readFile(join(folder, "sub", "back"), "utf8"), "zoë\n");
});

for (const name of ["with space", "plus+and%20percent", "zoë 日本語 😀", "a&b=c?d#e", "quote'\"`$x", "new\nline"]) {
  test(`any name works everywhere: ${JSON.stringify(name)}`, async () => {
    const folder = `/tmp/names/${name}`;
    await files().write(`${folder}/${name}`, "x");
    assert.equal(await files().read(`${folder}/${name}`), "x");
    assert.equal((await files().stat(`${folder}/${name}`)).name, name);
    assert.deepEqual((await files().list(folder)).map((entry) => entry.path), [`${folder}/${name}`]);
  });
}

test("a listing tells files from directories, and links from both", async () => {
  await sandbox().exec("mkdir -p /tmp/list/d && cd /tmp/list && printf 12345 > f && ln -s d to-d", { check: true });
  const entries = Object.fromEntries((await files().list("/tmp/list")).map((entry) => [entry.name, entry]));
  assert.deepEqual(Object.keys(entries).sort(), ["d", "f", "to-d"]);
  assert.deepEqual([entries.d.is_dir, entries.f.is_dir, entries["to-d"].is_dir], [true, false, false]);
  assert.equal(entries.f.size, 5);
  assert.ok(entries.f.mtime > 1_700_000_000 && entries.f.mode.length > 0);
});

test("walk goes down every directory", async () => {
  const tree = "mkdir -p /tmp/walk/a/b && cd /tmp/walk && touch 1 a/b/2 && ln -s . loop";
  await sandbox().exec(tree, { check: true });
  const seen = [];
  for await (const { dir, files: found } of files().walk("/tmp/walk")) {
    assert.ok(seen.push([dir, found.map((file) => file.name).sort()]) < 10, "it goes round in circles");
  }
  assert.deepEqual(seen, [["/tmp/walk", ["1", "loop"]], ["/tmp/walk/a", []], ["/tmp/walk/a/b", ["2"]]]);
});

test("what is missing is not found", async () => {
  assert.equal(await files().exists("/tmp/no"), false);
  assert.equal(await files().exists("/tmp"), true);
  for (const attempt of ["read", "stat", "list"]) {
    await assert.rejects(files()[attempt]("/tmp/no"), NotFoundError);
  }
});

test("a directory read as a file is refused", async () => {
  await assert.rejects(files().read("/tmp"), BadRequestError);
  await assert.rejects(files().read("relative"), BadRequestError);
});
