/** Requests about one sandbox. */

import type { ServerEvent } from "./sse.js";
import type { RequestOptions, Transport } from "./transport.js";

export class SandboxRequests {
  readonly #path: string;

  constructor(
    readonly transport: Transport,
    readonly sandboxId: string,
  ) {
    this.#path = `/v1/sandboxes/${encodeURIComponent(sandboxId)}`;
  }

  path(rest: string): string {
    return this.#path + rest;
  }

  request(method: string, path: string, options?: RequestOptions): Promise<unknown> {
    return this.transport.request(method, this.#path + path, options);
  }

  fetch(method: string, path: string, options?: RequestOptions): Promise<Buffer> {
    return this.transport.fetch(method, this.#path + path, options);
  }

  stream(method: string, path: string, options?: RequestOptions): AsyncGenerator<Buffer, void, undefined> {
    return this.transport.stream(method, this.#path + path, options);
  }

  events(method: string, path: string, options?: RequestOptions): AsyncGenerator<ServerEvent, void, undefined> {
    return this.transport.events(method, this.#path + path, options);
  }
}
