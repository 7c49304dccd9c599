import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { configured } from "../dist/config.js";
import * as errors from "../dist/errors.js";
import { VERSION } from "../dist/index.js";
import { createBody, execBody } from "../dist/options.js";
import { delaySeconds } from "../dist/retry.js";
import { EventDecoder } from "../dist/sse.js";

test("the version is the package's", async () => {
  const { version } = JSON.parse(await readFile(new URL("../package.json", import.meta.url), "utf8"));
  assert.equal(VERSION, version);
});

for (const size of [1, 2, 3, 7, 1000]) {
  test(`events come out whole from pieces of ${size} bytes`, () => {
    const sent = Buffer.from(': ping\n\nevent: stdout\ndata: {"chunk":"ä\u2028"}\n\ndata: one\r\ndata: two\r\n\r\n');
    const decoder = new EventDecoder();
    const events = [];
    for (let at = 0; at < sent.length; at += size) events.push(...decoder.feed(sent.subarray(at, at + size)));
    const expected = [
      { name: "stdout", data: '{"chunk":"ä\u2028"}' },
      { name: "message", data: "one\ntwo" },
    ];
    assert.deepEqual(events, expected);
  });
}

test("a status becomes its error", () => {
  const kinds = { 400: "BadRequestError", 401: "AuthError", 403: "ForbiddenError", 404: "NotFoundError" };
  Object.assign(kinds, { 409: "ConflictError", 429: "LimitError", 500: "ServerError", 503: "CapacityError" });
  for (const [status, kind] of Object.entries(kinds)) {
    const body = JSON.stringify({ error: "no", code: "because", request_id: "r", more: 1 });
    const error = errors.fromAnswer(Number(status), { "retry-after": "2.5" }, body);
    assert.equal(error.name, kind);
    assert.deepEqual([error.status, error.code, error.requestId, error.retryAfter], [+status, "because", "r", 2.5]);
    assert.deepEqual([error.message, error.details], ["no", { more: 1 }]);
  }
});

test("a command's deadline keeps its output, and other gateway errors do not pass for one", () => {
  const late = errors.fromAnswer(504, {}, '{"error":"command timeout","code":"command_timeout","stdout":"a"}');
  assert(late instanceof errors.SandboxTimeout);
  assert.deepEqual([late.stdout, late.stderr], ["a", ""]);
  assert.equal(errors.fromAnswer(504, {}, "gateway timeout").name, "ServerError");
  assert.equal(errors.fromAnswer(502, {}, "").message, "the server answered 502");
});

test("a full disk is no lack of room for machines", () => {
  const full = errors.fromAnswer(507, {}, '{"error":"no space left on device","code":"no_space"}');
  assert.deepEqual([full.name, full instanceof errors.CapacityError], ["NoSpaceError", false]);
});

test("a refusal is tried again only if waiting helps", () => {
  const wait = (status, retryAfter, elapsed = 0) =>
    delaySeconds(new errors.SandlingError("no", { status, retryAfter }), 0, elapsed, 60);
  assert(wait(503, 5) >= 5 && wait(429, 1) >= 1 && wait(507) >= 0.5);
  for (const never of [wait(503), wait(429), wait(500, 1), wait(503, 5, 56)]) assert.equal(never, undefined);
});

test("what is not given is not sent", () => {
  const signal = AbortSignal.timeout(1);
  assert.deepEqual(createBody({ ttlSeconds: 5, cpu: undefined, signal }), {
    template: "code-interpreter",
    ttl_seconds: 5,
  });
  const volumes = [
    { name: "a", mount: "/a" },
    { name: "b", readOnly: true },
  ];
  assert.deepEqual(createBody({ image: "python:3.12-slim" }), { image: "python:3.12-slim" });
  assert.throws(() => createBody({ template: "base", image: "python:3.12-slim" }), /a template or an image/);
  assert.deepEqual(createBody({ volumes }).volumes, [
    { read_only: false, name: "a", mount: "/a" },
    { read_only: true, name: "b" },
  ]);
  assert.deepEqual(execBody("ls", { check: true, onStdout: () => {} }), { cmd: "ls" });
  assert.deepEqual(execBody(["a", "b"], { timeoutSeconds: 2 }), { args: ["a", "b"], timeout_seconds: 2 });
});

test("the home's token never leaves this machine", () => {
  process.env.SANDLING_HOME = mkdtempSync(join(tmpdir(), "sandling-"));
  delete process.env.SANDLING_TOKEN;
  writeFileSync(join(process.env.SANDLING_HOME, "token"), "sdl_secret\n");
  assert.deepEqual(configured("http://127.0.0.1:8080/v1/"), { url: "http://127.0.0.1:8080", token: "sdl_secret" });
  for (const far of ["https://api.example.org", "http://127.0.0.1.example.org", "http://localhost@example.org"]) {
    assert.throws(() => configured(far), errors.ConfigError);
  }
  rmSync(process.env.SANDLING_HOME, { recursive: true });
});
