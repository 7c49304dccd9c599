/** The network of a sandbox, and the defaults. */

import { fromWire, listOf, toWire, type Wire } from "./naming.js";
import type { SandboxRequests } from "./requests.js";
import type { Transport } from "./transport.js";
import { Turns } from "./turns.js";

/** Nothing, the allow-list, the public internet, or the public internet with a list of what was used. */
export type NetworkMode = "deny" | "allow" | "open" | "learn";

/** Where a policy comes from: the sandbox itself, a default that it follows, or nowhere. */
export type NetworkSource = "sandbox" | "template" | "workspace" | "nothing";

/** How much of the network a sandbox may use. A missing value means the server's limit. */
export interface NetworkLimits {
  /** In total. */
  sentBytes?: number;
  sentBytesPerSecond?: number;
  receivedBytesPerSecond?: number;
  /** At the same time. */
  connections?: number;
  dnsQueriesPerSecond?: number;
}

/** What a sandbox may reach. In a change, missing fields keep their value. */
export interface NetworkOptions {
  /**
   * By default `allow` if the list `allow` has entries, otherwise `deny`. A change without a list keeps the mode. A
   * change to another mode than `allow` empties the list, unless you pass one.
   */
  mode?: NetworkMode;
  /** Names, `*.name`, addresses, networks, and the presets `pypi`, `npm`, `crates`, `debian` and `github`. */
  allow?: string[];
  /** Addresses and networks that are always refused. */
  deny?: string[];
  /** `sealed`, or `inspected`: the gateway compares the host of each request with the name of the server. */
  tls?: "sealed" | "inspected";
  limits?: NetworkLimits;
  /** Names of all secrets that it has after this. */
  secrets?: string[];
  /** Members reach each other as `HOSTNAME.internal` and `ID.internal`. In a change, `""` leaves the group. */
  group?: string;
  hostname?: string;
}

/** A secret that a sandbox may use. */
export interface GrantedSecret {
  /** Also the name of the variable that holds the placeholder. */
  name: string;
  /** What the guest sees instead of the value. */
  placeholder: string;
}

/** The traffic through a sandbox's gateway. */
export interface NetworkUsage {
  sentBytes: number;
  receivedBytes: number;
  connectionsOpen: number;
  connectionsAllowed: number;
  connectionsRefused: number;
  dnsQueries: number;
  dnsRefused: number;
  requestsRefused: number;
  /** Includes dropped frames: damaged, too long, fragmented or spoofed. */
  packetsRefused: number;
  /** Decisions without an event, because there were too many at once. */
  eventsLost: number;
}

/** A network policy. */
export interface NetworkPolicy {
  mode: NetworkMode;
  allow: string[];
  /** Addresses and networks that are always refused. */
  deny: string[];
  tls: "sealed" | "inspected";
}

/** The policy of a sandbox, and its usage. */
export interface Network extends NetworkPolicy {
  /** The limits in force, wherever they come from. */
  limits: NetworkLimits;
  secrets: GrantedSecret[];
  /** Names of granted secrets that were removed since. */
  revokedSecrets: string[];
  group: string | null;
  /** The name by which its group reaches it. */
  hostnames: string[];
  usage: NetworkUsage;
  /** In the mode `learn`: the allow-list that would have been enough. */
  learned: string[] | null;
  /** Where the policy comes from. */
  source: NetworkSource;
  /** The workspace's policy if it is binding: connections must pass it, too. */
  bound: NetworkPolicy | null;
}

/** The default for sandboxes without their own policy. */
export interface NetworkDefault {
  /** `undefined` if the workspace's default applies, or if there is none. */
  mode: NetworkMode | null;
  allow: string[];
  /** Addresses and networks that are always refused. */
  deny: string[];
  tls: "sealed" | "inspected" | null;
  /** The limits that it sets. */
  limits: NetworkLimits;
  /** Whether no sandbox of the workspace may exceed it. */
  binding: boolean;
}

/** A change of a default. */
export interface NetworkDefaultOptions extends NetworkOptions {
  /** For a workspace: whether no sandbox may exceed the default. */
  binding?: boolean;
}

/** One decision of a sandbox's gateway. */
export interface NetworkEvent {
  /** Increases with each event. */
  number: number;
  time: string;
  kind: "dns" | "connect" | "accept" | "name" | "request" | "close" | "packet";
  verdict: "allowed" | "refused" | "failed";
  name?: string | null;
  address?: string | null;
  port?: number | null;
  /** Whether it is about UDP. */
  udp: boolean;
  /** Why it was refused or failed, as text. */
  reason?: string | null;
  /** The same as a stable code. */
  code?: string | null;
  sentBytes: number;
  receivedBytes: number;
  /** Names of secrets that were placed into a request. */
  secrets: string[];
}

export function networkBody(options: NetworkDefaultOptions): Wire {
  const { limits, ...rest } = options;
  return toWire({ ...rest, limits: limits && toWire(limits) });
}

function networkOf(data: unknown): Network {
  const {
    counts,
    group,
    limits,
    bound,
    from = "sandbox",
    revoked_secrets: revokedSecrets = [],
    ...rest
  } = data as Wire;
  const { name, names } = (group ?? {}) as { name?: string; names?: string[] };
  const most = bound ? { deny: [], ...bound } : null;
  const told = { deny: [], group: name ?? null, hostnames: names ?? [], learned: null, source: from, ...rest };
  const figures = { limits: fromWire<NetworkLimits>(limits), usage: fromWire<NetworkUsage>(counts) };
  return { ...told, ...figures, bound: most, revokedSecrets } as unknown as Network;
}

function defaultOf(data: unknown): NetworkDefault {
  const { policy, limits, binding = false } = data as { policy?: Wire; limits: Wire; binding?: boolean };
  return { mode: null, allow: [], deny: [], tls: null, ...policy, limits: fromWire<NetworkLimits>(limits), binding };
}

/** `sandbox.network`: what it may reach, and what it used. Changes apply at once, also to open connections. */
export class SandboxNetwork {
  readonly #requests: SandboxRequests;
  readonly #turns = new Turns();

  constructor(requests: SandboxRequests) {
    this.#requests = requests;
  }

  /** Its policy and its usage. */
  async get(): Promise<Network> {
    return networkOf(await this.#requests.request("GET", "/network"));
  }

  /** Changes the given options. Others keep their value. */
  async set(options: NetworkOptions): Promise<Network> {
    return networkOf(await this.#requests.request("PUT", "/network", { body: networkBody(options) }));
  }

  /** Adds names, `*.name`, addresses, networks or presets such as `pypi` to the allow-list. */
  allow(...entries: string[]): Promise<Network> {
    return this.#turns.take(async () => {
      const { mode, allow } = await this.get();
      return this.set({ mode: mode === "deny" ? "allow" : mode, allow: [...new Set([...allow, ...entries])] });
    });
  }

  /** Denies everything: it reaches only its group. */
  deny(): Promise<Network> {
    return this.set({ mode: "deny" });
  }

  /** Removes its own policy and limits. It then follows the default of its template or its workspace. */
  async clear(): Promise<Network> {
    await this.#requests.request("DELETE", "/network");
    return this.get();
  }

  /** The traffic through its gateway. */
  async usage(): Promise<NetworkUsage> {
    return (await this.get()).usage;
  }

  /** The last `tail` decisions of its gateway, oldest first. A thousand are stored. */
  async events(tail = 100): Promise<NetworkEvent[]> {
    const data = await this.#requests.request("GET", "/network/events", { query: { tail } });
    return listOf(data, "events").map((item) => fromWire<NetworkEvent>(item));
  }

  /** The last `tail` decisions, and new ones as they are made. */
  async *followEvents(tail = 0): AsyncGenerator<NetworkEvent, void, undefined> {
    const query = { tail, follow: "true" };
    for await (const event of this.#requests.events("GET", "/network/events", { query })) {
      if (event.name === "event") yield fromWire<NetworkEvent>(JSON.parse(event.data));
    }
  }
}

/**
 * `client.network`: the default for sandboxes of the workspace without their own policy. With `template`, the default
 * of one template, which has precedence. Changes need a token with the scope `admin` and apply at once, also to running
 * sandboxes and their open connections.
 */
export class NetworkDefaults {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  async get(of: { template?: string } = {}): Promise<NetworkDefault> {
    return defaultOf(await this.#transport.request("GET", defaultPath(of)));
  }

  /** Changes the given options. A default has no secrets and no group. */
  async set(options: NetworkDefaultOptions, of: { template?: string } = {}): Promise<NetworkDefault> {
    return defaultOf(await this.#transport.request("PUT", defaultPath(of), { body: networkBody(options) }));
  }

  /** Removes the default. */
  async clear(of: { template?: string } = {}): Promise<void> {
    await this.#transport.request("DELETE", defaultPath(of));
  }
}

function defaultPath({ template }: { template?: string }): string {
  return template === undefined ? "/v1/network" : `/v1/templates/${encodeURIComponent(template)}/network`;
}
