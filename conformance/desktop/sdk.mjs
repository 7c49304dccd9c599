/** Sandling's TypeScript SDK uses the parts of a desktop. */

import assert from "node:assert/strict";

import { Sandbox } from "sandling";

async function until(what, condition) {
  const deadline = Date.now() + 60_000;
  while (!(await condition())) assert.ok(Date.now() < deadline, `not within a minute: ${what}`);
}

const sandbox = await Sandbox.create({ template: "desktop", ttlSeconds: 900 });
try {
  const { desktop } = sandbox;
  assert.ok((await desktop.screenshot()).subarray(1, 4).equals(Buffer.from("PNG")));
  await desktop.move({ x: 10, y: 20 });
  assert.deepEqual(await desktop.cursor(), { x: 10, y: 20 });
  await desktop.launch("xterm", "-geometry", "80x20+200+200");
  const window = await desktop.waitForWindow("user@");
  assert.ok((await desktop.windows()).some((other) => other.id === window.id));
  await desktop.click({ x: 350, y: 350 });
  await desktop.type("cat >/tmp/typed\n");
  await desktop.type("a line\n");
  await desktop.press("ctrl", "d");
  await until("the text arrived", async () => (await sandbox.exec(["cat", "/tmp/typed"])).stdout === "a line\n");
  await desktop.scroll("up");
  await desktop.doubleClick({ x: 215, y: 238 });
  // By the title bar.
  const place = async () => (await desktop.windows()).find((other) => other.id === window.id);
  const before = await place();
  await desktop.drag({ x: 350, y: 212 }, { x: 450, y: 312 });
  await until("the window moved", async () => (await place()).x !== before.x);
  await desktop.clipboardSet("copy");
  assert.equal(await desktop.clipboardGet(), "copy");
  await desktop.resize({ width: 1280, height: 800 });
  assert.deepEqual(await desktop.size(), { width: 1280, height: 800 });
} finally {
  await sandbox.kill();
}
console.log("sdk: TypeScript used the mouse, the keyboard, windows and the clipboard");
