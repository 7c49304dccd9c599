/** Terminals, with a scripted server. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";

import { WebSocketServer } from "ws";

import { RecordingTransport } from "../dist/audit.js";
import * as sandling from "../dist/index.js";
import { fakeServer } from "./fake-server.mjs";

const BOX = { id: "box", template: "base", status: "running", persistent: false };

/** Runs `work` with a terminal and the server's end of it. */
async function against(work, audit) {
  const server = await fakeServer({ "GET /v1/sandboxes/box": { body: BOX } });
  const terminals = new WebSocketServer({ noServer: true });
  const accepted = new Promise((resolve) => {
    server.http.on("upgrade", (request, socket, head) => terminals.handleUpgrade(request, socket, head, resolve));
  });
  const client = new sandling.Client({ apiUrl: server.url, apiKey: "key" });
  try {
    const box = await client.sandboxes.get("box");
    const recorded = audit ? box.through(new RecordingTransport(client.transport, audit, null)) : box;
    const terminal = await recorded.terminal();
    await work(terminal, await accepted);
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

test("what was shown while something else was waited for is not lost", async () => {
  await against(async (terminal, shell) => {
    shell.send(Buffer.from("password: "));
    await assert.rejects(terminal.readUntil("$ ", { timeoutMs: 200 }), sandling.RequestTimeout);
    assert.equal(String(await terminal.readUntil(": ")), "password: ");
  });
});

test("two who read at once both get something", async () => {
  await against(async (terminal, shell) => {
    const readers = [terminal.read(), terminal.read()];
    shell.send(Buffer.from("one"));
    await Promise.race(readers);
    shell.send(Buffer.from("two"));
    assert.deepEqual((await Promise.all(readers)).map(String).sort(), ["one", "two"]);
  });
});

test("what a terminal showed before it broke can be read", async () => {
  await against(async (terminal, shell) => {
    shell.send(Buffer.from("shown"));
    const NO_FRAME = Buffer.from([0xff, 0xff]);
    shell._socket.write(NO_FRAME);
    await once(shell, "close");
    assert.equal(String(await terminal.read()), "shown");
    await assert.rejects(terminal.read(), sandling.ConnectionError);
  });
});

test("a terminal whose record cannot be kept says so, and does not end the process", async () => {
  const full = () => {
    throw new Error("the disk is full");
  };
  const work = async (terminal, shell) => {
    shell.close();
    await assert.rejects(terminal.read(), /disk is full/);
    await assert.rejects(terminal.close(), /disk is full/);
  };
  await against(work, new sandling.AuditLog(full));
});
