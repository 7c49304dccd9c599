/** Secrets: values that sandboxes use and never hold. */

import { type Client, getDefaultClient } from "./client.js";
import { fromWire, listOf } from "./naming.js";
import type { GrantedSecret, SandboxNetwork } from "./network.js";
import type { Transport } from "./transport.js";
import { Turns } from "./turns.js";

/**
 * A secret of the workspace, without its value, which no request answers with. A sandbox that is granted it holds a
 * placeholder, in a variable of its name; the gateway puts the value into HTTPS requests to `hosts`, and to nobody else.
 */
export interface SecretInfo {
  name: string;
  hosts: string[];
  createdAt: string;
}

/** Secrets by way of the default client, or of one that is given. */
export const Secret = {
  /** Stores a secret, or replaces it, at once and for sandboxes that have it. */
  set: (
    name: string,
    value: string,
    options: { hosts: string | readonly string[] },
    client: Client = getDefaultClient(),
  ): Promise<SecretInfo> => client.secrets.set(name, value, options),

  list: (client: Client = getDefaultClient()): Promise<SecretInfo[]> => client.secrets.list(),

  /** No sandbox can use it any more when this is done; connections that had it are reset. */
  remove: (name: string, client: Client = getDefaultClient()): Promise<void> => client.secrets.remove(name),
};

/** `client.secrets`; see also `Secret`. */
export class Secrets {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Stores a secret, or replaces it. `hosts` are names and `*.name` to which requests may carry it. */
  async set(name: string, value: string, options: { hosts: string | readonly string[] }): Promise<SecretInfo> {
    const hosts = typeof options.hosts === "string" ? [options.hosts] : options.hosts;
    const path = `/v1/secrets/${encodeURIComponent(name)}`;
    return fromWire(await this.#transport.request("PUT", path, { body: { value, hosts } }));
  }

  async list(): Promise<SecretInfo[]> {
    const data = await this.#transport.request("GET", "/v1/secrets");
    return listOf(data, "secrets").map((item) => fromWire<SecretInfo>(item));
  }

  /** No sandbox can use it any more when this is done; connections that had it are reset. */
  async remove(name: string): Promise<void> {
    await this.#transport.request("DELETE", `/v1/secrets/${encodeURIComponent(name)}`);
  }
}

/** `sandbox.secrets`: the secrets that a sandbox may use. */
export class SandboxSecrets {
  readonly #network: SandboxNetwork;
  readonly #turns = new Turns();

  constructor(network: SandboxNetwork) {
    this.#network = network;
  }

  async list(): Promise<GrantedSecret[]> {
    return (await this.#network.get()).secrets;
  }

  /** Lets it use these, too. What runs in it already has no variable for them; what starts afterwards does. */
  grant(...names: string[]): Promise<GrantedSecret[]> {
    return this.#change((had) => [...new Set([...had, ...names])]);
  }

  /** Takes these away, at once. */
  revoke(...names: string[]): Promise<GrantedSecret[]> {
    return this.#change((had) => had.filter((name) => !names.includes(name)));
  }

  #change(wanted: (had: string[]) => string[]): Promise<GrantedSecret[]> {
    return this.#turns.take(async () => {
      const had = (await this.list()).map(({ name }) => name);
      return (await this.#network.set({ secrets: wanted(had) })).secrets;
    });
  }
}
