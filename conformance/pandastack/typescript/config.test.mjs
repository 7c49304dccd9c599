// How a client finds the server, and with which key.

import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { AuthError, Client, NetworkError, Sandbox } from "@pandastack/sdk";
import { API, KEY } from "./support/harness.mjs";

function set(variables) {
  for (const [name, value] of Object.entries(variables)) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  }
}

/** Runs `body` with another environment and restores the old one. */
async function withEnvironment(changes, body) {
  const old = Object.fromEntries(Object.keys(changes).map((name) => [name, process.env[name]]));
  set(changes);
  try {
    return await body();
  } finally {
    set(old);
  }
}

test("two environment variables are enough", async () => {
  assert.ok(await new Client().me());
});

for (const suffix of ["", "/", "/v1", "/v1/"]) {
  test(`the address may end in "${suffix}"`, async () => {
    assert.ok(await new Client({ apiUrl: API + suffix }).me());
  });
}

test("arguments win over the environment", async () => {
  await withEnvironment({ PANDASTACK_API: "http://127.0.0.1:1", PANDASTACK_API_KEY: "wrong" }, async () => {
    assert.ok(await new Client({ apiUrl: API, apiKey: KEY }).me());
    await assert.rejects(new Client({ apiKey: KEY }).me(), NetworkError);
  });
});

for (const name of ["token", "apiKey", "api_key"]) {
  test(`the key may be in the configuration file as ${name}`, async (t) => {
    const home = await mkdtemp(join(tmpdir(), "conformance-"));
    t.after(() => rm(home, { recursive: true }));
    await mkdir(join(home, ".config", "pandastack"), { recursive: true });
    await writeFile(join(home, ".config", "pandastack", "config.json"), JSON.stringify({ [name]: KEY }));
    await withEnvironment({ HOME: home, PANDASTACK_API_KEY: undefined }, async () => {
      assert.ok(await new Client().me());
    });
  });
}

test("without a key the server says 401", async (t) => {
  const home = await mkdtemp(join(tmpdir(), "conformance-"));
  t.after(() => rm(home, { recursive: true }));
  await withEnvironment({ HOME: home, PANDASTACK_API_KEY: undefined }, async () => {
    await assert.rejects(new Client().me(), (error) => error instanceof AuthError && error.statusCode === 401);
  });
});

test("the static methods make a client of their own", async () => {
  const sandbox = await Sandbox.create({ template: "base" }, { apiUrl: API, apiKey: KEY });
  try {
    assert.ok((await Sandbox.list()).some((listed) => listed.id === sandbox.id));
    assert.equal((await Sandbox.get(sandbox.id, new Client())).id, sandbox.id);
  } finally {
    await sandbox.kill();
  }
});
