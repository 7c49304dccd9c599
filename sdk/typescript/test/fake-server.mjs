/** A server that answers as it is told and remembers what it was asked: for what no real server can be made to do. */

import { createServer } from "node:http";
import { once } from "node:events";

/** `answers` maps "METHOD /path" to an answer, or to a list of answers that are used up one by one. */
export async function fakeServer(answers) {
  const asked = [];
  const server = createServer(async (request, response) => {
    const pieces = [];
    for await (const piece of request) pieces.push(piece);
    const text = Buffer.concat(pieces).toString("utf8");
    const { method, url: path, headers } = request;
    asked.push({ method, path, headers, body: text ? JSON.parse(text) : undefined });
    const found = answers[`${method} ${path}`];
    const answer = (Array.isArray(found) ? found.shift() : found) ?? { status: 404, body: { error: "no answer" } };
    if (answer.hangUp) return void request.socket.destroy();
    response.writeHead(answer.status ?? 200, { "x-request-id": "abc123", ...answer.headers });
    response.end(typeof answer.body === "string" ? answer.body : JSON.stringify(answer.body ?? ""));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${server.address().port}`;
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  return { url, asked, close };
}
