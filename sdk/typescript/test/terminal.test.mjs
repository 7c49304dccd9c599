/** Terminals, with a server that shows what it is told. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { WebSocketServer } from "ws";

import * as sandling from "../dist/index.js";
import { fakeServer } from "./fake-server.mjs";

const BOX = { id: "box", template: "base", status: "running", persistent: false };

/** Runs `work` with a terminal and the server's end of it. */
async function against(work) {
  const server = await fakeServer({ "GET /v1/sandboxes/box": { body: BOX } });
  const terminals = new WebSocketServer({ noServer: true });
  const accepted = new Promise((resolve) => {
    server.http.on("upgrade", (request, socket, head) => terminals.handleUpgrade(request, socket, head, resolve));
  });
  const client = new sandling.Client({ apiUrl: server.url, apiKey: "key" });
  try {
    const terminal = await (await client.sandboxes.get("box")).terminal();
    await work(terminal, await accepted);
    await terminal.close();
  } finally {
    client.close();
    for (const socket of terminals.clients) socket.terminate();
    await server.close();
  }
}

test("a terminal may be silent for months", async () => {
  await against(async (terminal, shell) => {
    const shown = terminal.read({ timeoutMs: 100 * 24 * 3600 * 1000 });
    setTimeout(() => shell.send(Buffer.from("late")), 100);
    assert.equal(String(await shown), "late");
  });
});
