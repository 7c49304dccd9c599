/** An audit log of everything that is done in the machines of a pool. */

import { createHash } from "node:crypto";
import { appendFileSync } from "node:fs";
import type { IncomingHttpHeaders } from "node:http";

import type { Endpoint } from "./config.js";
import { ErrorWithOutput, SandboxTimeout } from "./errors.js";
import { toWire, type Wire } from "./naming.js";
import type { ServerEvent } from "./sse.js";
import { type RequestOptions, Transport } from "./transport.js";

/** One action: who asked for what, in which sandbox, and the result. */
export interface AuditRecord {
  /** `run` for a pool's run, a request such as `POST /exec` for a leased machine, or a name of your choice. */
  action: string;
  /** The complete input, and how it ran. */
  input: Wire;
  /** The complete output, not the shortened one that a model or a page shows. */
  output: Wire;
  sandboxId: string;
  /** The user, as the caller names them. */
  actor: string | null;
  /** `left` if nobody read the result to its end. */
  outcome: "ok" | "failed" | "timeout" | "error" | "left";
  durationMs: number;
  time: string;
}

/** Writes records as lines of JSON to a file that only its owner can read, or passes them to your function. */
export class AuditLog {
  readonly #keep: (record: AuditRecord) => void;

  constructor(sink: string | ((record: AuditRecord) => void)) {
    const append = (record: AuditRecord) => appendFileSync(String(sink), line(record), { mode: 0o600 });
    this.#keep = typeof sink === "string" ? append : sink;
  }

  /** Writes a record. A failure throws, because a missing record must not go unnoticed. */
  write(record: AuditRecord): void {
    this.#keep(record);
  }
}

function line(record: AuditRecord): string {
  return `${JSON.stringify(toWire(record))}\n`;
}

export function newRecord(action: string, input: Wire, actor: string | null = null): AuditRecord {
  const time = new Date().toISOString();
  return { action, input, output: {}, sandboxId: "", actor, outcome: "ok", durationMs: 0, time };
}

/** A running request to a machine. `end` records it, whatever the result. */
export class Recording {
  readonly record: AuditRecord;
  readonly #audit: AuditLog;
  readonly #started = Date.now();
  readonly #texts: Record<string, string[]> = {};
  readonly #digest = createHash("sha256");

  constructor(audit: AuditLog, actor: string | null, method: string, path: string, options: RequestOptions) {
    const [, sandboxId = "", rest = path] = /^\/v1\/sandboxes\/([^/]+)(.*)$/.exec(path) ?? [];
    const { query = {}, body = {}, headers = {}, content } = options;
    const input: Wire = { ...toWire(query), ...withoutValues(body) };
    if (headers["range"]) input["range"] = headers["range"];
    if (content instanceof Uint8Array) Object.assign(input, told(content));
    this.record = { ...newRecord(`${method} ${rest || "/"}`, input, actor), sandboxId };
    this.#audit = audit;
  }

  /** Takes the complete answer. */
  answered(headers: IncomingHttpHeaders, content: Buffer): void {
    if (!headers["content-type"]?.startsWith("application/json")) Object.assign(this.record.output, told(content));
    else if (content.length > 0) {
      const answer: unknown = JSON.parse(content.toString("utf8"));
      Object.assign(this.record.output, Array.isArray(answer) ? { answer } : answer);
    }
  }

  /** Takes an event of a stream. For streams that are not a command's, only the last event is recorded. */
  heard(event: ServerEvent): void {
    const data = JSON.parse(event.data) as Wire;
    if (event.name === "stdout" || event.name === "stderr") this.shown(event.name, String(data["chunk"]));
    else Object.assign(this.record.output, data);
  }

  /** Takes output, or bytes that went over a terminal in either direction. */
  shown(name: string, data: string | Uint8Array): void {
    (this.#texts[name] ??= []).push(typeof data === "string" ? data : Buffer.from(data).toString("utf8"));
  }

  /** Takes a part of a streamed file, which may be too large for memory and for a record. */
  passed(where: Wire, block: Uint8Array): void {
    this.#digest.update(block);
    where["size"] = Number(where["size"] ?? 0) + block.length;
    where["sha256"] = this.#digest.copy().digest("hex");
  }

  /** `left`: nobody read the result to its end. */
  end(how: { error?: unknown; left?: boolean } = {}): void {
    const { record } = this;
    for (const [name, pieces] of Object.entries(this.#texts)) record.output[name] = pieces.join("");
    if (how.error !== undefined) {
      const { error } = how;
      record.outcome = error instanceof SandboxTimeout ? "timeout" : "error";
      record.output["error"] = String(error);
      if (error instanceof ErrorWithOutput)
        Object.assign(record.output, { stdout: error.stdout, stderr: error.stderr });
    } else record.outcome = how.left && !("exit_code" in record.output) ? "left" : judged(record.output);
    record.durationMs = Date.now() - this.#started;
    this.#audit.write(record);
  }
}

/** Sends requests through another transport and records each one. */
export class RecordingTransport extends Transport {
  readonly #inner: Transport;
  readonly #audit: AuditLog;
  readonly #actor: string | null;

  constructor(inner: Transport, audit: AuditLog, actor: string | null) {
    super(() => inner.endpoint(), 0);
    this.#inner = inner;
    this.#audit = audit;
    this.#actor = actor;
  }

  override endpoint(): Promise<Endpoint> {
    return this.#inner.endpoint();
  }

  override reach<T>(work: (endpoint: Endpoint) => Promise<T>): Promise<T> {
    return this.#inner.reach(work);
  }

  override recording(method: string, path: string, options: RequestOptions): Recording {
    return new Recording(this.#audit, this.#actor, method, path, options);
  }

  override async fetch(method: string, path: string, options: RequestOptions = {}): Promise<Buffer> {
    const recording = this.recording(method, path, options);
    const { content } = options;
    const passing = content && !(content instanceof Uint8Array) ? passingOn(content, recording) : content;
    let headers: IncomingHttpHeaders = {};
    let answer: Buffer;
    try {
      const onHead = (told: IncomingHttpHeaders) => (headers = told);
      answer = await this.#inner.fetch(method, path, { ...options, content: passing, onHead });
      recording.answered(headers, answer);
    } catch (error) {
      recording.end({ error });
      throw error;
    }
    recording.end();
    return answer;
  }

  override stream(method: string, path: string, options: RequestOptions = {}): AsyncGenerator<Buffer, void, undefined> {
    const recording = this.recording(method, path, options);
    const { output } = recording.record;
    return followed(this.#inner.stream(method, path, options), recording, (block) => recording.passed(output, block));
  }

  override events(method: string, path: string, options: RequestOptions = {}) {
    const recording = this.recording(method, path, options);
    return followed(this.#inner.events(method, path, options), recording, (event) => recording.heard(event));
  }

  override close(): void {
    this.#inner.close();
  }
}

async function* followed<T>(
  source: AsyncGenerator<T, void, undefined>,
  recording: Recording,
  tell: (item: T) => void,
): AsyncGenerator<T, void, undefined> {
  let how: { error?: unknown; left?: boolean } = { left: true };
  try {
    for await (const item of source) {
      tell(item);
      yield item;
    }
    how = {};
  } catch (error) {
    how = { error };
    throw error;
  } finally {
    recording.end(how);
  }
}

async function* passingOn(content: AsyncIterable<Uint8Array>, recording: Recording): AsyncGenerator<Uint8Array> {
  for await (const block of content) {
    recording.passed(recording.record.input, block);
    yield block;
  }
}

/** Removes the values of the environment, because they may be secrets. */
function withoutValues(body: Wire): Wire {
  return body["env"] ? { ...body, env: Object.keys(body["env"]).sort() } : body;
}

function told(content: Uint8Array): Wire {
  try {
    return { content: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(content) };
  } catch {
    return { content_base64: Buffer.from(content).toString("base64") };
  }
}

function judged(output: Wire): AuditRecord["outcome"] {
  if (output["reason"] === "timeout") return "timeout";
  return output["error"] || output["exit_code"] ? "failed" : "ok";
}
