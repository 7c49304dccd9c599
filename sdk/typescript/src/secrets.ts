/** Secrets: values that sandboxes use without seeing them. */

import { type Client, getDefaultClient } from "./client.js";
import { fromWire, listOf } from "./naming.js";
import type { GrantedSecret, SandboxNetwork } from "./network.js";
import type { Transport } from "./transport.js";
import { Turns } from "./turns.js";

/**
 * A secret of the workspace, without its value, which no request returns. A sandbox with the secret has a placeholder
 * in a variable of the same name. The gateway puts the value into HTTPS requests to `hosts`, at `placements`, and
 * nowhere else.
 */
export interface SecretInfo {
  name: string;
  hosts: string[];
  placements: string[];
  createdAt: string;
}

/** Where the gateway may use a secret. */
export interface SecretOptions {
  /** Names and `*.name` whose requests may carry it. */
  hosts: string | readonly string[];
  /**
   * Where in a request: `header NAME`, `header NAME: PREFIX`, `query KEY` or `basic`. The default is
   * `header Authorization: Bearer`. The gateway refuses the placeholder anywhere else.
   */
  placements?: string | readonly string[];
}

/** Secrets of the default client, or of a given one. */
export const Secret = {
  /** Stores or replaces a secret. Sandboxes that have it use the new value at once. */
  set: (
    name: string,
    value: string,
    options: SecretOptions,
    client: Client = getDefaultClient(),
  ): Promise<SecretInfo> => client.secrets.set(name, value, options),

  list: (client: Client = getDefaultClient()): Promise<SecretInfo[]> => client.secrets.list(),

  /** Removes the secret. No sandbox can use it afterwards, and connections that used it are reset. */
  remove: (name: string, client: Client = getDefaultClient()): Promise<void> => client.secrets.remove(name),
};

/** `client.secrets`; see also `Secret`. */
export class Secrets {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Stores or replaces a secret. Sandboxes that have it use the new value at once. */
  async set(name: string, value: string, options: SecretOptions): Promise<SecretInfo> {
    const list = (items?: string | readonly string[]) => (typeof items === "string" ? [items] : items);
    const body = { value, hosts: list(options.hosts), placements: list(options.placements) };
    return fromWire(await this.#transport.request("PUT", `/v1/secrets/${encodeURIComponent(name)}`, { body }));
  }

  async list(): Promise<SecretInfo[]> {
    const data = await this.#transport.request("GET", "/v1/secrets");
    return listOf(data, "secrets").map((item) => fromWire<SecretInfo>(item));
  }

  /** Removes the secret. No sandbox can use it afterwards, and connections that used it are reset. */
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

  /** Grants more secrets. Only processes that start afterwards have the variables. */
  grant(...names: string[]): Promise<GrantedSecret[]> {
    return this.#change((had) => [...new Set([...had, ...names])]);
  }

  /** Revokes secrets at once. */
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
