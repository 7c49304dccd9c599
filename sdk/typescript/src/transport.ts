/**
 * Requests and answers over one connection pool to one server, with errors as exceptions.
 *
 * Uses Node's `http` and not `fetch`, which gives up after five minutes without an answer. A command may take longer.
 */

import * as http from "node:http";
import * as https from "node:https";
import { pipeline, Readable } from "node:stream";

import type { Recording } from "./audit.js";
import { type Endpoint, shown } from "./config.js";
import { ConnectionError, fromAnswer, RequestTimeout } from "./errors.js";
import type { Wire } from "./naming.js";
import { EventDecoder, type ServerEvent } from "./sse.js";
import { deadlineTimer } from "./timer.js";
import { VERSION } from "./version.js";

/** The server sends a keep-alive every ten seconds. */
const STREAM_SILENCE_MS = 60_000;
/** Shorter than the server's idle timeout, so that no connection closes during a request. */
const KEEP_ALIVE_MS = 45_000;
/** Detects a peer that disappeared, also while a command without a timeout runs. */
const PROBE_AFTER_MS = 30_000;

export type Query = Record<string, string | number | undefined>;
export type Content = Uint8Array | AsyncIterable<Uint8Array>;

export interface RequestOptions {
  body?: Wire;
  content?: Content;
  query?: Query;
  headers?: Record<string, string>;
  /** The timeout of the whole answer. `null` means none, which is the default of streams. */
  timeoutMs?: number | null;
  /** The read timeout of a stream; a minute by default. */
  silenceMs?: number;
  /** Gets the headers of a successful answer; for a stream, before its body. */
  onHead?: (headers: http.IncomingHttpHeaders) => void;
}

/**
 * Sends requests. `resolve` finds the server; it is called for the first request, and again when the server no longer
 * answers.
 */
export class Transport {
  readonly #resolve: (gone?: string) => Promise<Endpoint>;
  readonly #timeoutMs: number;
  #endpoint: Promise<Endpoint> | undefined;
  #agent: http.Agent | undefined;

  constructor(resolve: (gone?: string) => Promise<Endpoint>, timeoutMs: number) {
    this.#resolve = resolve;
    this.#timeoutMs = timeoutMs;
  }

  /** The URL of the server. */
  endpoint(): Promise<Endpoint> {
    this.#endpoint ??= this.#find();
    return this.#endpoint;
  }

  async #find(gone?: string): Promise<Endpoint> {
    try {
      return await this.#resolve(gone);
    } catch (error) {
      this.#endpoint = undefined;
      throw error;
    }
  }

  /** Runs `work` with the server's endpoint. If nobody listens there, it finds the server again and retries. */
  async reach<T>(work: (endpoint: Endpoint) => Promise<T>): Promise<T> {
    const known = this.endpoint();
    const endpoint = await known;
    try {
      return await work(endpoint);
    } catch (error) {
      if (!isRefused(error)) throw error;
      if (this.#endpoint === known) this.#endpoint = this.#find(endpoint.url);
      return work(await this.endpoint());
    }
  }

  /** Sends JSON and returns the JSON of the answer; `undefined` if it has no body. */
  async request(method: string, path: string, options: RequestOptions = {}): Promise<unknown> {
    const answer = await this.fetch(method, path, options);
    return answer.length > 0 ? JSON.parse(answer.toString("utf8")) : undefined;
  }

  /** Returns the bytes of the answer. */
  async fetch(method: string, path: string, options: RequestOptions = {}): Promise<Buffer> {
    const limit = options.timeoutMs === undefined ? this.#timeoutMs : (options.timeoutMs ?? Number.POSITIVE_INFINITY);
    const { message, from } = await this.#send(method, path, options, limit);
    const timer = deadlineTimer(limit, () => message.destroy(late(from, limit)));
    try {
      const bytes = await gather(message, from);
      if ((message.statusCode ?? 0) >= 400) {
        throw fromAnswer(message.statusCode ?? 0, message.headers, bytes.toString("utf8"));
      }
      options.onHead?.(message.headers);
      return bytes;
    } finally {
      clearTimeout(timer);
    }
  }

  /** An answer whose body is streamed. */
  async *stream(method: string, path: string, options: RequestOptions = {}): AsyncGenerator<Buffer, void, undefined> {
    const { silenceMs = STREAM_SILENCE_MS } = options;
    const limit = options.timeoutMs ?? Number.POSITIVE_INFINITY;
    const { message, from } = await this.#send(method, path, options, Math.min(silenceMs, limit));
    if ((message.statusCode ?? 0) >= 400) {
      const text = (await gather(message, from)).toString("utf8");
      throw fromAnswer(message.statusCode ?? 0, message.headers, text);
    }
    options.onHead?.(message.headers);
    const timer = deadlineTimer(limit, () => message.destroy(late(from, limit)));
    const pieces = message[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
    try {
      for (;;) {
        // The time that the reader needs for a piece does not count.
        const silence = deadlineTimer(silenceMs, () => message.destroy(late(from, silenceMs)));
        const piece = await pieces.next().finally(() => clearTimeout(silence));
        if (piece.done) return;
        yield piece.value;
      }
    } catch (error) {
      throw lost(from, error);
    } finally {
      clearTimeout(timer);
      message.destroy();
    }
  }

  /** The events of an event stream. */
  async *events(
    method: string,
    path: string,
    options: RequestOptions = {},
  ): AsyncGenerator<ServerEvent, void, undefined> {
    const decoder = new EventDecoder();
    const headers = { accept: "text/event-stream", ...options.headers };
    for await (const received of this.stream(method, path, { ...options, headers })) yield* decoder.feed(received);
  }

  /** The recorder for requests that are not sent here, if requests are recorded. */
  recording(_method: string, _path: string, _options: RequestOptions): Recording | undefined {
    return undefined;
  }

  /** Closes the connections, also those in use. */
  close(): void {
    this.#agent?.destroy();
    this.#agent = undefined;
  }

  #send(method: string, path: string, options: RequestOptions, limit: number): Promise<Answer> {
    return this.reach((endpoint) => this.#sendTo(endpoint, method, path, options, limit));
  }

  #sendTo(endpoint: Endpoint, method: string, path: string, options: RequestOptions, limit: number): Promise<Answer> {
    const secure = endpoint.url.startsWith("https:");
    this.#agent ??= new (secure ? https : http).Agent({ keepAlive: true, timeout: KEEP_ALIVE_MS });
    const content = options.body ? Buffer.from(JSON.stringify(options.body)) : options.content;
    const headers: Record<string, string | number> = {
      authorization: `Bearer ${endpoint.token}`,
      accept: "application/json",
      "user-agent": `sandling-js/${VERSION}`,
      ...(options.body ? { "content-type": "application/json" } : {}),
      ...options.headers,
    };
    if (content instanceof Uint8Array) headers["content-length"] = content.length;
    else if (!content && method !== "GET") headers["content-length"] = 0;
    const url = endpoint.url + path + queryString(options.query);
    const request = (secure ? https : http).request(url, { method, headers, agent: this.#agent });
    return exchange(request, content, limit, shown(endpoint.url));
  }
}

/** The head of an answer, and the server that sent it. */
interface Answer {
  message: http.IncomingMessage;
  from: string;
}

/** Sends a request and waits for the head of its answer. */
function exchange(
  request: http.ClientRequest,
  content: Content | undefined,
  limit: number,
  from: string,
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const timer = deadlineTimer(limit, () => request.destroy(late(from, limit)));
    request.on("socket", (socket) => socket.setKeepAlive(true, PROBE_AFTER_MS));
    request.on("error", (error) => {
      clearTimeout(timer);
      reject(lost(from, error));
    });
    request.on("response", (message) => {
      clearTimeout(timer);
      resolve({ message, from });
    });
    if (content === undefined || content instanceof Uint8Array) return void request.end(content);
    onceConnected(request, () => {
      const source = Readable.from(content);
      // Errors of this callback are the caller's. They also destroy the request.
      source.on("error", reject);
      pipeline(source, request, () => {});
    });
  });
}

/** Reads nothing from a source before the connection exists, so that a retry can send all of it. */
function onceConnected(request: http.ClientRequest, begin: () => void): void {
  request.on("socket", (socket) => (socket.connecting ? socket.once("connect", begin) : begin()));
}

async function gather(message: http.IncomingMessage, from: string): Promise<Buffer> {
  const pieces: Buffer[] = [];
  try {
    for await (const piece of message) pieces.push(piece as Buffer);
  } catch (error) {
    throw lost(from, error);
  }
  return pieces.length === 1 ? (pieces[0] as Buffer) : Buffer.concat(pieces);
}

function queryString(query: Query = {}): string {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined) given.set(name, String(value));
  const text = given.toString();
  return text && `?${text}`;
}

function late(from: string, limit: number): Error {
  return new RequestTimeout(`the server at ${from} did not answer within ${limit / 1000} s`);
}

/** Whether nobody listened there, so that nothing was sent. */
function isRefused(error: unknown): boolean {
  if (!(error instanceof ConnectionError)) return false;
  return (error.cause as NodeJS.ErrnoException | undefined)?.code === "ECONNREFUSED";
}

function lost(from: string, error: unknown): Error {
  if (error instanceof ConnectionError) return error;
  const { code, message } = error as NodeJS.ErrnoException;
  return new ConnectionError(`the connection to the server at ${from} failed: ${message || code}`, { cause: error });
}
