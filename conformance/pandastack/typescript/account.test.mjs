// The current key, all keys, templates and errors.

import assert from "node:assert/strict";
import { test } from "node:test";
import { AuthError, Client, NotFoundError } from "@pandastack/sdk";
import { call, client } from "./support/harness.mjs";

test("me is an object", async () => {
  const me = await client.me();
  assert.equal(typeof me, "object");
  assert.ok(Object.keys(me).length > 0);
});

test("a token works until it is revoked", async () => {
  const made = await client.tokens.create("conformance-typescript");
  assert.equal(made.label, "conformance-typescript");
  assert.ok(made.token.startsWith(made.prefix));
  const listed = (await client.tokens.list()).find((token) => token.prefix === made.prefix);
  assert.equal(listed.label, "conformance-typescript");
  assert.equal(listed.token, undefined);
  const byToken = new Client({ apiKey: made.token });
  assert.ok(await byToken.me());
  await client.tokens.revoke(made.prefix);
  await assert.rejects(byToken.me(), (error) => error instanceof AuthError && error.statusCode === 401);
  await assert.rejects(client.tokens.revoke(made.prefix), NotFoundError);
});

test("templates are listed and can be looked at", async () => {
  const names = (await client.templates.list()).map((template) => template.name);
  assert.ok(names.includes("base") && names.includes("code-interpreter"));
  assert.ok((await client.templates.get("ubuntu-24.04")).cpu >= 1);
  await assert.rejects(client.templates.get("no-such-template"), NotFoundError);
  await assert.rejects(client.templates.delete("no-such-template"), NotFoundError);
});

test("builds are listed and an unknown one is not found", async () => {
  assert.ok(Array.isArray(await client.templates.builds()));
  await assert.rejects(client.templates.buildStatus("no-such-build"), NotFoundError);
  await assert.rejects(client.templates.buildLogs("no-such-build").next(), NotFoundError);
});

const hopeless = {
  register: { imageRef: "registry.invalid/none:1" },
  buildFromDockerfile: { dockerfile: "FROM registry.invalid/none\nCOPY a /a\n", context: { "a/b.txt": "zoë" } },
  build: { rootfs: new Uint8Array(700) },
};

for (const [method, options] of Object.entries(hopeless)) {
  test(`a build that cannot succeed says so and leaves no template: ${method}`, async () => {
    const name = `conformance-ts-${method.toLowerCase()}`;
    await assert.rejects(async () => {
      const build = await client.templates[method]({ name, sizeMb: 64, ...options });
      assert.ok((await client.templates.builds()).some((known) => known.id === build.id));
      await client.templates.waitForBuild(build.id, { intervalMs: 200, timeoutMs: 60_000 });
    }, (error) => error.name !== "AssertionError");
    assert.ok(!(await client.templates.list()).some((template) => template.name === name));
  });
}

test("a Dockerfile becomes a template, and a template another", async () => {
  const name = "conformance-ts-built";
  const dockerfile = "FROM debian:13\nENV WHO=built\nCOPY sub /srv/\n# a comment\nRUN chmod 600 /srv/b.txt\n";
  const build = await client.templates.buildFromDockerfile({ name, dockerfile, context: { "sub/b.txt": "zoë" } });
  const lines = [];
  for await (const line of client.templates.buildLogs(build.id)) lines.push(line);
  assert.ok(lines.some((line) => line.includes("RUN chmod 600")), lines.join("\n"));
  await client.templates.waitForBuild(build.id, { intervalMs: 200, timeoutMs: 60_000 });
  const registered = await client.templates.register({ name: `${name}-2`, imageRef: name });
  await client.templates.waitForBuild(registered.id, { intervalMs: 200, timeoutMs: 60_000 });
  for (const template of [name, `${name}-2`]) {
    const sandbox = await client.sandboxes.create({ template });
    try {
      const said = await sandbox.exec("cat /srv/b.txt; echo; stat -c %a /srv/b.txt; echo $WHO");
      assert.equal(said.stdout, "zoë\n600\nbuilt\n", template);
    } finally {
      await sandbox.kill();
    }
  }
  for (const template of [`${name}-2`, name]) await client.templates.delete(template);
});

test("an error carries its status and one sentence", async () => {
  await assert.rejects(client.request("GET", "/nothing"), (error) => {
    assert.equal(error.statusCode, 404);
    assert.ok(error.message.length > 0 && !error.message.startsWith("{"));
    return true;
  });
});

test("an empty post with the type that fetch gives it is not a bad request", async () => {
  const answer = await call("POST", "/v1/sandboxes/x/pause", { body: "" });
  assert.equal(answer.status, 404);
});
