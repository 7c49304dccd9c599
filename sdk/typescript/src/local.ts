/**
 * The local server, which all processes of a user share.
 *
 * A running server writes its address to the file `server` of its home and holds a lock on the file until it has ended.
 * While it shuts down, the file is empty. If there is no server, the first process that needs one starts it, detached,
 * and the others find it. A process holds `local-server.lock` while it searches or starts, and `local-server.json`
 * names the process that was started. The Python SDK uses the same files in the same way. The server runs until
 * `stopLocalServer` or until the host shuts down.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { accessSync, closeSync, constants, mkdirSync, openSync, readFileSync } from "node:fs";
import { renameSync, statSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { delimiter, dirname, join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

import { type Endpoint, home, homeToken } from "./config.js";
import { ConfigError } from "./errors.js";

const START_WITHIN_MS = 120_000;
const STOP_WITHIN_MS = 60_000;
/** How long to wait for a server that somebody else restarts. */
const BACK_WITHIN_MS = 5_000;
const POLL_MS = 50;

interface State {
  url: string;
  pid: number;
  /** The start time of the process in the kernel's units. */
  born: string;
}

/**
 * Finds the local server, or starts it. `gone` is the endpoint of a server that no longer answers.
 *
 * A server owns its sandboxes until it has ended, and its owner may restart it. A server that starts in between would
 * either have no sandboxes or take them away.
 */
export async function ensureLocalServer(gone?: string): Promise<Endpoint> {
  const directory = home();
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const url = await locked(directory, async () => {
    if (gone !== undefined && written(directory)?.url !== gone) {
      await until(async () => Boolean(await said(directory)), BACK_WITHIN_MS);
    }
    await until(async () => (await said(directory)) !== "", STOP_WITHIN_MS);
    return (await said(directory)) || running(directory)?.url || (await start(directory));
  });
  const token = homeToken();
  if (!token) throw new ConfigError(`the local server left no token in ${directory}`);
  return { url, token };
}

/**
 * Stops the server that an SDK started. False if there is none. Its sandboxes keep running for the next server. The
 * file that names its process stays, so that clients of the old server know that nobody else will restart it.
 */
export async function stopLocalServer(): Promise<boolean> {
  const directory = home();
  try {
    if (!statSync(directory).isDirectory()) return false;
  } catch {
    return false;
  }
  return locked(directory, async () => {
    const state = running(directory);
    if (!state) return false;
    process.kill(state.pid, "SIGTERM");
    const deadline = Date.now() + STOP_WITHIN_MS;
    while (isAlive(state)) {
      if (Date.now() > deadline)
        throw new ConfigError(`the local server (process ${state.pid}) did not stop; kill it and try again`);
      await sleep(POLL_MS);
    }
    return true;
  });
}

/** Holds the lock during `work`. Node has no flock(2), but the program flock(1) holds a lock while it runs. */
async function locked<T>(directory: string, work: () => Promise<T>): Promise<T> {
  const path = join(directory, "local-server.lock");
  // flock(1) would create it with the permissions of the umask.
  closeSync(openSync(path, "a", 0o600));
  const script = ["-x", path, "sh", "-c", "echo; exec cat"];
  const holder = spawn("flock", script, { stdio: ["pipe", "pipe", "ignore"] });
  const ended = once(holder, "exit");
  // If this process dies, the pipe closes, flock(1) exits and the lock is free.
  const held = await Promise.race([once(holder.stdout, "data").then(() => true), ended.then(() => false)]).catch(
    (cause: unknown) => {
      throw new ConfigError("flock(1) of util-linux is needed to start a local server", { cause });
    },
  );
  if (!held) throw new ConfigError(`the lock in ${directory} cannot be taken`);
  try {
    return await work();
  } finally {
    holder.stdin.end();
    await ended;
  }
}

async function until(done: () => Promise<boolean>, milliseconds: number): Promise<void> {
  const deadline = Date.now() + milliseconds;
  while (!(await done()) && Date.now() < deadline) await sleep(POLL_MS);
}

/** The address of the running server; empty while it shuts down, `undefined` if there is no server. */
async function said(directory: string): Promise<string | undefined> {
  const path = join(directory, "server");
  let address: string;
  try {
    address = readFileSync(path, "utf8").trim();
  } catch {
    return undefined;
  }
  const [code] = (await once(spawn("flock", ["-s", "-n", path, "true"], { stdio: "ignore" }), "exit")) as [
    number | null,
  ];
  // Nobody holds the lock: the server is dead, and another program may use its port.
  return code === 1 ? address : undefined;
}

function running(directory: string): State | undefined {
  const state = written(directory);
  return state && isAlive(state) ? state : undefined;
}

function written(directory: string): State | undefined {
  try {
    return JSON.parse(readFileSync(join(directory, "local-server.json"), "utf8")) as State;
  } catch {
    return undefined;
  }
}

/** Whether the recorded process still runs, and not another one with the same ID. */
function isAlive(state: State): boolean {
  const found = born(state.pid);
  return found !== undefined && found === String(state.born);
}

/** `undefined` if there is no process or it is a zombie. */
function born(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The name in parentheses may contain spaces and parentheses, so count from its end.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return fields[0] === "Z" || fields[0] === "X" ? undefined : fields[19];
  } catch {
    return undefined;
  }
}

async function start(directory: string): Promise<string> {
  const program = binary();
  const log = join(directory, "local-server.log");
  const { SANDLING_TOKEN: _, ...environment } = process.env;
  const output = openSync(log, "w", 0o600);
  const server = spawn(program, ["serve", "--listen", "127.0.0.1:0"], {
    stdio: ["ignore", output, output],
    env: { ...environment, SANDLING_HOME: directory },
    cwd: directory,
    detached: true,
  });
  closeSync(output);
  await once(server, "spawn");
  server.unref();
  const url = await address(server, log);
  const state: State = { url, pid: server.pid ?? 0, born: born(server.pid ?? 0) ?? "" };
  const unfinished = join(directory, `local-server.json.${process.pid}`);
  writeFileSync(unfinished, JSON.stringify(state), { mode: 0o600 });
  renameSync(unfinished, join(directory, "local-server.json"));
  return url;
}

async function address(server: ReturnType<typeof spawn>, log: string): Promise<string> {
  const deadline = Date.now() + START_WITHIN_MS;
  while (Date.now() < deadline) {
    const ended = server.exitCode !== null || server.signalCode !== null;
    const printed = readFileSync(log, "utf8");
    const found = /listens on (http:\/\/\S+)\n/.exec(printed);
    if (found?.[1]) return found[1];
    if (ended)
      throw new ConfigError(`the local server exited during its start: ${printed.trim() || "it printed nothing"}`);
    await sleep(POLL_MS);
  }
  server.kill("SIGKILL");
  throw new ConfigError(`the local server did not start within ${START_WITHIN_MS / 1000} s; see ${log}`);
}

function binary(): string {
  const named = process.env["SANDLING_BINARY"];
  // Also next to this Node, so that its environment need not be activated.
  const directories = [...(process.env["PATH"] ?? "").split(delimiter).filter(Boolean), dirname(process.execPath)];
  const installed = [...directories.map((directory) => resolve(directory, "sandling")), ...packaged()];
  const candidates = named ? [resolve(named)] : installed;
  const found = candidates.find(isExecutable);
  if (found) return found;
  if (named) throw new ConfigError(`SANDLING_BINARY names ${named}, which is not an executable file`);
  throw new ConfigError(
    "there is no server: set SANDLING_API to one, put `sandling` on the PATH or beside this Node so that one can be " +
      "started, or name it in SANDLING_BINARY",
  );
}

/** The binary that npm installs with this package where it fits. */
function packaged(): string[] {
  try {
    return [createRequire(import.meta.url).resolve("sandling-linux-x64/bin/sandling")];
  } catch {
    return [];
  }
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}
