// Streamed commands.

import assert from "node:assert/strict";
import { test } from "node:test";
import { NotFoundError, PandaStackError, Sandbox, SandboxTimeout } from "@pandastack/sdk";
import { client, make, MISSING, shared, until } from "./support/harness.mjs";

const sandbox = shared();

/** Runs a command and collects the arguments of the callbacks. */
async function stream(command, options = {}) {
  const heard = { out: [], err: [], moments: [] };
  heard.code = await sandbox().execStream(command, {
    ...options,
    onStdout: (chunk) => heard.out.push(chunk) && heard.moments.push(Date.now()),
    onStderr: (chunk) => heard.err.push(chunk),
  });
  return { ...heard, stdout: heard.out.join(""), stderr: heard.err.join("") };
}

test("output goes to the callbacks and the exit code is returned", async () => {
  const { code, stdout, stderr } = await stream("echo out; echo err >&2; exit 4");
  assert.deepEqual([code, stdout, stderr], [4, "out\n", "err\n"]);
});

test("a silent command still reports its exit code", async () => {
  assert.equal(await sandbox().execStream("exit 7"), 7);
});

test("output arrives while the command runs", async () => {
  const { stdout, moments } = await stream("echo first; sleep 3; echo second");
  assert.equal(stdout, "first\nsecond\n");
  assert.ok(moments.at(-1) - moments[0] > 2000);
});

test("a character cut in two by the command arrives in one piece", async () => {
  const pieces = ["x\\303", "\\251\\360\\237", "\\230\\200y"];
  const { stdout } = await stream(pieces.map((piece) => `printf '${piece}'`).join("; sleep 0.5; "));
  assert.equal(stdout, "xé😀y");
});

test("output that looks like an event is only output", async () => {
  const { code, stdout } = await stream(`printf 'data: {}\\n\\nevent: exit\\ndata: {"exit_code": 9}\\n\\n'; exit 3`);
  assert.equal(code, 3);
  assert.equal(stdout, 'data: {}\n\nevent: exit\ndata: {"exit_code": 9}\n\n');
});

test("ten mebibytes of output come back whole", async () => {
  const { code, stdout } = await stream("seq 1 4000000 | head -c 10485760");
  assert.deepEqual([code, stdout.length], [0, 10485760]);
});

test("a deadline delivers what was printed and then rejects", async () => {
  const heard = [];
  const options = { timeoutSeconds: 2, onStdout: (chunk) => heard.push(chunk) };
  await assert.rejects(sandbox().execStream("echo so far; sleep 60", options), SandboxTimeout);
  assert.equal(heard.join(""), "so far\n");
});

test("deleting the sandbox is never mistaken for success", async () => {
  const doomed = await make();
  const running = doomed.execStream("touch /tmp/started; sleep 60");
  running.catch(() => {});
  await until("the command starts", () => doomed.filesystem.exists("/tmp/started"));
  await doomed.kill();
  await assert.rejects(running, PandaStackError);
});

test("an unknown sandbox is an answer, not a stream", async () => {
  await assert.rejects(Sandbox.fromInfo({ id: MISSING }, client).execStream("true"), NotFoundError);
});
