/** A pool of pre-warmed machines. Every user gets a fresh one. */

import { setMaxListeners } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";

import { type AuditLog, newRecord, RecordingTransport } from "./audit.js";
import { type Client, getDefaultClient } from "./client.js";
import {
  CapacityError,
  ConnectionError,
  LimitError,
  NotFoundError,
  SandboxTimeout,
  SandlingError,
  ServerError,
} from "./errors.js";
import { advice, configRecord, DEFAULTS, type ExecutionConfig, type PoolStatus, type RunReport } from "./execution.js";
import { toWire } from "./naming.js";
import type { CreateOptions } from "./options.js";
import { Sandbox } from "./sandbox.js";
import { deadlineTimer } from "./timer.js";

const TTL_SECONDS = 3600;
/** The pause after a failure. It doubles each time. */
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 30_000;

/** The size of a pool and the options of its machines, as for `Sandbox.create`. */
export interface PoolOptions extends Omit<CreateOptions, "signal"> {
  /** How many machines are ready; 2 by default. */
  size?: number;
  config?: ExecutionConfig;
  audit?: AuditLog;
  /** Is called with every machine before it is ready, for example to install packages. */
  prepare?: (sandbox: Sandbox) => unknown;
  /** How many machines may be in use at once; further calls wait. */
  maxBusy?: number;
}

export interface AcquireOptions {
  /** How long to wait for a machine; no limit by default. */
  timeoutSeconds?: number;
  /** The user, for the audit log. */
  actor?: string;
}

/**
 * Holds machines ready. A machine that comes back is ended, and nobody gets it again. It lives for `ttlSeconds` (an
 * hour by default) in the pool, and as long again after it is handed out, even if this process dies.
 */
export class SandboxPool {
  readonly config: ExecutionConfig;
  readonly #options: CreateOptions;
  readonly #size: number;
  readonly #maxBusy: number;
  readonly #ttlSeconds: number;
  readonly #prepare: PoolOptions["prepare"];
  readonly #audit: AuditLog | undefined;
  readonly #client: Client;
  readonly #ready: Sandbox[] = [];
  readonly #making = new Set<Promise<void>>();
  #waiting: (() => void)[] = [];
  #open: AbortController | undefined;
  #busy = 0;
  #served = 0;
  #pauseMs = FIRST_PAUSE_MS;
  #lastError: unknown;

  constructor(options: PoolOptions = {}, client: Client = getDefaultClient()) {
    const { size = 2, config = {}, audit, prepare, maxBusy = Number.POSITIVE_INFINITY, ...wanted } = options;
    this.config = config;
    this.#options = { memoryMb: config.memoryMb, ...wanted };
    this.#size = size;
    this.#maxBusy = maxBusy;
    this.#ttlSeconds = options.ttlSeconds || TTL_SECONDS;
    this.#prepare = prepare;
    this.#audit = audit;
    this.#client = client;
  }

  /** Starts to create machines. */
  start(): this {
    if (!this.#open) {
      this.#open = new AbortController();
      // Every create in progress adds a listener.
      setMaxListeners(0, this.#open.signal);
    }
    this.#fill();
    return this;
  }

  /** Ends the ready machines and hands out no more. Users end the machines that they have. */
  async close(): Promise<void> {
    this.#open?.abort();
    this.#open = undefined;
    this.#tell();
    await Promise.all(this.#making);
    await Promise.all(this.#ready.splice(0).map(end));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  status(): PoolStatus {
    const lastError = this.#lastError === undefined ? null : String(this.#lastError);
    const [ready, warming] = [this.#ready.length, this.#making.size];
    return { size: this.#size, ready, warming, busy: this.#busy, served: this.#served, lastError };
  }

  /** A fresh machine for one block: `await using lease = await pool.lease()`. */
  async lease(options: AcquireOptions = {}): Promise<Lease> {
    return new Lease(await this.acquire(options), this);
  }

  /**
   * A fresh machine; throws `CapacityError` if none is ready in time. Give it back with `release`. The pool's audit log
   * records all requests to it and to its copies.
   */
  async acquire(options: AcquireOptions = {}): Promise<Sandbox> {
    const sandbox = await this.#acquire(options.timeoutSeconds);
    if (!this.#audit) return sandbox;
    return sandbox.through(new RecordingTransport(this.#client.transport, this.#audit, options.actor ?? null));
  }

  /** Ends a machine that `acquire` returned. */
  async release(sandbox: Sandbox): Promise<void> {
    try {
      await end(sandbox);
    } finally {
      this.#returned();
    }
  }

  /**
   * Runs code in a fresh machine and ends the machine. `actor` is the user in the audit log. If `config` asks for
   * another memory size than the pool's machines have, a new machine is created.
   */
  async run(code: string, options: { config?: ExecutionConfig; actor?: string } = {}): Promise<RunReport> {
    const config = options.config ?? this.config;
    const memoryMb = config.memoryMb ?? this.#options.memoryMb;
    const record = newRecord("run", { code, ...configRecord({ ...config, memoryMb }) }, options.actor);
    try {
      const sandbox = await (memoryMb === this.#options.memoryMb ? this.#acquire() : this.#acquireSized(memoryMb));
      record.sandboxId = sandbox.id;
      try {
        const report = await execute(sandbox, code, config);
        const { stdout, stderr, exitCode, reason } = report;
        record.output = toWire({ stdout, stderr, exitCode, reason, advice: report.advice });
        record.outcome = report.timedOut ? "timeout" : report.ok ? "ok" : "failed";
        record.durationMs = report.durationMs;
        return report;
      } finally {
        await this.release(sandbox);
      }
    } catch (error) {
      record.outcome = "error";
      record.output = { error: String(error) };
      throw error;
    } finally {
      this.#audit?.write(record);
    }
  }

  async #acquire(timeoutSeconds?: number): Promise<Sandbox> {
    const deadline = Date.now() + (timeoutSeconds ?? Number.POSITIVE_INFINITY) * 1000;
    for (;;) {
      const sandbox = await this.#take(deadline);
      try {
        await sandbox.setTtl(this.#ttlSeconds);
        return sandbox;
      } catch (error) {
        // It waited in the pool until its TTL ended it.
        if (error instanceof NotFoundError) this.#returned();
        else {
          await this.release(sandbox);
          throw error;
        }
      }
    }
  }

  /** Creates a machine for one caller. It counts as in use. */
  async #acquireSized(memoryMb: number | undefined): Promise<Sandbox> {
    for (;;) {
      this.#mustBeOpen();
      if (this.#busy < this.#maxBusy) break;
      await this.#news(Number.POSITIVE_INFINITY);
    }
    this.#busy += 1;
    this.#served += 1;
    try {
      return await this.#make({ memoryMb });
    } catch (error) {
      this.#returned();
      throw error;
    }
  }

  async #take(deadline: number): Promise<Sandbox> {
    for (;;) {
      this.#mustBeOpen();
      const sandbox = this.#busy < this.#maxBusy ? this.#ready.shift() : undefined;
      if (sandbox) {
        this.#busy += 1;
        this.#served += 1;
        this.#fill();
        return sandbox;
      }
      if (isFinal(this.#lastError)) throw this.#lastError;
      // A pool of size 0 creates a machine for each waiting caller.
      this.#fill(1);
      if (!(await this.#news(deadline))) {
        throw new CapacityError("no machine became ready in time", { cause: this.#lastError });
      }
    }
  }

  #mustBeOpen(): void {
    if (!this.#open) throw new Error("the pool is not open: call start(), and not yet close()");
  }

  #returned(): void {
    this.#busy -= 1;
    this.#tell();
  }

  /** Starts enough creates to fill the pool. */
  #fill(least = 0): void {
    while (this.#open && this.#ready.length + this.#making.size < Math.max(this.#size, least)) {
      const making = this.#warm(this.#open.signal).finally(() => {
        this.#making.delete(making);
        this.#tell();
      });
      this.#making.add(making);
    }
  }

  /** Creates one machine, with retries, while the pool is open. */
  async #warm(closing: AbortSignal): Promise<void> {
    while (!closing.aborted) {
      try {
        this.#ready.push(await this.#make({ signal: closing }));
        this.#lastError = undefined;
        this.#pauseMs = FIRST_PAUSE_MS;
        return;
      } catch (error) {
        if (closing.aborted) return;
        // Includes errors of the caller's `prepare`. Callers that wait for a machine get them.
        this.#lastError = error;
        this.#tell();
        const pause = this.#pauseMs;
        this.#pauseMs = Math.min(pause * 2, LONGEST_PAUSE_MS);
        await sleep(pause, undefined, { signal: closing }).catch(() => {});
      }
    }
  }

  async #make(more: CreateOptions): Promise<Sandbox> {
    const options = { ...this.#options, ...more, ttlSeconds: this.#ttlSeconds };
    const sandbox = await Sandbox.create(options, this.#client);
    try {
      await this.#prepare?.(sandbox);
      return sandbox;
    } catch (error) {
      await end(sandbox);
      throw error;
    }
  }

  #tell(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }

  /** Waits for a change. False if it takes too long. */
  #news(deadline: number): Promise<boolean> {
    const left = deadline - Date.now();
    if (left <= 0) return Promise.resolve(false);
    return new Promise((resolve) => {
      const timer = deadlineTimer(left, () => resolve(false));
      this.#waiting.push(() => {
        clearTimeout(timer);
        resolve(true);
      });
    });
  }
}

/** A machine of a pool for one block. */
export class Lease {
  readonly #pool: SandboxPool;

  constructor(
    readonly sandbox: Sandbox,
    pool: SandboxPool,
  ) {
    this.#pool = pool;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#pool.release(this.sandbox);
  }
}

async function execute(sandbox: Sandbox, code: string, config: ExecutionConfig): Promise<RunReport> {
  const { language = DEFAULTS.language, timeoutSeconds = DEFAULTS.timeoutSeconds, env, user } = config;
  const { outputLimit, cpuSeconds, diskLimitMb } = config;
  const about = { sandboxId: sandbox.id, advice: advice(code, config) };
  const started = Date.now();
  try {
    const result = await sandbox.runScript(code, language, {
      timeoutSeconds,
      env,
      user,
      outputLimit,
      cpuSeconds,
      diskLimitMb,
    });
    const { stdout, stderr, exitCode, reason, durationMs, ok } = result;
    return { stdout, stderr, exitCode, reason, durationMs, ok, timedOut: false, ...about };
  } catch (error) {
    if (!(error instanceof SandboxTimeout)) throw error;
    const { stdout, stderr } = error;
    const took = { durationMs: Date.now() - started, ok: false, timedOut: true };
    return { stdout, stderr, exitCode: null, reason: "timeout", ...took, ...about };
  }
}

/** Ends a machine. If that fails, its TTL ends it. */
async function end(sandbox: Sandbox): Promise<void> {
  try {
    await sandbox.kill();
  } catch (error) {
    if (!(error instanceof SandlingError)) throw error;
  }
}

/** Whether a retry cannot help, because the caller has to change something. */
function isFinal(error: unknown): boolean {
  const passing = [ConnectionError, ServerError, LimitError];
  return error !== undefined && !passing.some((kind) => error instanceof kind);
}
