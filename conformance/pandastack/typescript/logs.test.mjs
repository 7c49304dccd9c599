// The console of a sandbox.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { NotFoundError, Sandbox } from "@pandastack/sdk";
import { client, MISSING, shared, until } from "./support/harness.mjs";

const sandbox = shared();

const say = (text) => sandbox().exec(`printf '%s\\n' '${text}' > /dev/console`, { check: true });

async function read(options) {
  const lines = [];
  for await (const line of sandbox().logs(options)) lines.push(line);
  return lines;
}

for (const options of [undefined, { stream: "both" }, { follow: false }]) {
  test(`what the guest says is in the logs: ${JSON.stringify(options)}`, async () => {
    const line = `zoë ☃ ${randomUUID()}`;
    await say(line);
    await until("the line is in the logs", async () => (await read(options)).includes(line));
  });
}

test("follow yields lines as they are said", async () => {
  const mark = randomUUID();
  const heard = [];
  const following = (async () => {
    for await (const line of sandbox().logs({ follow: true, stream: "both" })) {
      heard.push(line);
      if (line === `last ${mark}`) return;
    }
  })();
  await until("the follower is there", async () => {
    await say(`first ${mark}`);
    return heard.includes(`first ${mark}`);
  });
  await say(`last ${mark}`);
  await following;
  assert.ok(!heard.some((line) => line.startsWith("{") || line.includes("\r")), "bogus lines");
});

test("the logs of an unknown sandbox are not found", async () => {
  for (const follow of [false, true]) {
    const logs = Sandbox.fromInfo({ id: MISSING }, client).logs({ follow });
    await assert.rejects(logs.next(), NotFoundError);
  }
});
