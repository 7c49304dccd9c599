/** A sandbox: one virtual machine of your own. */

import { Checkpoints } from "./checkpoints.js";
import { type Client, getDefaultClient } from "./client.js";
import { CodeContext, Contexts } from "./contexts.js";
import { CommandFailed, NotFoundError } from "./errors.js";
import { Commands, type Exec, ExecStream, run } from "./exec.js";
import { type Candidate, explore, type ExploreOptions, type ExploreResult } from "./explore.js";
import { Filesystem } from "./filesystem.js";
import type { Event, ExecResult, GuestMetrics, Lifecycle, Metrics, Preview, Promotion } from "./models.js";
import type { Checkpoint, Diff, FileDiff, SandboxInfo, SnapshotInfo, Timeline } from "./models.js";
import { fromWire, listOf, toWire, type Wire } from "./naming.js";
import { SandboxNetwork } from "./network.js";
import { codeBody, createBody, execBody } from "./options.js";
import type { CreateOptions, ExecOptions, ForkOptions, Listeners, OnVolumes } from "./options.js";
import { SandboxRequests } from "./requests.js";
import { SandboxSecrets } from "./secrets.js";
import { Terminal, type TerminalOptions } from "./terminal.js";
import type { Transport } from "./transport.js";

/** Saving and restoring a whole machine takes longer than an ordinary request may. */
const MACHINE_WITHIN_MS = 300_000;

/** A checkpoint's number or name, `now`, another sandbox's id, `SANDBOX@CHECKPOINT`, or a snapshot's id. */
export type Moment = number | string;

export interface DiffOptions {
  /** `now` if absent. */
  to?: Moment;
  /** The directory that is compared, `/` if absent; paths start there. */
  path?: string;
}

function diffRequest(since: Moment, options: DiffOptions, format?: string) {
  const { to = "now", path = "/" } = options;
  const query = { from: String(since), to: String(to), path, ...(format ? { format } : {}) };
  return { query, timeoutMs: MACHINE_WITHIN_MS };
}

/** A virtual machine of your own. `await using` ends it at the end of its block, unless it is persistent. */
export class Sandbox {
  readonly filesystem: Filesystem;
  readonly files: Filesystem;
  readonly commands: Commands;
  readonly contexts: Contexts;
  readonly checkpoints: Checkpoints;
  readonly network: SandboxNetwork;
  readonly secrets: SandboxSecrets;
  readonly #requests: SandboxRequests;
  readonly #client: Client;
  #info: SandboxInfo;

  private constructor(info: SandboxInfo, client: Client) {
    this.#info = info;
    this.#client = client;
    this.#requests = new SandboxRequests(client.transport, info.id);
    this.filesystem = this.files = new Filesystem(this.#requests);
    this.commands = new Commands(this.#requests);
    this.contexts = new Contexts(this.#requests, this);
    this.checkpoints = new Checkpoints(this);
    this.network = new SandboxNetwork(this.#requests);
    this.secrets = new SandboxSecrets(this.network);
  }

  /** Makes a sandbox. A server without room is asked again for up to a minute. */
  static async create(options: CreateOptions | string = {}, client: Client = getDefaultClient()): Promise<Sandbox> {
    const wanted = typeof options === "string" ? { template: options } : options;
    const how = { keyed: true, signal: wanted.signal };
    return Sandbox.#of(await client.make("/v1/sandboxes", createBody(wanted), how), client);
  }

  /** A sandbox that is there, by its id. */
  static async get(id: string, client: Client = getDefaultClient()): Promise<Sandbox> {
    return Sandbox.#of(await client.transport.request("GET", `/v1/sandboxes/${encodeURIComponent(id)}`), client);
  }

  /** All that are there; with `metadata`, those that bear it. */
  static async list(
    options: { metadata?: Record<string, string> } = {},
    client: Client = getDefaultClient(),
  ): Promise<Sandbox[]> {
    const data = await client.transport.request("GET", "/v1/sandboxes");
    const wanted = Object.entries(options.metadata ?? {});
    const found = listOf(data, "items").map((item) => Sandbox.#of(item, client));
    return found.filter(({ metadata }) => wanted.every(([key, value]) => metadata[key] === value));
  }

  static #of(data: unknown, client: Client): Sandbox {
    const unknown = { metadata: {}, labels: {}, boundary: {} };
    return new Sandbox(Object.assign(unknown, fromWire<SandboxInfo>(data)), client);
  }

  /** The same sandbox, whose requests, and those of its copies, go another way. */
  through(transport: Transport): Sandbox {
    return new Sandbox(this.#info, this.#client.through(transport));
  }

  /** What is known about it; `refresh` asks anew. */
  get info(): Readonly<SandboxInfo> {
    return this.#info;
  }
  get id(): string {
    return this.#info.id;
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
   * Runs a command, a line for the shell or a list of arguments, and waits for its end. With `check`, one that does not
   * end with 0 throws `CommandFailed`. One that runs into `timeoutSeconds` is ended: `SandboxTimeout`, which holds what
   * it had printed.
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

  /** Runs a line in the shell and waits for its end. */
  run(command: string, options: ExecOptions & Listeners & { check?: boolean } = {}): Promise<ExecResult> {
    return this.exec(command, options);
  }

  /**
   * Runs a script, `python`, `node` or `bash`, on an interpreter that is already warm. Each call has an interpreter of
   * its own. For variables that last and for rich results, use `contexts`.
   */
  runCode(code: string, language = "python", options: ExecOptions & Listeners = {}): Promise<ExecResult> {
    return run(this.#requests, codeBody(code, language, options), options);
  }

  /** Runs a command and gives its output as an async iterable. It starts with the first step. */
  stream(command: string | readonly string[], options: ExecOptions = {}): ExecStream {
    return new ExecStream(this.#requests, "POST", "/exec/stream", { body: execBody(command, options) });
  }

  /** Runs a command, hands its output to callbacks, and gives its exit code. */
  async execStream(command: string | readonly string[], options: ExecOptions & Listeners = {}): Promise<number> {
    return (await this.stream(command, options).wait(options)).exitCode;
  }

  /** Starts a command in the background. */
  start(command: string | readonly string[], options: ExecOptions = {}): Promise<Exec> {
    return this.commands.start(command, options);
  }

  /** A live interpreter; the same as `contexts.create`. */
  createCodeContext(language = "python"): Promise<CodeContext> {
    return this.contexts.create(language);
  }

  /** The lines of the machine's console; with `follow`, also those to come. */
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

  /** What happened to it, the last `tail` things, oldest first. */
  async events(tail = 100): Promise<Event[]> {
    const data = await this.#requests.request("GET", "/events", { query: { tail } });
    return listOf(data, "events").map((item) => fromWire<Event>(item));
  }

  /** What happened to it and what happens from now on. */
  async *followEvents(tail = 100): AsyncGenerator<Event, void, undefined> {
    for await (const event of this.#requests.events("GET", "/events", { query: { tail, follow: "true" } })) {
      yield fromWire<Event>(JSON.parse(event.data));
    }
  }

  /** What it uses. */
  async metrics(): Promise<Metrics> {
    const metrics = fromWire<Metrics>(await this.#requests.request("GET", "/metrics"));
    return { ...metrics, guest: metrics.guest ? fromWire<GuestMetrics>(metrics.guest) : null };
  }

  /** Asks the server how it is now. */
  async refresh(): Promise<this> {
    this.#info = { ...this.#info, ...fromWire<SandboxInfo>(await this.#requests.request("GET", "")) };
    return this;
  }

  /** Ends it. */
  async kill(): Promise<void> {
    await this.#requests.request("DELETE", "");
    this.#info.status = "deleted";
  }

  /** Ends it unless it is persistent. One that has ended already is no error. */
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

  /** Stops its virtual CPUs; its memory stays. */
  pause(): Promise<void> {
    return this.#change("/pause", "paused");
  }

  resume(): Promise<void> {
    return this.#change("/resume", "running");
  }

  /** Saves the whole machine to disk and holds no memory. The next request that needs it wakes it. */
  hibernate(): Promise<void> {
    return this.#change("/hibernate", "hibernated");
  }

  /** Wakes it from hibernation. One that is awake stays so. */
  wake(): Promise<void> {
    return this.#change("/wake", "running");
  }

  /** Saves memory, disk and devices as one; it goes on. The id is good for `create({ fromSnapshot })`. */
  async snapshot(options: { volumes?: OnVolumes } = {}): Promise<SnapshotInfo> {
    const body = options.volumes ? { volumes: options.volumes } : undefined;
    return fromWire(await this.#requests.request("POST", "/snapshots", { body, timeoutMs: MACHINE_WITHIN_MS }));
  }

  /** A copy of the whole machine, with its processes and variables. */
  fork(options?: ForkOptions): Promise<Sandbox>;
  /** That many copies. */
  fork(count: number, options?: ForkOptions): Promise<Sandbox[]>;
  async fork(first: number | ForkOptions = {}, options: ForkOptions = {}): Promise<Sandbox | Sandbox[]> {
    if (typeof first === "number") return this.forkTree({ count: first, ...options });
    const wanted = toWire(first);
    const body = Object.keys(wanted).length ? wanted : undefined;
    const data = (await this.#client.make(this.#requests.path("/fork"), body, { keyed: false })) as Wire;
    const children = data["children"] as unknown[] | undefined;
    return this.#child(data["sandbox"] ?? children?.[0] ?? data);
  }

  /** Copies that know that they are siblings, for `promote`. The list is shorter if some could not start. */
  async forkTree(options: { count: number } & ForkOptions): Promise<Sandbox[]> {
    const data = await this.#client.make(this.#requests.path("/fork-tree"), toWire(options), { keyed: false });
    return listOf(data, "children").map((child) => this.#child(child));
  }

  #child(data: unknown): Sandbox {
    const child = Sandbox.#of({ status: "running", template: this.template, ...(data as Wire) }, this.#client);
    child.#info.metadata = { fork_parent_id: this.id, ...child.#info.metadata };
    return child;
  }

  /** Makes this child a sandbox in its own right; with `cleanupSiblings` the others of its tree are ended. */
  async promote(options: { cleanupSiblings?: boolean; treeId?: string } = {}): Promise<Promotion> {
    const body = toWire({ cleanupSiblings: false, ...options });
    return fromWire(await this.#requests.request("POST", "/promote", { body, timeoutMs: MACHINE_WITHIN_MS }));
  }

  /** Tries every candidate in a fork of its own and keeps the best. */
  explore(candidates: ReadonlyArray<Candidate | string>, options: ExploreOptions = {}): Promise<ExploreResult> {
    return explore(this, candidates, options);
  }

  /** Where it can go back to. */
  async timeline(): Promise<Timeline> {
    const data = await this.#requests.request("GET", "/timeline", { timeoutMs: MACHINE_WITHIN_MS });
    const { current } = data as { current: number | null };
    return { current, checkpoints: listOf(data, "checkpoints").map((item) => fromWire<Checkpoint>(item)) };
  }

  /** Makes a checkpoint of this moment; one with a name is kept. */
  async checkpoint(name?: string): Promise<Checkpoint> {
    const how = { body: toWire({ name }), timeoutMs: MACHINE_WITHIN_MS };
    return fromWire(await this.#requests.request("POST", "/checkpoints", how));
  }

  /** Gives a checkpoint a name, which keeps it, or takes its name away. */
  async nameCheckpoint(checkpoint: number | string, name: string | null): Promise<Checkpoint> {
    const path = `/checkpoints/${encodeURIComponent(checkpoint)}`;
    return fromWire(await this.#requests.request("PATCH", path, { body: { name }, timeoutMs: MACHINE_WITHIN_MS }));
  }

  /**
   * Puts it back to a checkpoint, by number or name: memory, disk, processes and variables are those of then. Where it
   * was becomes a checkpoint, too; its number is what is given, to take the rewind back.
   */
  async rewind(to: number | string): Promise<number | null> {
    const data = await this.#requests.request("POST", "/rewind", { body: { to }, timeoutMs: MACHINE_WITHIN_MS });
    this.#info.status = "running";
    return (data as { was: number | null }).was;
  }

  /** What changed: files that were added, changed and removed, with the text diff. */
  async diff(since: Moment, options: DiffOptions = {}): Promise<Diff> {
    const data = await this.#requests.request("GET", "/diff", diffRequest(since, options));
    return { ...fromWire<Diff>(data), files: listOf(data, "files").map((item) => fromWire<FileDiff>(item)) };
  }

  /** The same as a patch, for `git apply` or `patch -p1`. */
  async diffPatch(since: Moment, options: DiffOptions = {}): Promise<string> {
    return (await this.#requests.fetch("GET", "/diff", diffRequest(since, options, "patch"))).toString("utf8");
  }

  /** What was added and changed, as a tar. */
  diffTar(since: Moment, options: DiffOptions = {}): Promise<Buffer> {
    return this.#requests.fetch("GET", "/diff", diffRequest(since, options, "tar"));
  }

  /** Copies of one of its contexts, each in a sandbox of its own, where it goes on with its variables. */
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

  /** Lets it live so long from now; 0 is without limit. */
  setTtl(seconds: number): Promise<Lifecycle> {
    return this.#lifecycle("PATCH", { ttl_seconds: seconds });
  }

  /** Lets it be unused so long; 0 is without limit. */
  setIdle(seconds: number): Promise<Lifecycle> {
    return this.#lifecycle("PATCH", { idle_seconds: seconds });
  }

  setPersistent(persistent: boolean): Promise<Lifecycle> {
    return this.#lifecycle("PATCH", { persistent });
  }

  /** A way to a port of the sandbox, for an hour unless said otherwise. */
  async preview(port: number, options: { ttlSeconds?: number; paths?: string[] } = {}): Promise<Preview> {
    return fromWire(await this.#requests.request("POST", "/preview-token", { body: toWire({ port, ...options }) }));
  }

  /** A URL of a port that opens in a browser. It holds a token: whoever has it has the port. */
  async previewUrl(port: number, options: { ttlSeconds?: number } = {}): Promise<string> {
    return (await this.preview(port, options)).url;
  }

  /** The ports that are open now, and their addresses; those need a token (`previewUrl`). */
  async previewUrls(): Promise<Record<number, string>> {
    const { ports } = (await this.#requests.request("GET", "/ports")) as {
      ports: { port: number; preview_url: string }[];
    };
    return Object.fromEntries(ports.map(({ port, preview_url }) => [port, preview_url]));
  }

  /** A terminal. */
  terminal(options: TerminalOptions = {}): Promise<Terminal> {
    return Terminal.open(this.#requests, options);
  }

  async #change(path: string, status: string): Promise<void> {
    await this.#requests.request("POST", path, { timeoutMs: MACHINE_WITHIN_MS });
    this.#info.status = status;
  }

  async #lifecycle(method: string, body?: Wire): Promise<Lifecycle> {
    const told = fromWire<Lifecycle>(await this.#requests.request(method, "/lifecycle", { body }));
    this.#info.persistent = told.persistent;
    return told;
  }
}
