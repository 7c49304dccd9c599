/** A scripted server that records its requests, for behavior that a real server cannot be made to show. */

import { createServer } from "node:http";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";

/** `answers` maps "METHOD /path" to an answer or a list of answers; or it is a function. */
export async function fakeServer(answers) {
  const requests = [];
  const server = createServer(async (request, response) => {
    const pieces = [];
    try {
      for await (const piece of request) pieces.push(piece);
    } catch {
      return; // The client disconnected.
    }
    const sent = Buffer.concat(pieces);
    const { method, url: path, headers } = request;
    const body = headers["content-type"]?.includes("json") ? JSON.parse(sent.toString("utf8")) : sent;
    requests.push({ method, path, headers, body: sent.length > 0 ? body : undefined });
    const found = typeof answers === "function" ? answers(requests.at(-1)) : answers[`${method} ${path}`];
    const answer = (Array.isArray(found) ? found.shift() : found) ?? { status: 404, body: { error: "no answer" } };
    if (answer.afterMs) await sleep(answer.afterMs);
    if (answer.hangUp) return void request.socket.destroy();
    const isText = typeof answer.body === "string" || Buffer.isBuffer(answer.body);
    const kind = isText ? "application/octet-stream" : "application/json";
    response.writeHead(answer.status ?? 200, { "x-request-id": "abc123", "content-type": kind, ...answer.headers });
    if (answer.cut) return void response.write(answer.body, () => request.socket.destroy());
    if (answer.hold) return void response.write(answer.body);
    response.end(isText ? answer.body : answer.body === undefined ? "" : JSON.stringify(answer.body));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${server.address().port}`;
  const close = async () => {
    const closed = once(server, "close");
    server.close();
    server.closeAllConnections();
    await closed;
  };
  return { url, requests, close, http: server };
}
