/** The network of a sandbox, and what those have that say nothing. */

import { fromWire, listOf, toWire, type Wire } from "./naming.js";
import type { SandboxRequests } from "./requests.js";
import type { Transport } from "./transport.js";
import { Turns } from "./turns.js";

/** Nothing, what is listed, the public internet, or that and a list of what was used. */
export type NetworkMode = "deny" | "allow" | "open" | "learn";

/** Who said what a sandbox may reach: it itself, the default that it follows, or nobody. */
export type NetworkSource = "sandbox" | "template" | "workspace" | "nothing";

/** How much of the network a sandbox may use. What is absent is the server's own limit. */
export interface NetworkLimits {
  /** In all. */
  sentBytes?: number;
  sentBytesPerSecond?: number;
  receivedBytesPerSecond?: number;
  /** At a time. */
  connections?: number;
  dnsQueriesPerSecond?: number;
}

/** What a sandbox is to reach. In a change, what is absent stays. */
export interface NetworkOptions {
  /**
   * If absent, `allow` if anything is listed in `allow`, else `deny`; in a change without a list, it stays. A change to
   * another mode than `allow` empties a list that is not given.
   */
  mode?: NetworkMode;
  /** Names, `*.name`, addresses, networks, and the presets `pypi`, `npm`, `crates`, `debian` and `github`. */
  allow?: string[];
  /** Addresses and networks that are refused, whatever is allowed. */
  deny?: string[];
  /** `sealed`, or `inspected`: the host of each request inside is compared with the server's name. */
  tls?: "sealed" | "inspected";
  limits?: NetworkLimits;
  /** Names of all secrets that it has from then on. */
  secrets?: string[];
  /** Its sandboxes reach each other, as `HOSTNAME.internal` and `ID.internal`; in a change, `""` leaves it. */
  group?: string;
  hostname?: string;
}

/** A secret that a sandbox may use. */
export interface GrantedSecret {
  /** Also of the variable that holds the placeholder. */
  name: string;
  /** What the guest has instead of the value. */
  placeholder: string;
}

/** What went through a sandbox's gateway. */
export interface NetworkUsage {
  sentBytes: number;
  receivedBytes: number;
  connectionsOpen: number;
  connectionsAllowed: number;
  connectionsRefused: number;
  dnsQueries: number;
  dnsRefused: number;
  requestsRefused: number;
  /** Also frames that were dropped: damaged, too long, in fragments or under another's name. */
  packetsRefused: number;
  /** Decisions that are no event, because there were too many at once. */
  eventsLost: number;
}

/** What may be reached. */
export interface NetworkPolicy {
  mode: NetworkMode;
  allow: string[];
  /** Addresses and networks that are refused, whatever is allowed. */
  deny: string[];
  tls: "sealed" | "inspected";
}

/** What a sandbox may reach, and what went through its gateway. */
export interface Network extends NetworkPolicy {
  /** What it may use, whoever said so. */
  limits: NetworkLimits;
  secrets: GrantedSecret[];
  /** Names of secrets that it was granted and that were removed since. */
  revokedSecrets: string[];
  group: string | null;
  /** By which the others of its group reach it. */
  hostnames: string[];
  usage: NetworkUsage;
  /** In the mode `learn`: the list that would have allowed what was used. */
  learned: string[] | null;
  /** Whose policy it is. */
  source: NetworkSource;
  /** The workspace's policy, if it binds: what that does not allow is refused, too. */
  bound: NetworkPolicy | null;
}

/** What sandboxes may reach that say nothing about it themselves. */
export interface NetworkDefault {
  /** Nothing if it is left to the workspace's default, and that to none at all. */
  mode: NetworkMode | null;
  allow: string[];
  /** Addresses and networks that are refused, whatever is allowed. */
  deny: string[];
  tls: "sealed" | "inspected" | null;
  /** Those that it sets. */
  limits: NetworkLimits;
  /** Whether it is the most for all sandboxes of the workspace, whatever they say themselves. */
  binding: boolean;
}

/** What a default is to be. */
export interface NetworkDefaultOptions extends NetworkOptions {
  /** Of a workspace's: whether it is the most that any of its sandboxes may reach and use, whatever they say. */
  binding?: boolean;
}

/** One decision of a sandbox's gateway. */
export interface NetworkEvent {
  /** Rises from event to event. */
  number: number;
  time: string;
  kind: "dns" | "connect" | "accept" | "name" | "request" | "close" | "packet";
  verdict: "allowed" | "refused" | "failed";
  name?: string | null;
  address?: string | null;
  port?: number | null;
  /** Whether it is about datagrams rather than a connection. */
  udp: boolean;
  /** Why it was refused or failed, for people. */
  reason?: string | null;
  /** The same for programs. */
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

/** `sandbox.network`: what it may reach, and what it did. A change holds at once, also for open connections. */
export class SandboxNetwork {
  readonly #requests: SandboxRequests;
  readonly #turns = new Turns();

  constructor(requests: SandboxRequests) {
    this.#requests = requests;
  }

  /** What it may reach, and what went through its gateway. */
  async get(): Promise<Network> {
    return networkOf(await this.#requests.request("GET", "/network"));
  }

  /** Changes what is given; what is absent stays. */
  async set(options: NetworkOptions): Promise<Network> {
    return networkOf(await this.#requests.request("PUT", "/network", { body: networkBody(options) }));
  }

  /** Lets it reach these, too: names, `*.name`, addresses, networks or presets such as `pypi`. */
  allow(...entries: string[]): Promise<Network> {
    return this.#turns.take(async () => {
      const { mode, allow } = await this.get();
      return this.set({ mode: mode === "deny" ? "allow" : mode, allow: [...new Set([...allow, ...entries])] });
    });
  }

  /** Takes all that is allowed away: it reaches nothing but its group. */
  deny(): Promise<Network> {
    return this.set({ mode: "deny" });
  }

  /** Forgets its own policy and limits: it follows its template's default again, then its workspace's. */
  async clear(): Promise<Network> {
    await this.#requests.request("DELETE", "/network");
    return this.get();
  }

  /** What went through its gateway. */
  async usage(): Promise<NetworkUsage> {
    return (await this.get()).usage;
  }

  /** What its gateway decided, the last `tail` decisions, oldest first. A thousand are kept. */
  async events(tail = 100): Promise<NetworkEvent[]> {
    const data = await this.#requests.request("GET", "/network/events", { query: { tail } });
    return listOf(data, "events").map((item) => fromWire<NetworkEvent>(item));
  }

  /** Every decision as it is made, after the last `tail` of those before. */
  async *followEvents(tail = 0): AsyncGenerator<NetworkEvent, void, undefined> {
    const query = { tail, follow: "true" };
    for await (const event of this.#requests.events("GET", "/network/events", { query })) {
      if (event.name === "event") yield fromWire<NetworkEvent>(JSON.parse(event.data));
    }
  }
}

/**
 * `client.network`: what the workspace's sandboxes may reach that say nothing about it themselves. With `template`, those
 * of one template, which comes first. Changes need a token of the scope `admin`, and hold at once, also for sandboxes that
 * run and their open connections.
 */
export class NetworkDefaults {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  async get(of: { template?: string } = {}): Promise<NetworkDefault> {
    return defaultOf(await this.#transport.request("GET", defaultPath(of)));
  }

  /** Changes what is given; a default gives neither secrets nor a group. */
  async set(options: NetworkDefaultOptions, of: { template?: string } = {}): Promise<NetworkDefault> {
    return defaultOf(await this.#transport.request("PUT", defaultPath(of), { body: networkBody(options) }));
  }

  /** Removes it. */
  async clear(of: { template?: string } = {}): Promise<void> {
    await this.#transport.request("DELETE", defaultPath(of));
  }
}

function defaultPath({ template }: { template?: string }): string {
  return template === undefined ? "/v1/network" : `/v1/templates/${encodeURIComponent(template)}/network`;
}
