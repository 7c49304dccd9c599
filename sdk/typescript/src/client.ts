/** A client of one server. */

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

import { configured } from "./config.js";
import { ConnectionError, SandlingError } from "./errors.js";
import { patience } from "./exec.js";
import { ensureLocalServer } from "./local.js";
import type { Event, SnapshotInfo, Token, VolumeInfo } from "./models.js";
import { fromWire, listOf, toWire, type Wire } from "./naming.js";
import { NetworkDefaults } from "./network.js";
import type { CreateOptions } from "./options.js";
import { DEFAULT_BUDGET_SECONDS, delaySeconds } from "./retry.js";
import { Sandbox } from "./sandbox.js";
import { Secrets } from "./secrets.js";
import { Templates } from "./templates.js";
import { Transport } from "./transport.js";

/** Creating a machine may take longer than other requests. */
const CREATE_WITHIN_MS = 300_000;
/** A large volume may have to be copied to another node. */
const COPY_WITHIN_MS = 3_600_000;
/** A create from an image may pull it first. */
const IMAGE_WITHIN_MS = 1_800_000;
const LOST_ATTEMPTS = 3;

/** A create that was refused and will be retried. */
export interface CreateRetryEvent {
  path: string;
  attempt: number;
  error: SandlingError;
  delaySeconds: number;
  elapsedSeconds: number;
}

export interface ClientOptions {
  apiUrl?: string;
  apiKey?: string;
  /** The timeout of requests other than commands and creates; 60 s by default. */
  timeoutMs?: number;
  /** How long to retry a create while the server has no capacity; 60 s by default. */
  maxCreateRetrySeconds?: number;
  onCreateRetry?: (event: CreateRetryEvent) => unknown;
}

/** A client of one server: the given one, or `SANDLING_API`, or else the local one, which it starts if necessary. */
export class Client {
  readonly transport: Transport;
  readonly sandboxes: Sandboxes;
  readonly snapshots: Snapshots;
  readonly volumes: Volumes;
  readonly templates: Templates;
  readonly tokens: Tokens;
  readonly secrets: Secrets;
  readonly network: NetworkDefaults;
  readonly #options: ClientOptions;

  constructor(options: ClientOptions = {}, transport?: Transport) {
    this.#options = options;
    const resolve = async (gone?: string) =>
      configured(options.apiUrl, options.apiKey) ?? (await ensureLocalServer(gone));
    this.transport = transport ?? new Transport(resolve, options.timeoutMs ?? 60_000);
    this.sandboxes = new Sandboxes(this);
    this.snapshots = new Snapshots(this.transport);
    this.volumes = new Volumes(this.transport);
    this.templates = new Templates(this.transport);
    this.tokens = new Tokens(this.transport);
    this.secrets = new Secrets(this.transport);
    this.network = new NetworkDefaults(this.transport);
  }

  /** The workspace and scope of the token. */
  async me(): Promise<Record<string, unknown>> {
    return fromWire(await this.transport.request("GET", "/v1/me"));
  }

  /** The version of the server and its accelerator. */
  async version(): Promise<{ name: string; version: string; accelerator: string }> {
    return fromWire(await this.transport.request("GET", "/version"));
  }

  /** The limits of the workspace, and how much is used. */
  async quota(): Promise<Record<string, unknown>> {
    return fromWire(await this.transport.request("GET", "/v1/quota"));
  }

  /** The events of the workspace, oldest first. */
  async events(tail = 100): Promise<Event[]> {
    const data = await this.transport.request("GET", "/v1/events", { query: { tail } });
    return listOf(data, "events").map((item) => fromWire<Event>(item));
  }

  /** The events of the workspace, and new ones as they happen. */
  async *followEvents(tail = 100): AsyncGenerator<Event, void, undefined> {
    const query = { tail, follow: "true" };
    for await (const event of this.transport.events("GET", "/v1/events", { query })) {
      yield fromWire<Event>(JSON.parse(event.data));
    }
  }

  /** The URL of the server. */
  async apiUrl(): Promise<string> {
    return (await this.transport.endpoint()).url;
  }

  /** A copy of the client with another transport. */
  through(transport: Transport): Client {
    return new Client(this.#options, transport);
  }

  /** Closes the connections. Sandboxes are not touched. */
  close(): void {
    this.transport.close();
  }

  /**
   * Creates machines, and retries if the server has no capacity. With an idempotency key, a retry after a lost answer
   * still creates only one machine.
   */
  async make(path: string, body: Wire | undefined, how: { keyed: boolean; signal?: AbortSignal }): Promise<unknown> {
    const timeoutMs = createWithinMs(body ?? {});
    const headers: Record<string, string> = how.keyed ? { "idempotency-key": randomUUID() } : {};
    const started = Date.now();
    for (let attempt = 0, lost = 0; ;) {
      try {
        return await this.transport.request("POST", path, { body, headers, timeoutMs });
      } catch (error) {
        if (!(error instanceof SandlingError)) throw error;
        if (error instanceof ConnectionError) {
          lost += 1;
          if (!how.keyed || lost === LOST_ATTEMPTS) throw error;
          await sleep(200 * lost, undefined, { signal: how.signal });
          continue;
        }
        attempt += 1;
        await this.#waitFor({ path, attempt, error, elapsedSeconds: (Date.now() - started) / 1000 }, how.signal);
      }
    }
  }

  async #waitFor(refusal: Omit<CreateRetryEvent, "delaySeconds">, signal?: AbortSignal): Promise<void> {
    const { error, attempt, elapsedSeconds } = refusal;
    const budget = this.#options.maxCreateRetrySeconds ?? DEFAULT_BUDGET_SECONDS;
    // The server still works on the first attempt, whose connection was lost.
    const inProgress = error.code === "key_in_progress" && elapsedSeconds * 1000 < CREATE_WITHIN_MS;
    const wait = inProgress ? 0.5 : delaySeconds(error, attempt - 1, elapsedSeconds, budget);
    if (wait === undefined) throw error;
    await this.#options.onCreateRetry?.({ ...refusal, delaySeconds: wait });
    await sleep(wait * 1000, undefined, { signal });
  }
}

/** How long to wait for a machine, and for the code that runs in it at once. */
function createWithinMs(body: Wire): number | null {
  const within = body["image"] === undefined ? CREATE_WITHIN_MS : IMAGE_WITHIN_MS;
  const run = body["run"] as Wire | undefined;
  if (run === undefined) return within;
  const timeout = patience(run["timeout_seconds"] as number | undefined);
  return timeout === null ? null : within + timeout;
}

/** `client.sandboxes`. */
export class Sandboxes {
  readonly #client: Client;

  constructor(client: Client) {
    this.#client = client;
  }

  create(options: CreateOptions = {}): Promise<Sandbox> {
    return Sandbox.create(options, this.#client);
  }

  list(options: { metadata?: Record<string, string> } = {}): Promise<Sandbox[]> {
    return Sandbox.list(options, this.#client);
  }

  get(id: string): Promise<Sandbox> {
    return Sandbox.get(id, this.#client);
  }

  async delete(id: string): Promise<void> {
    await this.#client.transport.request("DELETE", `/v1/sandboxes/${encodeURIComponent(id)}`);
  }
}

/** `client.snapshots`: machines that `sandbox.snapshot()` saved. */
export class Snapshots {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** All snapshots, newest first. */
  async list(options: { sandboxId?: string } = {}): Promise<SnapshotInfo[]> {
    const query = { sandbox_id: options.sandboxId };
    const data = await this.#transport.request("GET", "/v1/snapshots", { query });
    return listOf(data, "snapshots").map((item) => fromWire<SnapshotInfo>(item));
  }

  async get(id: string): Promise<SnapshotInfo> {
    return fromWire(await this.#transport.request("GET", `/v1/snapshots/${encodeURIComponent(id)}`));
  }

  async delete(id: string): Promise<void> {
    await this.#transport.request("DELETE", `/v1/snapshots/${encodeURIComponent(id)}`);
  }
}

/** `client.volumes`: named disks; see also `Volume`. */
export class Volumes {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  async create(name: string, sizeMb: number): Promise<VolumeInfo> {
    return fromWire(await this.#transport.request("POST", "/v1/volumes", { body: toWire({ name, sizeMb }) }));
  }

  async list(): Promise<VolumeInfo[]> {
    const data = await this.#transport.request("GET", "/v1/volumes");
    return listOf(data, "items").map((item) => fromWire<VolumeInfo>(item));
  }

  async get(name: string): Promise<VolumeInfo> {
    return fromWire(await this.#transport.request("GET", `/v1/volumes/${encodeURIComponent(name)}`));
  }

  /** Makes a `clone` or one of its `snapshots`. `node` is the node of the fleet that gets a clone. */
  async copy(
    name: string,
    copy: string,
    kind: "clone" | "snapshots" = "clone",
    options: { node?: string } = {},
  ): Promise<VolumeInfo> {
    const path = `/v1/volumes/${encodeURIComponent(name)}/${kind}`;
    const body = toWire({ name: copy, node: options.node });
    return fromWire(await this.#transport.request("POST", path, { body, timeoutMs: COPY_WITHIN_MS }));
  }

  async delete(name: string): Promise<void> {
    await this.#transport.request("DELETE", `/v1/volumes/${encodeURIComponent(name)}`);
  }
}

/** `client.tokens`: the workspace's API tokens. */
export class Tokens {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  async list(): Promise<Token[]> {
    const data = await this.#transport.request("GET", "/v1/me/tokens");
    return listOf(data, "items").map((item) => fromWire<Token>(item));
  }

  /** Creates a token. Only this answer has its secret. */
  async create(name: string, options: { expiresInDays?: number; scope?: string } = {}): Promise<Token> {
    const body = toWire({ label: name, ...options });
    return fromWire(await this.#transport.request("POST", "/v1/me/tokens", { body }));
  }

  async revoke(prefix: string): Promise<void> {
    await this.#transport.request("DELETE", `/v1/me/tokens/${encodeURIComponent(prefix)}`);
  }
}

let shared: Client | undefined;

/** The client that is used by default. */
export function getDefaultClient(): Client {
  shared ??= new Client();
  return shared;
}

/** Sets the default client; `undefined` creates a new one. */
export function setDefaultClient(client?: Client): void {
  shared = client;
}
