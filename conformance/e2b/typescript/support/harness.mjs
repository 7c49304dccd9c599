// What the tests share: sandboxes that end with their test, waiting with a deadline.

import { after, before } from "node:test";

/** Makes a sandbox that is ended after the test that asked for it. */
export async function make(kind, ...options) {
  const sandbox = await kind.create(...options);
  after(() => sandbox.kill());
  return sandbox;
}

/** One sandbox for all tests of this file; read it through the returned function. */
export function shared(kind, ...options) {
  let sandbox;
  before(async () => {
    sandbox = await kind.create(...options);
  });
  after(() => sandbox.kill());
  return () => sandbox;
}

/** Asks `condition` until it answers something true, and returns that. */
export async function until(what, condition, seconds = 30) {
  const deadline = Date.now() + seconds * 1000;
  for (;;) {
    const answer = await condition();
    if (answer) return answer;
    if (Date.now() > deadline) throw new Error(`${what} did not happen within ${seconds} s`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
