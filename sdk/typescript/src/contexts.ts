/** Contexts: live interpreters whose variables last from cell to cell. */

import { execution } from "./cells.js";
import { NotFoundError } from "./errors.js";
import { patience } from "./exec.js";
import type { Execution } from "./models.js";
import { toWire } from "./naming.js";
import type { SandboxRequests } from "./requests.js";
import type { Sandbox } from "./sandbox.js";

/** The server's default timeout of a cell. */
const DEFAULT_TIMEOUT_SECONDS = 30;

/** A live interpreter in a sandbox. */
export class CodeContext {
  readonly #requests: SandboxRequests;

  constructor(
    requests: SandboxRequests,
    readonly id: string,
    readonly language: string,
    /** The sandbox of the context. */
    readonly sandbox: Sandbox,
  ) {
    this.#requests = requests;
  }

  /**
   * Runs a cell. The value of its last expression is a result. An exception is in `error`. A cell that reaches its
   * timeout (30 s by default) is interrupted and throws `SandboxTimeout`.
   */
  async runCode(code: string, options: { timeoutSeconds?: number; outputLimit?: number } = {}): Promise<Execution> {
    const { timeoutSeconds, outputLimit } = options;
    const timeoutMs = timeoutSeconds === undefined ? undefined : Math.max(1, Math.round(timeoutSeconds * 1000));
    const body = toWire({ code, timeoutMs, outputLimit });
    const wait = patience(timeoutSeconds ?? DEFAULT_TIMEOUT_SECONDS);
    return execution(await this.#request("POST", "/run", { body, timeoutMs: wait }));
  }

  /** Interrupts the running cell, like Ctrl-C. */
  async interrupt(): Promise<void> {
    await this.#request("POST", "/interrupt");
  }

  /** Starts a new interpreter, without variables. */
  async restart(): Promise<void> {
    await this.#request("POST", "/restart");
  }

  /** Copies the interpreter with its variables, each copy in a new sandbox (`sandbox`). */
  fork(count = 1, options: { metadata?: Record<string, string> } = {}): Promise<CodeContext[]> {
    return this.sandbox.forkContext(this.id, { count, ...options });
  }

  /** Ends the context. It may have ended already. */
  async close(): Promise<void> {
    try {
      await this.#request("DELETE", "");
    } catch (error) {
      if (!(error instanceof NotFoundError)) throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #request(method: string, path: string, options?: Parameters<SandboxRequests["request"]>[2]): Promise<unknown> {
    return this.#requests.request(method, `/repl/sessions/${this.id}${path}`, options);
  }
}

export interface ContextOptions {
  cwd?: string;
  env?: Record<string, string>;
  user?: string;
}

/** The contexts of a sandbox. */
export class Contexts {
  readonly #requests: SandboxRequests;
  readonly #sandbox: Sandbox;

  constructor(requests: SandboxRequests, sandbox: Sandbox) {
    this.#requests = requests;
    this.#sandbox = sandbox;
  }

  /** Starts an interpreter: `python` or `node`. */
  async create(language = "python", options: ContextOptions = {}): Promise<CodeContext> {
    const body = toWire({ language, ...options });
    return this.#context(await this.#requests.request("POST", "/repl/sessions", { body }));
  }

  async list(): Promise<CodeContext[]> {
    const sessions = (await this.#requests.request("GET", "/repl/sessions")) as unknown[];
    return sessions.map((session) => this.#context(session));
  }

  #context(data: unknown): CodeContext {
    const { id, language } = data as { id: string; language: string };
    return new CodeContext(this.#requests, id, language, this.#sandbox);
  }
}
