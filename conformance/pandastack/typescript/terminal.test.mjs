// Terminals and commands over WebSocket, with the library that PandaStack's own command line uses.

import assert from "node:assert/strict";
import { test } from "node:test";
import WebSocket from "ws";
import { API, KEY, MISSING, shared, until } from "./support/harness.mjs";

const sandbox = shared();

/** Opens a socket and collects terminal bytes and parsed JSON. */
function open(path, key = KEY) {
  const url = new URL(path, API);
  url.protocol = "ws:";
  const socket = new WebSocket(url, { headers: { authorization: `Bearer ${key}` } });
  const heard = { socket, bytes: "", messages: [] };
  socket.on("message", (data, isBinary) => {
    if (isBinary) heard.bytes += data.toString("utf8");
    else heard.messages.push(JSON.parse(data.toString("utf8")));
  });
  return new Promise((resolve, reject) => {
    socket.on("open", () => resolve(heard));
    socket.on("unexpected-response", (request, response) => {
      request.destroy();
      reject(Object.assign(new Error("refused"), { status: response.statusCode }));
    });
    socket.on("error", reject);
  });
}

for (const route of ["ssh", "exec/pty"]) {
  test(`${route} is a terminal that can be resized and reports its exit`, async () => {
    const terminal = await open(`/v1/sandboxes/${sandbox().id}/${route}?rows=31&cols=97`);
    terminal.socket.send(Buffer.from("stty size; tty\n"));
    await until("the size is right", () => /31 97[^]*\/dev\//.test(terminal.bytes));
    terminal.socket.send(JSON.stringify({ resize: { rows: 40, cols: 120 } }));
    await until("the new size is there", () => {
      terminal.socket.send(Buffer.from("stty size\n"));
      return terminal.bytes.includes("40 120");
    });
    terminal.socket.send(Buffer.from("exit 7\n"));
    await until("the exit is told", () => terminal.messages.some((message) => message.exit === 7));
    await until("the socket closes", () => terminal.socket.readyState === WebSocket.CLOSED);
  });
}

test("exec/ws runs many commands over one socket", async () => {
  const commands = await open(`/v1/sandboxes/${sandbox().id}/exec/ws`);
  commands.socket.send(JSON.stringify({ id: "slow", cmd: "sleep 2; echo slow" }));
  commands.socket.send(JSON.stringify({ id: "quick", cmd: "echo zoë; echo err >&2; exit 3" }));
  commands.socket.send(JSON.stringify({ id: "endless", cmd: "sleep 600" }));
  const of = (id) => commands.messages.filter((message) => message.id === id);
  const text = (id, stream) => of(id).map((message) => (message.stream === stream ? message.data : "")).join("");
  await until("both end", () => ["slow", "quick"].every((id) => of(id).some((message) => "exit" in message)));
  assert.deepEqual([text("quick", "stdout"), text("quick", "stderr"), of("quick").at(-1).exit], ["zoë\n", "err\n", 3]);
  assert.equal(text("slow", "stdout"), "slow\n");
  const ends = commands.messages.filter((message) => "exit" in message).map((message) => message.id);
  assert.deepEqual(ends, ["quick", "slow"]);
  commands.socket.send(JSON.stringify({ id: "endless", cancel: true }));
  await until("the cancelled one ends", () => of("endless").some((message) => "exit" in message || "error" in message));
  commands.socket.close();
});

test("exec/ws tells of a character that was never completed before it tells the end", async () => {
  const commands = await open(`/v1/sandboxes/${sandbox().id}/exec/ws`);
  commands.socket.send(JSON.stringify({ id: 1, cmd: "printf 'a\\303'" }));
  await until("it ends", () => commands.messages.some((message) => "exit" in message));
  const text = commands.messages.slice(0, -1).map((message) => message.data).join("");
  assert.deepEqual([text, commands.messages.at(-1)], ["a\ufffd", { id: 1, exit: 0 }]);
  commands.socket.close();
});

test("a socket needs a key and a sandbox that is there", async () => {
  await assert.rejects(open(`/v1/sandboxes/${sandbox().id}/ssh`, "pds_wrong"), { status: 401 });
  await assert.rejects(open(`/v1/sandboxes/${MISSING}/ssh`), { status: 404 });
});
