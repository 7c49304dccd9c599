/** Commands: streamed ones, background ones, and the list of all commands of a sandbox. */

import type { IncomingHttpHeaders } from "node:http";

import { ConnectionError, ExecInterrupted, fromAnswer } from "./errors.js";
import type { Chunk, ExecInfo, ExecResult } from "./models.js";
import { fromWire, type Wire } from "./naming.js";
import { execBody, type ExecOptions, type Listeners } from "./options.js";
import type { ServerEvent } from "./sse.js";
import type { SandboxRequests } from "./requests.js";
import type { RequestOptions } from "./transport.js";

/** How much the network may add to the timeout of a command. */
const GRACE_MS = 60_000;
/** The server's answer if a command reached its timeout. */
const TIMED_OUT = 504;

/** How long to wait for the answer to a command with this timeout. */
export function patience(timeoutSeconds: number | undefined): number | null {
  return timeoutSeconds === undefined ? null : timeoutSeconds * 1000 + GRACE_MS;
}

export function execResult(data: unknown): ExecResult {
  const result = fromWire<ExecResult>(data);
  return { ...result, ok: result.exitCode === 0 };
}

/**
 * The output of a running command: an async iterable of chunks. Afterwards `result` says how it ended. If you stop
 * early, the command continues; `kill` ends it.
 */
export class ExecStream implements AsyncIterable<Chunk> {
  readonly #requests: SandboxRequests;
  readonly #events: AsyncGenerator<ServerEvent, void, undefined>;
  readonly #printed = { stdout: "", stderr: "" };
  #head: IncomingHttpHeaders | undefined;
  #serverError: Record<string, unknown> | undefined;
  #result: ExecResult | undefined;
  #id: string;

  constructor(requests: SandboxRequests, method: string, path: string, options: RequestOptions, id = "") {
    this.#requests = requests;
    this.#events = requests.events(method, path, { ...options, onHead: (headers) => (this.#head = headers) });
    this.#id = id;
  }

  /** The ID of the command, as soon as it runs. */
  get id(): string {
    return this.#id;
  }

  /** The output so far. */
  get stdout(): string {
    return this.#printed.stdout;
  }

  get stderr(): string {
    return this.#printed.stderr;
  }

  /** How the command ended. Available after the last chunk. */
  get result(): ExecResult {
    if (!this.#result) throw new Error("the command's output has not been read to its end");
    return this.#result;
  }

  get exitCode(): number {
    return this.result.exitCode;
  }

  /** Reads the rest. */
  async wait(listeners: Listeners = {}): Promise<ExecResult> {
    for await (const { stream, text } of this) {
      await (stream === "stdout" ? listeners.onStdout : listeners.onStderr)?.(text);
    }
    return this.result;
  }

  /** Ends the command. */
  kill(): Promise<void> {
    return new Exec(this.#requests, this.#id).kill();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Chunk, void, undefined> {
    let cause: unknown;
    try {
      for await (const event of this.#events) {
        const chunk = this.#take(event);
        if (chunk) yield chunk;
        if (this.#result) break;
      }
    } catch (error) {
      // Before the answer arrives, the command may not exist.
      if (!this.#head || !(error instanceof ConnectionError)) throw error;
      cause = error;
    }
    this.#judge(cause);
  }

  #take(event: ServerEvent): Chunk | undefined {
    const data = JSON.parse(event.data) as Wire;
    if (event.name === "stdout" || event.name === "stderr") {
      const text = String(data["chunk"]);
      this.#printed[event.name] += text;
      return { stream: event.name, text };
    }
    if (event.name === "start") this.#id = String(data["id"]);
    if (event.name === "error") this.#serverError = data;
    if (event.name === "exit") this.#result = execResult({ id: this.#id, ...this.#printed, ...data });
    return undefined;
  }

  #judge(cause: unknown): void {
    const head = this.#head ?? {};
    const { status, ...serverError } = this.#serverError ?? {};
    // The same errors as without streaming.
    if (this.#result?.reason === "timeout") {
      const late = { error: "command timeout", ...serverError, ...this.#printed, code: "command_timeout" };
      throw fromAnswer(TIMED_OUT, head, late);
    }
    if (this.#result) return;
    if (this.#serverError) throw fromAnswer(Number(status ?? 500), head, { ...serverError, ...this.#printed });
    const facts = { code: "interrupted", requestId: String(head["x-request-id"] ?? "") || undefined, cause };
    throw new ExecInterrupted("the command's output ended without an exit code", this.#id, this.#printed, facts);
  }
}

/** A background command. Its output is stored, and any client can read it from the first byte. */
export class Exec {
  readonly #requests: SandboxRequests;

  constructor(
    requests: SandboxRequests,
    readonly id: string,
    readonly pid = 0,
  ) {
    this.#requests = requests;
  }

  async status(): Promise<ExecInfo> {
    return fromWire(await this.#requests.request("GET", `/execs/${this.id}`));
  }

  /** Waits until it ends. */
  wait(): Promise<ExecResult> {
    return this.stream().wait();
  }

  /** Its output from byte `start`, followed by new output. */
  stream(start = 0): ExecStream {
    return new ExecStream(this.#requests, "GET", `/execs/${this.id}/output`, { query: { from: start } }, this.id);
  }

  /** Sends a signal, such as `TERM` or 15, to its process group. */
  async signal(signal: string | number): Promise<void> {
    await this.#requests.request("POST", `/execs/${this.id}/signal`, { body: { signal } });
  }

  kill(): Promise<void> {
    return this.signal("KILL");
  }

  /** Deletes its stored output. */
  async forget(): Promise<void> {
    await this.#requests.request("DELETE", `/execs/${this.id}`);
  }
}

/** The commands of a sandbox. */
export class Commands {
  readonly #requests: SandboxRequests;

  constructor(requests: SandboxRequests) {
    this.#requests = requests;
  }

  /** Runs a command and waits until it ends. */
  async run(command: string | readonly string[], options: ExecOptions & Listeners = {}): Promise<ExecResult> {
    return run(this.#requests, execBody(command, options), options);
  }

  /** Starts a command in the background. */
  async start(command: string | readonly string[], options: ExecOptions = {}): Promise<Exec> {
    const body = { ...execBody(command, options), detached: true };
    const { id, pid } = (await this.#requests.request("POST", "/exec", { body })) as { id: string; pid: number };
    return new Exec(this.#requests, id, pid);
  }

  /** Running commands, and ended ones whose output is still stored. */
  async list(): Promise<ExecInfo[]> {
    const { execs } = (await this.#requests.request("GET", "/execs")) as { execs: unknown[] };
    return execs.map((item) => fromWire<ExecInfo>(item));
  }

  /** A command by its ID. */
  get(id: string): Exec {
    return new Exec(this.#requests, id);
  }
}

/** Runs the command of a request body. Listeners get the output while it runs. */
export async function run(
  requests: SandboxRequests,
  body: Wire,
  options: { timeoutSeconds?: number } & Listeners,
): Promise<ExecResult> {
  if (options.onStdout || options.onStderr) {
    return new ExecStream(requests, "POST", "/exec/stream", { body }).wait(options);
  }
  const timeoutMs = patience(options.timeoutSeconds);
  return execResult(await requests.request("POST", "/exec", { body, timeoutMs }));
}
