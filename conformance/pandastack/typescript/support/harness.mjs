// What the tests share: the server's address, sandboxes that end with their test, waiting with a deadline.

import { after, before } from "node:test";
import { Client, NotFoundError } from "@pandastack/sdk";

export const API = process.env.PANDASTACK_API;
export const KEY = process.env.PANDASTACK_API_KEY;
export const MISSING = "00000000-0000-4000-8000-000000000000";

export const client = new Client();

/** Makes a sandbox that is ended after the test that asked for it. */
export async function make(options = {}) {
  const sandbox = await client.sandboxes.create({ template: "base", ...options });
  after(() => end(sandbox));
  return sandbox;
}

/** One sandbox for all tests of this file; read it through the returned function. */
export function shared(options) {
  let sandbox;
  before(async () => {
    sandbox = await client.sandboxes.create({ template: "base", ...options });
  });
  after(() => end(sandbox));
  return () => sandbox;
}

async function end(sandbox) {
  try {
    await sandbox.kill();
  } catch (error) {
    if (!(error instanceof NotFoundError)) throw error;
  }
}

/** Asks `condition` until it answers something true, and returns that. */
export async function until(what, condition, seconds = 30) {
  const deadline = Date.now() + seconds * 1000;
  for (;;) {
    const found = await condition();
    if (found) return found;
    if (Date.now() > deadline) throw new Error(`${what}: not within ${seconds} s`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** One request as it is, with the key, without the client. */
export function call(method, path, init = {}) {
  const headers = { authorization: `Bearer ${KEY}`, ...init.headers };
  return fetch(new URL(path, API), { redirect: "manual", ...init, method, headers });
}
