/** Templates: what sandboxes start from. */

import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

import { type Client, getDefaultClient } from "./client.js";
import { DockerIgnore } from "./dockerignore.js";
import { ConnectionError, TemplateBuildError } from "./errors.js";
import type { TemplateBuild, TemplateInfo } from "./models.js";
import { fromWire, listOf, toWire } from "./naming.js";
import { pack } from "./tar.js";
import type { Transport } from "./transport.js";

const BUILD_WITHIN_SECONDS = 3600;

export interface BuildOptions {
  /** Debian packages. */
  packages?: string[];
  /** Packages from npm, `name` or `name@version`. Their install scripts do not run. */
  npm?: string[];
  /** Packages from PyPI, optionally with versions, like `six==1.16.0`. */
  pip?: string[];
  /** The text of a requirements file, not its path. */
  requirements?: string;
  /** The text of a Dockerfile, not its path. */
  dockerfile?: string;
  /**
   * The directory for its `COPY` and `ADD`, without what `.dockerignore` names. If there is no `dockerfile`, the file
   * `Dockerfile` in it.
   */
  context?: string;
  /** Values of the Dockerfile's `ARG`. */
  buildArgs?: Record<string, string>;
  /** The stage of the Dockerfile that becomes the template. */
  target?: string;
  /** Commands that run before the template is saved, so that they are fast in its sandboxes. */
  warm?: string[];
  /** A built-in template to start from; `base` by default. */
  base?: string;
  cpu?: number;
  memoryMb?: number;
  diskMb?: number;
}

/** Templates of the default client, or of a given one. */
export const Template = {
  list: (client: Client = getDefaultClient()): Promise<TemplateInfo[]> => client.templates.list(),

  get: (name: string, client: Client = getDefaultClient()): Promise<TemplateInfo> => client.templates.get(name),

  /** Builds a template and waits until it is done. `onLog` gets its log. */
  async build(
    name: string,
    options: BuildOptions & { onLog?: (line: string) => unknown; timeoutSeconds?: number } = {},
    client: Client = getDefaultClient(),
  ): Promise<TemplateInfo> {
    const { onLog, timeoutSeconds = BUILD_WITHIN_SECONDS, ...wanted } = options;
    const { id } = await client.templates.build(name, wanted);
    const started = Date.now();
    if (onLog) await listen(client.templates.buildLogs(id, { timeoutSeconds }), onLog);
    await ended(client.templates, id, timeoutSeconds, started);
    return client.templates.get(name);
  },
};

/** `client.templates`. */
export class Templates {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  async list(): Promise<TemplateInfo[]> {
    const data = await this.#transport.request("GET", "/v1/templates");
    return listOf(data, "items").map((item) => fromWire<TemplateInfo>(item));
  }

  async get(name: string): Promise<TemplateInfo> {
    return fromWire(await this.#transport.request("GET", `/v1/templates/${encodeURIComponent(name)}`));
  }

  async delete(name: string): Promise<void> {
    await this.#transport.request("DELETE", `/v1/templates/${encodeURIComponent(name)}`);
  }

  /** Starts to build a template: from a Dockerfile, or a built-in one with more packages. */
  async build(name: string, options: BuildOptions = {}): Promise<TemplateBuild> {
    const { base: from, packages = [], context: directory, ...more } = options;
    const dockerfile =
      more.dockerfile ?? (directory === undefined ? undefined : await readFile(join(directory, "Dockerfile"), "utf8"));
    const context = directory === undefined ? undefined : await this.#upload(directory);
    const steps = dockerfile === undefined ? {} : { dockerfile, context, replace: true };
    const body = toWire({ name, from, packages, ...more, ...steps });
    return fromWire(await this.#transport.request("POST", "/v1/templates/build", { body }));
  }

  /** Sends a directory, and returns the name under which a build finds it. */
  async #upload(directory: string): Promise<string> {
    const name = randomBytes(16).toString("hex");
    const content = pack(directory, await DockerIgnore.of(directory));
    const headers = { "content-type": "application/x-tar" };
    const path = `/v1/templates/builds/uploads/${name}`;
    await this.#transport.request("PUT", path, { content, headers, timeoutMs: null });
    return name;
  }

  async builds(): Promise<TemplateBuild[]> {
    const data = await this.#transport.request("GET", "/v1/templates/builds");
    return listOf(data, "items").map((item) => fromWire<TemplateBuild>(item));
  }

  async getBuild(id: string): Promise<TemplateBuild> {
    return fromWire(await this.#transport.request("GET", `/v1/templates/builds/${encodeURIComponent(id)}`));
  }

  /** The lines of a build's log until it is done; throws `RequestTimeout` if it takes too long. */
  async *buildLogs(id: string, options: { timeoutSeconds?: number } = {}): AsyncGenerator<string, void, undefined> {
    const path = `/v1/templates/builds/${encodeURIComponent(id)}/logs`;
    const { timeoutSeconds } = options;
    const timeoutMs = timeoutSeconds === undefined ? null : timeoutSeconds * 1000;
    for await (const event of this.#transport.events("GET", path, { query: { follow: "1" }, timeoutMs })) {
      if (event.name === "done") return;
      yield event.data;
    }
  }

  /** Waits until a build is done; throws `TemplateBuildError` if it fails or takes too long. */
  waitForBuild(id: string, options: { timeoutSeconds?: number } = {}): Promise<TemplateBuild> {
    return ended(this, id, options.timeoutSeconds ?? 1200, Date.now());
  }
}

/** Ignores errors of the log, because the build continues without it. */
async function listen(log: AsyncIterable<string>, onLog: (line: string) => unknown): Promise<void> {
  try {
    for await (const line of log) await onLog(line);
  } catch (error) {
    if (!(error instanceof ConnectionError)) throw error;
  }
}

async function ended(templates: Templates, id: string, seconds: number, started: number): Promise<TemplateBuild> {
  for (;;) {
    const build = await templates.getBuild(id);
    if (build.status === "done") return build;
    const details = { build };
    if (build.status === "failed") throw new TemplateBuildError(build.error ?? "the build failed", { details });
    if (Date.now() > started + seconds * 1000) {
      throw new TemplateBuildError(`the build is not done after ${seconds} s`, { details });
    }
    await sleep(2000);
  }
}
