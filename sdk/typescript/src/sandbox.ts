/** A sandbox: one virtual machine. */

import { Browser } from "./browser.js";
import { firstExecution, type FirstRun, runLive, scriptExecution } from "./cells.js";
import { Checkpoints } from "./checkpoints.js";
import { type Client, getDefaultClient } from "./client.js";
import { CodeContext, Contexts } from "./contexts.js";
import { Desktop } from "./desktop.js";
import { CommandFailed, NotFoundError } from "./errors.js";
import { Commands, type Exec, ExecStream, run } from "./exec.js";
import { type Candidate, explore, type ExploreOptions, type ExploreResult } from "./explore.js";
import { Filesystem } from "./filesystem.js";
import type { Event, ExecResult, Execution, GuestMetrics, Lifecycle, Metrics, Preview, Promotion } from "./models.js";
import type { Checkpoint, Diff, FileDiff, SandboxInfo, SnapshotInfo, Timeline } from "./models.js";
import { fromWire, listOf, toWire, type Wire } from "./naming.js";
import { SandboxNetwork } from "./network.js";
import { codeBody, createBody, execBody, isScript, liveCodeBody } from "./options.js";
import type { CreateOptions, ExecOptions, ForkOptions, Listeners, RunCodeOptions, SnapshotOptions } from "./options.js";
import { SandboxRequests } from "./requests.js";
import { SandboxSecrets } from "./secrets.js";
import { Terminal, type TerminalOptions } from "./terminal.js";
import type { Transport } from "./transport.js";

/** Saving and restoring a machine may take longer than other requests. */
const MACHINE_WITHIN_MS = 300_000;

/** The number or name of a checkpoint, `now`, a sandbox ID, `SANDBOX@CHECKPOINT`, or the ID of a snapshot. */
export type Moment = number | string;

export interface DiffOptions {
  /** `now` by default. */
  to?: Moment;
  /** The directory to compare, `/` by default; paths are relative to it. */
  path?: string;
}

function diffRequest(since: Moment, options: DiffOptions, format?: string) {
  const { to = "now", path = "/" } = options;
  const query = { from: String(since), to: String(to), path, ...(format ? { format } : {}) };
  return { query, timeoutMs: MACHINE_WITHIN_MS };
}

/** A sandbox: one virtual machine. `await using` ends it at the end of its block, unless it is persistent. */
export class Sandbox {
  readonly filesystem: Filesystem;
  readonly files: Filesystem;
  readonly commands: Commands;
  readonly contexts: Contexts;
  readonly checkpoints: Checkpoints;
  readonly desktop: Desktop;
  readonly browser: Browser;
  readonly network: SandboxNetwork;
  readonly secrets: SandboxSecrets;
  readonly #requests: SandboxRequests;
  readonly #client: Client;
  readonly #firstRun: FirstRun | undefined;
  #info: SandboxInfo;

  private constructor(info: SandboxInfo, client: Client, firstRun?: FirstRun) {
    this.#info = info;
    this.#firstRun = firstRun;
    this.#client = client;
    this.#requests = new SandboxRequests(client.transport, info.id);
    this.filesystem = this.files = new Filesystem(this.#requests);
    this.commands = new Commands(this.#requests);
    this.contexts = new Contexts(this.#requests, this);
    this.checkpoints = new Checkpoints(this);
    this.desktop = new Desktop(this);
    this.browser = new Browser(this);
    this.network = new SandboxNetwork(this.#requests);
    this.secrets = new SandboxSecrets(this.network);
  }

  /** Creates a sandbox. If the server has no capacity, the client retries for up to a minute. */
  static async create(options: CreateOptions | string = {}, client: Client = getDefaultClient()): Promise<Sandbox> {
    const wanted = typeof options === "string" ? { template: options } : options;
    const how = { keyed: true, signal: wanted.signal };
    const { run, ...data } = (await client.make("/v1/sandboxes", createBody(wanted), how)) as Wire;
    return Sandbox.#of(data, client, run as FirstRun | undefined);
  }

  /** An existing sandbox, by its ID or name. */
  static async get(id: string, client: Client = getDefaultClient()): Promise<Sandbox> {
    return Sandbox.#of(await client.transport.request("GET", `/v1/sandboxes/${encodeURIComponent(id)}`), client);
  }

  /** All sandboxes; with `metadata`, only those that have it. */
  static async list(
    options: { metadata?: Record<string, string> } = {},
    client: Client = getDefaultClient(),
  ): Promise<Sandbox[]> {
    const data = await client.transport.request("GET", "/v1/sandboxes");
    const wanted = Object.entries(options.metadata ?? {});
    const found = listOf(data, "items").map((item) => Sandbox.#of(item, client));
    return found.filter(({ metadata }) => wanted.every(([key, value]) => metadata[key] === value));
  }

  static #of(data: unknown, client: Client, firstRun?: FirstRun): Sandbox {
    const unknown = { metadata: {}, labels: {}, boundary: {} };
    return new Sandbox(Object.assign(unknown, fromWire<SandboxInfo>(data)), client, firstRun);
  }

  /** A copy of the object with another transport, also for its forks. */
  through(transport: Transport): Sandbox {
    return new Sandbox(this.#info, this.#client.through(transport), this.#firstRun);
  }

  /** The data of the sandbox; `refresh` updates it. */
  get info(): Readonly<SandboxInfo> {
    return this.#info;
  }
  get id(): string {
    return this.#info.id;
  }
  /** Its name, if it has one. */
  get name(): string | undefined {
    return this.#info.name;
  }
  get template(): string {
    return this.#info.template;
  }
  get status(): string {
    return this.#info.status;
  }
  get metadata(): Record<string, string> {
    return this.#info.metadata;
  }
  get persistent(): boolean {
    return this.#info.persistent;
  }

  /**
   * Runs a command, as a shell line or a list of arguments, and waits until it ends. With `check`, throws
   * `CommandFailed` if it does not exit with 0. If it reaches `timeoutSeconds`, it is ended and throws `SandboxTimeout`
   * with the output so far.
   */
  async exec(
    command: string | readonly string[],
    options: ExecOptions & Listeners & { check?: boolean } = {},
  ): Promise<ExecResult> {
    const result = await run(this.#requests, execBody(command, options), options);
    if (options.check && !result.ok) {
      throw new CommandFailed(`the command ended with ${result.exitCode}: ${command}`, result.exitCode, result);
    }
    return result;
  }

  /** Runs a shell line and waits until it ends. */
  run(command: string, options: ExecOptions & Listeners & { check?: boolean } = {}): Promise<ExecResult> {
    return this.exec(command, options);
  }

  /**
   * Runs code in `python` or `node`. Variables last from call to call, and a fork has them too. The value of the last
   * expression is a result, and so are plots and tables. An exception is in `error`. Calls wait for each other. For more
   * than one interpreter, use `contexts`. With `fresh`, and always in `bash`, the code runs as a script in a new process,
   * without the variables.
   */
  async runCode(
    code: string,
    language: string | RunCodeOptions = {},
    options: RunCodeOptions = {},
  ): Promise<Execution> {
    const wanted = typeof language === "string" ? { ...options, language } : { ...options, ...language };
    const { language: name = "python", fresh } = wanted;
    if (isScript(name, fresh)) return scriptExecution(await this.runScript(code, name, wanted));
    return runLive(this.#requests, liveCodeBody(code, name, wanted), wanted);
  }

  /** The result of the code that the sandbox was created with (`run`). Throws what `runCode` would. */
  firstRun(): Execution {
    if (!this.#firstRun) throw new TypeError("the sandbox was created without code: pass { run } to create");
    return firstExecution(this.#firstRun);
  }

  /** Runs code as a script in a new process, and says how the process ended. */
  runScript(code: string, language: string, options: ExecOptions & Listeners = {}): Promise<ExecResult> {
    return run(this.#requests, codeBody(code, language, options), options);
  }

  /** Runs a command and returns its output as an async iterable. The command starts with the first iteration. */
  stream(command: string | readonly string[], options: ExecOptions = {}): ExecStream {
    return new ExecStream(this.#requests, "POST", "/exec/stream", { body: execBody(command, options) });
  }

  /** Runs a command, passes its output to callbacks and returns its exit code. */
  async execStream(command: string | readonly string[], options: ExecOptions & Listeners = {}): Promise<number> {
    return (await this.stream(command, options).wait(options)).exitCode;
  }

  /** Starts a command in the background. */
  start(command: string | readonly string[], options: ExecOptions = {}): Promise<Exec> {
    return this.commands.start(command, options);
  }

  /** Starts a live interpreter; the same as `contexts.create`. */
  createCodeContext(language = "python"): Promise<CodeContext> {
    return this.contexts.create(language);
  }

  /** The lines of the machine's console; with `follow`, also new ones. */
  async *logs(options: { follow?: boolean } = {}): AsyncGenerator<string, void, undefined> {
    if (!options.follow) {
      const text = (await this.#requests.fetch("GET", "/logs")).toString("utf8");
      yield* text.split(/\r?\n/).filter((line, index, lines) => line || index < lines.length - 1);
      return;
    }
    for await (const event of this.#requests.events("GET", "/logs", { query: { follow: "true" } })) {
      yield (JSON.parse(event.data) as { line: string }).line.replace(/\n$/, "");
    }
  }

  /** Its last `tail` events, oldest first. */
  async events(tail = 100): Promise<Event[]> {
    const data = await this.#requests.request("GET", "/events", { query: { tail } });
    return listOf(data, "events").map((item) => fromWire<Event>(item));
  }

  /** Its events, and new ones as they happen. */
  async *followEvents(tail = 100): AsyncGenerator<Event, void, undefined> {
    for await (const event of this.#requests.events("GET", "/events", { query: { tail, follow: "true" } })) {
      yield fromWire<Event>(JSON.parse(event.data));
    }
  }

  /** The resources that it uses. */
  async metrics(): Promise<Metrics> {
    const metrics = fromWire<Metrics>(await this.#requests.request("GET", "/metrics"));
    return { ...metrics, guest: metrics.guest ? fromWire<GuestMetrics>(metrics.guest) : null };
  }

  /** Updates its data from the server. */
  async refresh(): Promise<this> {
    this.#info = { ...this.#info, ...fromWire<SandboxInfo>(await this.#requests.request("GET", "")) };
    return this;
  }

  /** Ends the sandbox. */
  async kill(): Promise<void> {
    await this.#requests.request("DELETE", "");
    this.#info.status = "deleted";
  }

  /** Ends the sandbox unless it is persistent. It may have ended already. */
  async close(): Promise<void> {
    if (this.persistent || this.status === "deleted") return;
    try {
      await this.kill();
    } catch (error) {
      if (!(error instanceof NotFoundError)) throw error;
      this.#info.status = "deleted";
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Stops its virtual CPUs. Its memory stays. */
  pause(): Promise<void> {
    return this.#change("/pause", "paused");
  }

  resume(): Promise<void> {
    return this.#change("/resume", "running");
  }

  /**
   * Saves the machine to disk and frees its memory. The next request that needs it wakes it. Without `keepMemory`, only
   * its disk is saved: it boots when it wakes, and its processes are gone.
   */
  hibernate(options: { keepMemory?: boolean } = {}): Promise<void> {
    return this.#change("/hibernate", "hibernated", toWire(options));
  }

  /** Wakes a hibernated sandbox. A running one stays as it is. */
  wake(): Promise<void> {
    return this.#change("/wake", "running");
  }

  /**
   * Saves memory, disk and devices; the sandbox keeps running. Pass the ID to `create({ fromSnapshot })`. With
   * `keepMemory: false`, only the disk is saved, and sandboxes from the snapshot boot. With `durable: true`, the promise
   * resolves when the store of the server's fleet has the snapshot.
   */
  async snapshot(options: SnapshotOptions = {}): Promise<SnapshotInfo> {
    const wanted = toWire(options);
    const body = Object.keys(wanted).length ? wanted : undefined;
    return fromWire(await this.#requests.request("POST", "/snapshots", { body, timeoutMs: MACHINE_WITHIN_MS }));
  }

  /** Copies the machine with its processes and variables. */
  fork(options?: ForkOptions): Promise<Sandbox>;
  /** Makes `count` copies. */
  fork(count: number, options?: ForkOptions): Promise<Sandbox[]>;
  async fork(first: number | ForkOptions = {}, options: ForkOptions = {}): Promise<Sandbox | Sandbox[]> {
    if (typeof first === "number") return this.forkTree({ count: first, ...options });
    const wanted = toWire(first);
    const body = Object.keys(wanted).length ? wanted : undefined;
    const data = (await this.#client.make(this.#requests.path("/fork"), body, { keyed: false })) as Wire;
    const children = data["children"] as unknown[] | undefined;
    return this.#child(data["sandbox"] ?? children?.[0] ?? data);
  }

  /** Makes copies that are siblings, for `promote`. The list is shorter if some could not start. */
  async forkTree(options: { count: number } & ForkOptions): Promise<Sandbox[]> {
    const data = await this.#client.make(this.#requests.path("/fork-tree"), toWire(options), { keyed: false });
    return listOf(data, "children").map((child) => this.#child(child));
  }

  #child(data: unknown): Sandbox {
    const child = Sandbox.#of({ status: "running", template: this.template, ...(data as Wire) }, this.#client);
    child.#info.metadata = { fork_parent_id: this.id, ...child.#info.metadata };
    return child;
  }

  /** Makes this copy independent of its tree. With `cleanupSiblings` it ends the other copies. */
  async promote(options: { cleanupSiblings?: boolean; treeId?: string } = {}): Promise<Promotion> {
    const body = toWire({ cleanupSiblings: false, ...options });
    return fromWire(await this.#requests.request("POST", "/promote", { body, timeoutMs: MACHINE_WITHIN_MS }));
  }

  /** Tries every candidate in its own fork and keeps the best. */
  explore(candidates: ReadonlyArray<Candidate | string>, options: ExploreOptions = {}): Promise<ExploreResult> {
    return explore(this, candidates, options);
  }

  /** Its checkpoints. */
  async timeline(): Promise<Timeline> {
    const data = await this.#requests.request("GET", "/timeline", { timeoutMs: MACHINE_WITHIN_MS });
    const { current } = data as { current: number | null };
    return { current, checkpoints: listOf(data, "checkpoints").map((item) => fromWire<Checkpoint>(item)) };
  }

  /** Makes a checkpoint now. One with a name is kept. */
  async checkpoint(name?: string): Promise<Checkpoint> {
    const how = { body: toWire({ name }), timeoutMs: MACHINE_WITHIN_MS };
    return fromWire(await this.#requests.request("POST", "/checkpoints", how));
  }

  /** Names a checkpoint, which keeps it, or removes its name. */
  async nameCheckpoint(checkpoint: number | string, name: string | null): Promise<Checkpoint> {
    const path = `/checkpoints/${encodeURIComponent(checkpoint)}`;
    return fromWire(await this.#requests.request("PATCH", path, { body: { name }, timeoutMs: MACHINE_WITHIN_MS }));
  }

  /**
   * Puts the sandbox back to a checkpoint, by number or name: memory, disk, processes and variables. The current state
   * becomes a checkpoint first. Its number is returned, so that you can undo the rewind.
   */
  async rewind(to: number | string): Promise<number | null> {
    const data = await this.#requests.request("POST", "/rewind", { body: { to }, timeoutMs: MACHINE_WITHIN_MS });
    this.#info.status = "running";
    return (data as { was: number | null }).was;
  }

  /** The files that were added, changed and removed, with text diffs. */
  async diff(since: Moment, options: DiffOptions = {}): Promise<Diff> {
    const data = await this.#requests.request("GET", "/diff", diffRequest(since, options));
    return { ...fromWire<Diff>(data), files: listOf(data, "files").map((item) => fromWire<FileDiff>(item)) };
  }

  /** The diff as a patch, for `git apply` or `patch -p1`. */
  async diffPatch(since: Moment, options: DiffOptions = {}): Promise<string> {
    return (await this.#requests.fetch("GET", "/diff", diffRequest(since, options, "patch"))).toString("utf8");
  }

  /** The added and changed files as a tar. */
  diffTar(since: Moment, options: DiffOptions = {}): Promise<Buffer> {
    return this.#requests.fetch("GET", "/diff", diffRequest(since, options, "tar"));
  }

  /** Copies one of its contexts with its variables, each copy in a new sandbox. */
  async forkContext(
    contextId: string,
    options: { count?: number; metadata?: Record<string, string> } = {},
  ): Promise<CodeContext[]> {
    const path = this.#requests.path(`/contexts/${encodeURIComponent(contextId)}/fork`);
    const data = await this.#client.make(path, toWire(options), { keyed: false });
    const sessions = listOf(data, "contexts") as { id: string; language: string }[];
    const children = listOf(data, "children").map((child) => this.#child(child));
    return children.map(
      (child, at) => new CodeContext(child.#requests, contextId, sessions[at]?.language ?? "python", child),
    );
  }

  /** How long it may live. */
  lifecycle(): Promise<Lifecycle> {
    return this.#lifecycle("GET");
  }

  /** Sets the TTL, counted from now; 0 means no limit. */
  setTtl(seconds: number): Promise<Lifecycle> {
    return this.#lifecycle("PATCH", { ttl_seconds: seconds });
  }

  /** Sets the idle timeout; 0 means no limit. */
  setIdle(seconds: number): Promise<Lifecycle> {
    return this.#lifecycle("PATCH", { idle_seconds: seconds });
  }

  setPersistent(persistent: boolean): Promise<Lifecycle> {
    return this.#lifecycle("PATCH", { persistent });
  }

  /** Opens a port of the sandbox for an hour by default. */
  async preview(port: number, options: { ttlSeconds?: number; paths?: string[] } = {}): Promise<Preview> {
    return fromWire(await this.#requests.request("POST", "/preview-token", { body: toWire({ port, ...options }) }));
  }

  /** A URL that opens a port in a browser. It contains a token, so anybody with the URL can use the port. */
  async previewUrl(port: number, options: { ttlSeconds?: number } = {}): Promise<string> {
    return (await this.preview(port, options)).url;
  }

  /** The ports that are open now, and their URLs, which need a token (`previewUrl`). */
  async previewUrls(): Promise<Record<number, string>> {
    const { ports } = (await this.#requests.request("GET", "/ports")) as {
      ports: { port: number; preview_url: string }[];
    };
    return Object.fromEntries(ports.map(({ port, preview_url }) => [port, preview_url]));
  }

  /** Opens a terminal. */
  terminal(options: TerminalOptions = {}): Promise<Terminal> {
    return Terminal.open(this.#requests, options);
  }

  async #change(path: string, status: string, wanted: Wire = {}): Promise<void> {
    const body = Object.keys(wanted).length ? wanted : undefined;
    await this.#requests.request("POST", path, { body, timeoutMs: MACHINE_WITHIN_MS });
    this.#info.status = status;
  }

  async #lifecycle(method: string, body?: Wire): Promise<Lifecycle> {
    const told = fromWire<Lifecycle>(await this.#requests.request(method, "/lifecycle", { body }));
    this.#info.persistent = told.persistent;
    return told;
  }
}
