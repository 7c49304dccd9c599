import assert from "node:assert/strict";
import { test } from "node:test";
import { CommandExitError, InvalidArgumentError, NotFoundError, Sandbox, TimeoutError } from "e2b";
import { shared, until } from "./support/harness.mjs";

const sandbox = shared(Sandbox, { timeoutMs: 600_000 });

test("streams and exit codes are true", async () => {
  const out = [];
  const result = await sandbox().commands.run("echo one; echo two >&2", { onStdout: (text) => out.push(text) });
  assert.deepEqual([result.stdout, result.stderr, result.exitCode, out.join("")], ["one\n", "two\n", 0, "one\n"]);
  await assert.rejects(sandbox().commands.run("exit 7"), (error) => error instanceof CommandExitError && error.exitCode === 7);
  assert.equal((await sandbox().commands.run("id -un", { user: "root" })).stdout, "root\n");
  await assert.rejects(sandbox().commands.run("pwd", { cwd: "/no/such" }), InvalidArgumentError);
});

test("input, background, list, kill", async () => {
  const cat = await sandbox().commands.run("cat", { background: true, stdin: true });
  await sandbox().commands.sendStdin(cat.pid, "given\n");
  await sandbox().commands.closeStdin(cat.pid);
  assert.equal((await cat.wait()).stdout, "given\n");
  const sleep = await sandbox().commands.run("sleep 100", { background: true });
  assert.ok((await sandbox().commands.list()).some((process) => process.pid === sleep.pid));
  assert.equal(await sleep.kill(), true);
  await assert.rejects(sleep.wait(), CommandExitError);
  await assert.rejects(sandbox().commands.connect(999999), NotFoundError);
});

test("a command that was left alone is looked at again", async () => {
  const left = await sandbox().commands.run("sleep 3; echo late", { background: true });
  await left.disconnect();
  const again = await sandbox().commands.connect(left.pid);
  assert.equal((await again.wait()).stdout, "late\n");
});

test("a deadline that was chosen is kept", async () => {
  await assert.rejects(sandbox().commands.run("sleep 100", { timeoutMs: 1500 }), TimeoutError);
});

test("a terminal is one", async () => {
  let seen = "";
  const terminal = await sandbox().pty.create({ rows: 30, cols: 100, onData: (bytes) => { seen += Buffer.from(bytes); } });
  // Bash sets the size that it has just read whenever it shows a prompt, and would undo a change in between.
  await sandbox().pty.sendInput(terminal.pid, Buffer.from("touch waits; read; stty size; exit\n"));
  await until("a command that waits", () => sandbox().files.exists("waits"));
  await sandbox().pty.resize(terminal.pid, { rows: 31, cols: 101 });
  await sandbox().pty.sendInput(terminal.pid, Buffer.from("\n"));
  await terminal.wait();
  assert.match(seen, /31 101/);
});

test("a terminal that was left alone is looked at again, and killed", async () => {
  let seen = "";
  const terminal = await sandbox().pty.create({ rows: 30, cols: 100, onData: () => {} });
  await terminal.disconnect();
  const again = await sandbox().pty.connect(terminal.pid, { onData: (bytes) => { seen += Buffer.from(bytes); } });
  await sandbox().pty.sendInput(terminal.pid, Buffer.from("echo $((6 * 7))\n"));
  await until("its answer", () => seen.includes("42"));
  assert.equal(await sandbox().pty.kill(terminal.pid), true);
  await assert.rejects(again.wait(), CommandExitError);
});

test("files go both ways, and are listed, moved, removed", async () => {
  const files = sandbox().files;
  const bytes = Buffer.from(Array.from({ length: 300_000 }, (_, at) => at % 256));
  await files.write("/home/user/d/file.bin", bytes.buffer);
  assert.ok(Buffer.from(await files.read("/home/user/d/file.bin", { format: "bytes" })).equals(bytes));
  const parts = [];
  for await (const part of await files.read("d/file.bin", { format: "stream" })) parts.push(part);
  assert.ok(Buffer.concat(parts).equals(bytes));
  await files.writeFiles([{ path: "d/f", data: "f" }]);
  await files.remove("d/f");
  await files.write([{ path: "d/a", data: "a" }, { path: "d/b", data: "ü" }]);
  assert.equal(await files.read("d/b"), "ü");
  assert.deepEqual((await files.list("d")).map((entry) => entry.name), ["a", "b", "file.bin"]);
  assert.deepEqual((await files.write("d/m", "m", { metadata: { Kind: "x" } })).metadata, { kind: "x" });
  assert.deepEqual((await files.getInfo("d/m")).metadata, { kind: "x" });
  assert.equal(await files.makeDir("d/e"), true);
  assert.equal(await files.makeDir("d/e"), false);
  assert.equal((await files.rename("d/a", "d/c")).path, "/home/user/d/c");
  assert.equal(await files.exists("d/a"), false);
  await files.remove("d");
  await assert.rejects(files.read("d/b"), NotFoundError);
  const url = await sandbox().uploadUrl("by-url");
  const form = new FormData();
  form.append("file", new Blob(["sent"]), "by-url");
  assert.equal((await fetch(url, { method: "POST", body: form })).status, 200);
  assert.equal(await (await fetch(await sandbox().downloadUrl("by-url"))).text(), "sent");
});

test("an upload that is refused says why, however large it is", async () => {
  const large = new Uint8Array(8 * 1024 * 1024).buffer;
  for (let round = 0; round < 10; round++) {
    await assert.rejects(sandbox().files.write("/etc", large), /directory/);
  }
});

test("changes are seen as they happen", async () => {
  const seen = [];
  await sandbox().files.makeDir("watched");
  const watch = await sandbox().files.watchDir("watched", (event) => seen.push(`${event.type} ${event.name}`));
  await sandbox().files.write("watched/new.txt", "x");
  await until("the change", () => seen.includes("create new.txt"));
  await watch.stop();
});
