/** The verbs of the cases as calls of the TypeScript SDK. Each returns plain data. */

import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { chmod, mkdir, mkdtemp, readdir, readFile, readlink, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

import { AuditLog, Client, Sandbox, SandboxPool, Volume } from "sandling";

import { camel } from "./match.mjs";

const PORT_WITHIN_MS = 60_000;
/** A directory to copy. */
const TREE = {
  "ü/deep.txt": "deep\n",
  "run.sh": "#!/bin/sh\necho ran\n",
  empty: "",
  [`${"long".repeat(30)}/file`]: "1",
};

/** The arguments of a case with the names of this SDK. */
function options(given) {
  return Object.fromEntries(Object.entries(given).map(([key, value]) => [camel(key), value]));
}

function create(client, given) {
  const { volumes, run, ...rest } = given;
  const code = typeof run === "object" ? options(run) : run;
  const wanted = { ...options(rest), ...(volumes && { volumes: volumes.map(options) }), ...(code && { run: code }) };
  return client.sandboxes.create(wanted);
}

async function collect(source) {
  const items = [];
  for await (const item of source) items.push(item);
  return items;
}

/** The first matching item; leaving the loop closes the source. */
async function first(source, fits) {
  for await (const item of source) if (fits(item)) return item;
  throw new Error("the stream ended before it came");
}

const sha256 = (data) => createHash("sha256").update(data).digest("hex");
const digest = (data) => ({ sha256: sha256(data), bytes: data.length });

async function streamed(stream) {
  const chunks = [];
  for await (const { stream: name, text } of stream) {
    if (chunks.at(-1)?.[0] === name) chunks.at(-1)[1] += text;
    else chunks.push([name, text]);
  }
  const { stdout } = stream.result;
  return { chunks, result: shown(stream.result), sha256: sha256(stdout), characters: [...stdout].length };
}

function execution(cell) {
  const { html, json } = cell.results[0] ?? {};
  return { ...cell, results: cell.results.map(({ data }) => data), html, json };
}

export function shown(given) {
  if (Array.isArray(given)) return given.map(shown);
  if (given instanceof Sandbox) return given.info;
  if (given?.durationMs !== undefined) return { ...given, duration: given.durationMs / 1000 };
  return given;
}

async function inScratch(work) {
  const directory = await mkdtemp(join(tmpdir(), "conformance-"));
  try {
    return await work(join(directory, "file"), directory);
  } finally {
    await rm(directory, { recursive: true });
  }
}

/** The pools of leased machines, and their audit logs. */
const lent = new Map();

const otherwise = (client, apiKey) => (apiKey ? new Client({ apiKey }) : client);

const ofTheServer = {
  version: (client) => client.version(),
  me: (client, { api_key }) => otherwise(client, api_key).me(),
  create: (client, { api_key, ...given }) => create(otherwise(client, api_key), given),
  get: (client, { id }) => client.sandboxes.get(id),
  delete: (client, { id }) => client.sandboxes.delete(id),
  list: (client, given) => client.sandboxes.list(given),
  block: async (client, given) => {
    const sandbox = await create(client, given);
    assert((await sandbox.exec("true")).ok);
    // Does what `await using` does at the end of its block, because this file runs uncompiled on Node 18.
    await sandbox[Symbol.asyncDispose]();
    return sandbox;
  },
  "templates.list": (client) => client.templates.list(),
  "templates.get": (client, { name }) => client.templates.get(name),
  "tokens.create": (client, { name, ...given }) => client.tokens.create(name, options(given)),
  "tokens.list": (client) => client.tokens.list(),
  "tokens.revoke": (client, { prefix }) => client.tokens.revoke(prefix),
  "snapshots.list": (client) => client.snapshots.list(),
  "snapshots.get": (client, { id }) => client.snapshots.get(id),
  "snapshots.delete": (client, { id }) => client.snapshots.delete(id),
  volume: async (client, { name, size_gb }) => {
    const made = await Volume.getOrCreate(name, size_gb, client);
    assert.equal((await Volume.getOrCreate(name, size_gb, client)).name, made.name);
    return { name: made.name, size_mb: made.sizeMb };
  },
  "volume.mount": async (client, { name, path, ...given }) => {
    const mount = (await Volume.get(name, client)).mount(path, options(given));
    return client.sandboxes.create({ template: "base", ttlSeconds: 600, volumes: [mount] });
  },
  "volume.clone": async (client, { name, copy }) => (await Volume.get(name, client)).clone(copy),
  "volume.snapshot": async (client, { name, copy }) => (await Volume.get(name, client)).snapshot(copy),
  "volume.delete": (client, { name }) => client.volumes.delete(name),
  "secrets.set": (client, { name, value, ...options }) => client.secrets.set(name, value, options),
  "secrets.list": (client) => client.secrets.list(),
  "secrets.remove": (client, { name }) => client.secrets.remove(name),
  "pool.lend": async (client, { actor }) => {
    const records = [];
    const audit = new AuditLog((record) => records.push(record));
    const pool = new SandboxPool({ size: 1, template: "base", ttlSeconds: 600, audit }, client).start();
    const sandbox = await pool.acquire({ timeoutSeconds: 60, actor });
    lent.set(sandbox.id, { pool, records });
    return sandbox;
  },
  "pool.records": async (sandbox) => {
    const { pool, records } = lent.get(sandbox.id);
    await pool.release(sandbox);
    await pool.close();
    return records;
  },
  "network_default.get": (client, of) => client.network.get(of),
  "network_default.set": (client, { template, ...given }) => client.network.set(options(given), { template }),
  "network_default.clear": (client, of) => client.network.clear(of),
};

const ofCommands = {
  exec: (sandbox, { cmd, ...given }) => sandbox.exec(cmd, options(given)),
  run: (sandbox, { cmd, ...given }) => sandbox.run(cmd, options(given)),
  run_code: async (sandbox, { code, language, heard, ...given }) => {
    const told = { stdout: "", stderr: "" };
    const listeners = heard && {
      onStdout: (text) => (told.stdout += text),
      onStderr: (text) => (told.stderr += text),
    };
    const wanted = { ...options(given), ...listeners };
    return { ...execution(await sandbox.runCode(code, language, wanted)), heard: told };
  },
  first_run: (sandbox) => execution(sandbox.firstRun()),
  stream: (sandbox, { cmd, ...given }) => streamed(sandbox.stream(cmd, options(given))),
  callbacks: async (sandbox, { cmd }) => {
    const heard = { stdout: "", stderr: "" };
    const listeners = { onStdout: (text) => (heard.stdout += text), onStderr: (text) => (heard.stderr += text) };
    const exit_code = await sandbox.execStream(cmd, listeners);
    const { stdout, stderr, exitCode } = await sandbox.exec(cmd, { onStdout: () => {} });
    assert.deepEqual({ stdout, stderr, exitCode }, { ...heard, exitCode: exit_code });
    return { ...heard, exit_code };
  },
  start: (sandbox, { cmd, ...given }) => sandbox.start(cmd, options(given)),
  "exec.wait": (job) => job.wait(),
  "exec.stream": (job) => streamed(job.stream()),
  "exec.status": (job) => job.status(),
  "exec.signal": (job, { signal }) => job.signal(signal),
  "exec.kill": (job) => job.kill(),
  "exec.forget": (job) => job.forget(),
  "commands.list": (sandbox) => sandbox.commands.list(),
  "contexts.list": (sandbox) => sandbox.contexts.list(),
  "context.create": (sandbox, { language, ...given }) => sandbox.contexts.create(language, options(given)),
  "context.run": async (context, { code, ...given }) => execution(await context.runCode(code, options(given))),
  "context.restart": (context) => context.restart(),
  "context.close": (context) => context.close(),
  "contexts.run_in": async (sandbox, { id, code }) => {
    const context = (await sandbox.contexts.list()).find((item) => item.id === id);
    return execution(await context.runCode(code));
  },
  terminal: async (sandbox, { lines, resize, more, last, ...given }) => {
    const terminal = await sandbox.terminal(given);
    let seen = "";
    const ask = async ([line, answer]) => {
      terminal.write(`${line}\n`);
      seen += await terminal.readUntil(answer, { timeoutMs: 60_000 });
    };
    for (const pair of lines) await ask(pair);
    terminal.resize(...resize);
    for (const pair of more) await ask(pair);
    terminal.write(`${last}\n`);
    seen += Buffer.concat(await collect(terminal));
    await terminal.close();
    return { seen, exit_code: terminal.exitCode };
  },
};

const ofFiles = {
  "files.write": (sandbox, { path, text, base64, ...given }) =>
    sandbox.files.write(path, text ?? Buffer.from(base64, "base64"), given),
  "files.append": (sandbox, { path, text }) => sandbox.files.append(path, text),
  "files.read": async (sandbox, { path, ...range }) => {
    return { base64: (await sandbox.filesystem.read(path, range)).toString("base64") };
  },
  "files.read_text": async (sandbox, { path }) => ({ text: await sandbox.files.readText(path) }),
  "files.exists": async (sandbox, { path }) => ({ exists: await sandbox.files.exists(path) }),
  "files.stat": (sandbox, { path }) => sandbox.files.stat(path),
  "files.listdir": (sandbox, { path }) => sandbox.files.list(path),
  "files.mkdir": (sandbox, { path }) => sandbox.files.mkdir(path),
  "files.remove": (sandbox, { path, recursive }) => sandbox.files.remove(path, { recursive }),
  "files.move": (sandbox, { source, target }) => sandbox.files.move(source, target),
  "files.chmod": (sandbox, { path, mode }) => sandbox.files.chmod(path, mode),
  "files.walk": async (sandbox, { path }) => {
    const names = (entries) => entries.map(({ name }) => name);
    const found = await collect(sandbox.files.walk(path));
    return found.map((step) => [step.path, names(step.directories), names(step.files)]);
  },
  "files.stream": async (sandbox, { path }) => digest(Buffer.concat(await collect(sandbox.files.stream(path)))),
  "files.upload": (sandbox, { path, bytes }) =>
    inScratch(async (local) => {
      const data = randomBytes(bytes);
      await writeFile(local, data);
      await sandbox.files.upload(local, path);
      return digest(data);
    }),
  "files.download": (sandbox, { path }) =>
    inScratch(async (local, directory) => {
      try {
        await sandbox.files.download(path, local);
      } catch (error) {
        assert.deepEqual(await readdir(directory), [], "half a file was left");
        throw error;
      }
      return digest(await readFile(local));
    }),
  "files.upload_tree": (sandbox, { path }) =>
    inScratch(async (_, directory) => {
      for (const [name, text] of Object.entries(TREE)) {
        await mkdir(dirname(join(directory, name)), { recursive: true });
        await writeFile(join(directory, name), text);
      }
      await chmod(join(directory, "run.sh"), 0o755);
      await symlink("run.sh", join(directory, "link"));
      await sandbox.files.upload(directory, path);
    }),
  "files.download_tree": (sandbox, { path }) =>
    inScratch(async (local) => {
      await sandbox.files.download(path, local);
      const told = {};
      const look = async (below) => {
        for (const entry of await readdir(join(local, below), { withFileTypes: true })) {
          const name = below ? `${below}/${entry.name}` : entry.name;
          if (entry.isDirectory()) await look(name);
          else if (entry.isSymbolicLink()) told[name] = `-> ${await readlink(join(local, name))}`;
          else told[name] = await readFile(join(local, name), "utf8");
        }
      };
      await look("");
      assert((await stat(join(local, "run.sh"))).mode & 0o100);
      return told;
    }),
  "files.watch": async (sandbox, { path, then }) => {
    // Repeats the change, because the start of the watch is not reported.
    const job = await sandbox.start(`for i in $(seq 100); do rm -f ${path}/*; ${then}; sleep 0.2; done`);
    const change = await first(sandbox.files.watch(path), ({ kind }) => kind === "created");
    await job.kill();
    return change;
  },
};

const ofTheMachine = {
  info: (sandbox) => sandbox,
  refresh: (sandbox) => sandbox.refresh(),
  kill: (sandbox) => sandbox.kill(),
  close: (sandbox) => sandbox.close(),
  pause: (sandbox) => sandbox.pause(),
  resume: (sandbox) => sandbox.resume(),
  hibernate: (sandbox, given) => sandbox.hibernate(options(given)),
  wake: (sandbox) => sandbox.wake(),
  lifecycle: (sandbox) => sandbox.lifecycle(),
  set_ttl: (sandbox, { seconds }) => sandbox.setTtl(seconds),
  set_idle: (sandbox, { seconds }) => sandbox.setIdle(seconds),
  set_persistent: (sandbox, { persistent }) => sandbox.setPersistent(persistent),
  metrics: (sandbox) => sandbox.metrics(),
  events: (sandbox) => sandbox.events(),
  follow_events: (sandbox, { until }) => first(sandbox.followEvents(), ({ type }) => type === until),
  logs: (sandbox) => collect(sandbox.logs()),
  follow_logs: async (sandbox, { until }) => {
    return { line: await first(sandbox.logs({ follow: true }), (line) => line === until) };
  },
  until_port: async (sandbox, { port }) => {
    for (const deadline = Date.now() + PORT_WITHIN_MS; Date.now() < deadline; await sleep(200)) {
      const url = (await sandbox.previewUrls())[port];
      if (url) return { url };
    }
    throw new Error(`nobody listens on ${port}`);
  },
  preview_url: async (sandbox, { port }) => ({ url: await sandbox.previewUrl(port) }),
  preview_get: async (sandbox, { port, path }) => {
    const answer = await fetch((await sandbox.preview(port)).pathUrl + path);
    return { status: answer.status, text: await answer.text() };
  },
  fork: (sandbox, given) => sandbox.fork(options(given)),
  fork_many: (sandbox, { count }) => sandbox.fork(count),
  fork_tree: (sandbox, given) => sandbox.forkTree(options(given)),
  promote: (sandbox, given) => sandbox.promote(options(given)),
  snapshot: (sandbox, given) => sandbox.snapshot(given),
  timeline: (sandbox) => sandbox.timeline(),
  checkpoint: (sandbox, { name }) => sandbox.checkpoint(name),
  name_checkpoint: (sandbox, { checkpoint, name }) => sandbox.nameCheckpoint(checkpoint, name),
  "checkpoints.list": async (sandbox) => (await sandbox.checkpoints.list()).checkpoints,
  "checkpoints.create": (sandbox, { name }) => sandbox.checkpoints.create(name),
  "checkpoints.name": (sandbox, { checkpoint, name }) => sandbox.checkpoints.name(checkpoint, name),
  rewind: async (sandbox, { to }) => ({ was: await sandbox.rewind(to) }),
  diff: (sandbox, { since, ...given }) => sandbox.diff(since, given),
  diff_patch: async (sandbox, { since, ...given }) => ({ text: await sandbox.diffPatch(since, given) }),
  diff_tar: async (sandbox, { since, ...given }) => ({ bytes: (await sandbox.diffTar(since, given)).length }),
  "context.fork": async (sandbox, { id, count }) => {
    const context = (await sandbox.contexts.list()).find((context) => context.id === id);
    return context ? context.fork(count) : sandbox.forkContext(id, { count });
  },
  explore: async (sandbox, { candidates }) => {
    const { winner, winnerOutcome, reaped } = await sandbox.explore(candidates);
    return { winner, winner_label: winnerOutcome.label, files_changed: winnerOutcome.filesChanged, reaped };
  },
};

const ofTheNetwork = {
  "network.get": (sandbox) => sandbox.network.get(),
  "network.set": (sandbox, given) => sandbox.network.set(options(given)),
  "network.allow": (sandbox, { entry }) => sandbox.network.allow(entry),
  "network.deny": (sandbox) => sandbox.network.deny(),
  "network.clear": (sandbox) => sandbox.network.clear(),
  "network.usage": (sandbox) => sandbox.network.usage(),
  "network.events": (sandbox) => sandbox.network.events(),
  "network.follow": (sandbox, { name }) => first(sandbox.network.followEvents(100), (event) => event.name === name),
  "sandbox.secrets": (sandbox) => sandbox.secrets.list(),
  "sandbox.grant": (sandbox, { name }) => sandbox.secrets.grant(name),
  "sandbox.revoke": (sandbox, { name }) => sandbox.secrets.revoke(name),
};

export const VERBS = { ...ofTheServer, ...ofTheNetwork, ...ofCommands, ...ofFiles, ...ofTheMachine };
