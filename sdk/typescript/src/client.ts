/** A client of one server. */

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

import { configured } from "./config.js";
import { ConnectionError, SandlingError } from "./errors.js";
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

/** Making a machine takes longer than an ordinary request may. */
const CREATE_WITHIN_MS = 300_000;
const LOST_ATTEMPTS = 3;

/** A refusal that is about to be tried again. */
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
  /** For requests other than commands and machines; 60 s unless given. */
  timeoutMs?: number;
  /** How long a server without room is asked again; 60 s unless given. */
  maxCreateRetrySeconds?: number;
  onCreateRetry?: (event: CreateRetryEvent) => unknown;
}

/** A client of one server: the one that is named, else `SANDLING_API`'s, else a local one, started if need be. */
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

  /** Whom the token stands for. */
  async me(): Promise<Record<string, unknown>> {
    return fromWire(await this.transport.request("GET", "/v1/me"));
  }

  /** Which server this is, and what runs its machines. */
  async version(): Promise<{ name: string; version: string; accelerator: string }> {
    return fromWire(await this.transport.request("GET", "/version"));
  }

  /** The workspace's limits, and how much of them is used. */
  async quota(): Promise<Record<string, unknown>> {
    return fromWire(await this.transport.request("GET", "/v1/quota"));
  }

  /** What happened in the workspace, oldest first. */
  async events(tail = 100): Promise<Event[]> {
    const data = await this.transport.request("GET", "/v1/events", { query: { tail } });
    return listOf(data, "events").map((item) => fromWire<Event>(item));
  }

  /** What happened in the workspace and what happens from now on. */
  async *followEvents(tail = 100): AsyncGenerator<Event, void, undefined> {
    const query = { tail, follow: "true" };
    for await (const event of this.transport.events("GET", "/v1/events", { query })) {
      yield fromWire<Event>(JSON.parse(event.data));
    }
  }

  /** Where the server is. */
  async apiUrl(): Promise<string> {
    return (await this.transport.endpoint()).url;
  }

  /** The same client, whose requests go another way. */
  through(transport: Transport): Client {
    return new Client(this.#options, transport);
  }

  /** Closes the connections. Sandboxes are not touched. */
  close(): void {
    this.transport.close();
  }

  /**
   * Asks for machines, again if the server has no room. With a key, a request whose answer was lost can be repeated and
   * still makes one machine.
   */
  async make(path: string, body: Wire | undefined, how: { keyed: boolean; signal?: AbortSignal }): Promise<unknown> {
    const headers: Record<string, string> = how.keyed ? { "idempotency-key": randomUUID() } : {};
    const started = Date.now();
    for (let attempt = 0, lost = 0; ;) {
      try {
        return await this.transport.request("POST", path, { body, headers, timeoutMs: CREATE_WITHIN_MS });
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
    // The first try's connection was lost, but it is still being worked on.
    const inProgress = error.code === "key_in_progress" && elapsedSeconds * 1000 < CREATE_WITHIN_MS;
    const wait = inProgress ? 0.5 : delaySeconds(error, attempt - 1, elapsedSeconds, budget);
    if (wait === undefined) throw error;
    await this.#options.onCreateRetry?.({ ...refusal, delaySeconds: wait });
    await sleep(wait * 1000, undefined, { signal });
  }
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

/** `client.snapshots`: machines that were saved by `sandbox.snapshot()`. */
export class Snapshots {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** The newest first. */
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

  /** A `clone` of it, or one of its `snapshots`. */
  async copy(name: string, copy: string, kind: "clone" | "snapshots" = "clone"): Promise<VolumeInfo> {
    const path = `/v1/volumes/${encodeURIComponent(name)}/${kind}`;
    return fromWire(await this.#transport.request("POST", path, { body: { name: copy } }));
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

  /** Makes a token. Its secret is in this answer and nowhere else. */
  async create(name: string, options: { expiresInDays?: number; scope?: string } = {}): Promise<Token> {
    const body = toWire({ label: name, ...options });
    return fromWire(await this.#transport.request("POST", "/v1/me/tokens", { body }));
  }

  async revoke(prefix: string): Promise<void> {
    await this.#transport.request("DELETE", `/v1/me/tokens/${encodeURIComponent(prefix)}`);
  }
}

let shared: Client | undefined;

/** The client that is used where none is given. */
export function getDefaultClient(): Client {
  shared ??= new Client();
  return shared;
}

/** Uses another client where none is given; nothing for a new one. */
export function setDefaultClient(client?: Client): void {
  shared = client;
}
