/** A terminal in a sandbox, over a WebSocket. */

import { once } from "node:events";

import type { WebSocket } from "ws";

import type { Recording } from "./audit.js";
import { ConnectionError, fromAnswer, RequestTimeout } from "./errors.js";
import type { SandboxRequests } from "./requests.js";
import { deadlineTimer } from "./timer.js";

export interface TerminalOptions {
  rows?: number;
  cols?: number;
  /** A shell line; a login shell by default. */
  cmd?: string;
  user?: string;
}

/** A terminal. Bytes are not converted. Closing it sends a hangup to its shell. */
export class Terminal implements AsyncIterable<Buffer> {
  readonly #socket: WebSocket;
  readonly #recording: Recording | undefined;
  #received: Buffer[] = [];
  #ended = false;
  #failure: Error | undefined;
  /** Why the record could not be written. */
  #unrecorded: unknown;
  #waiting: (() => void)[] = [];
  #exitCode: number | undefined;

  private constructor(socket: WebSocket, recording: Recording | undefined) {
    this.#socket = socket;
    this.#recording = recording;
    socket.on("message", (data: Buffer, isBinary: boolean) => this.#take(data, isBinary));
    socket.on("error", (error) => (this.#failure = error));
    socket.on("close", () => {
      this.#ended = true;
      try {
        recording?.end({ error: this.#failure });
      } catch (error) {
        // An error thrown here would end the process.
        this.#unrecorded = error;
      }
      this.#wakeUp();
    });
  }

  static async open(requests: SandboxRequests, options: TerminalOptions = {}): Promise<Terminal> {
    const given = Object.entries(options).filter(([, value]) => value !== undefined);
    const pairs = Object.fromEntries(given.map(([name, value]) => [name, String(value)]));
    const path = requests.path("/exec/pty");
    const recording = requests.transport.recording("GET", path, { query: pairs });
    // Loaded here, because only terminals need it.
    const { WebSocket } = await import("ws");
    try {
      return await requests.transport.reach(({ url, token }) => {
        const address = `${url.replace(/^http/, "ws")}${path}?${new URLSearchParams(pairs)}`;
        const socket = new WebSocket(address, { headers: { authorization: `Bearer ${token}` } });
        return opened(socket, () => new Terminal(socket, recording));
      });
    } catch (error) {
      recording?.end({ error });
      throw error;
    }
  }

  /** How the shell ended; `undefined` while it runs. */
  get exitCode(): number | undefined {
    return this.#exitCode;
  }

  /** Sends input. */
  write(data: string | Uint8Array): void {
    this.#recording?.shown("typed", data);
    this.#socket.send(typeof data === "string" ? Buffer.from(data) : data, { binary: true });
  }

  resize(rows: number, cols: number): void {
    this.#socket.send(JSON.stringify({ resize: { rows, cols } }));
  }

  /** The next output; empty at the end. */
  async read(options: { timeoutMs?: number } = {}): Promise<Buffer> {
    const deadline = Date.now() + (options.timeoutMs ?? Number.POSITIVE_INFINITY);
    while (this.#received.length === 0 && !this.#ended) await this.#news(deadline);
    if (this.#received.length === 0) this.#judge();
    const shown = Buffer.concat(this.#received);
    this.#received = [];
    return shown;
  }

  /**
   * The output up to and including `text`. Output after it is kept for the next read, and so is all output if `text`
   * does not appear.
   */
  async readUntil(text: string, options: { timeoutMs?: number } = {}): Promise<Buffer> {
    const deadline = Date.now() + (options.timeoutMs ?? Number.POSITIVE_INFINITY);
    let seen = Buffer.alloc(0);
    try {
      while (!seen.includes(text)) {
        const more = await this.read({ timeoutMs: deadline - Date.now() });
        if (more.length === 0) throw new ConnectionError(`the terminal ended before it showed ${JSON.stringify(text)}`);
        seen = Buffer.concat([seen, more]);
      }
    } catch (error) {
      if (seen.length > 0) this.#received.unshift(seen);
      throw error;
    }
    const end = seen.indexOf(text) + Buffer.byteLength(text);
    if (end < seen.length) this.#received.unshift(seen.subarray(end));
    return seen.subarray(0, end);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer, void, undefined> {
    for (let shown = await this.read(); shown.length > 0; shown = await this.read()) yield shown;
  }

  /** Hangs up. */
  async close(): Promise<void> {
    if (this.#socket.readyState !== this.#socket.CLOSED) {
      const closed = once(this.#socket, "close");
      this.#socket.close(1000);
      await closed;
    }
    if (this.#unrecorded !== undefined) throw this.#unrecorded;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #take(data: Buffer, isBinary: boolean): void {
    if (isBinary) this.#show(data);
    else this.#said(JSON.parse(data.toString("utf8")) as { exit?: number });
    this.#wakeUp();
  }

  #show(data: Buffer): void {
    this.#received.push(data);
    this.#recording?.shown("shown", data);
  }

  #said(word: { exit?: number }): void {
    this.#exitCode = word.exit ?? this.#exitCode;
    if (this.#recording && word.exit !== undefined) this.#recording.record.output["exit_code"] = word.exit;
  }

  #judge(): void {
    if (this.#failure) throw new ConnectionError(`the terminal is gone: ${this.#failure.message}`);
    if (this.#unrecorded !== undefined) throw this.#unrecorded;
  }

  #wakeUp(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }

  #news(deadline: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const wait = Math.max(0, deadline - Date.now());
      const late = () => reject(new RequestTimeout("the terminal did not show the text in time"));
      const timer = deadlineTimer(wait, late);
      this.#waiting.push(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }
}

/** Waits until the socket opens. A refusal becomes the same error as on any other route. */
function opened<T>(socket: WebSocket, make: () => T): Promise<T> {
  return new Promise((resolve, reject) => {
    socket.once("open", () => resolve(make()));
    socket.on("error", (cause) => reject(new ConnectionError(`no terminal: ${cause.message}`, { cause })));
    socket.once("unexpected-response", (_request, answer) => {
      const pieces: Buffer[] = [];
      answer.on("data", (piece: Buffer) => pieces.push(piece));
      answer.on("close", () => {
        reject(fromAnswer(answer.statusCode ?? 0, answer.headers, Buffer.concat(pieces).toString("utf8")));
        socket.terminate();
      });
    });
  });
}
