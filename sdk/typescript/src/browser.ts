/** The browser of a sandbox with a desktop. */

import { setTimeout as sleep } from "node:timers/promises";

import { USER } from "./desktop.js";
import { CommandFailed } from "./errors.js";
import type { Sandbox } from "./sandbox.js";

/** The port on which Chromium speaks the DevTools protocol. */
const CDP_PORT = 9222;
/** Prints what Chromium says about itself there, or nothing if it does not run. */
const CDP_VERSION = ["curl", "--silent", "--fail", "--max-time", "10", `http://localhost:${CDP_PORT}/json/version`];
/** Starts Chromium with that port. Without a network, its own first page never opens, and Playwright waits for it. */
const CDP_START = ["chromium-devtools", "about:blank"];

/** `sandbox.browser`: Chromium, in sandboxes of the template `desktop`. */
export class Browser {
  readonly #sandbox: Sandbox;

  constructor(sandbox: Sandbox) {
    this.#sandbox = sandbox;
  }

  /**
   * A WebSocket URL that controls Chromium, for example with Playwright's `connectOverCDP`. Starts Chromium on the screen
   * if it does not run, and throws if it does not answer within `timeoutSeconds`, 300 by default. Anybody with the URL can
   * use it, for an hour by default. The URL is valid until Chromium ends.
   */
  async cdpUrl(options: { ttlSeconds?: number; timeoutSeconds?: number } = {}): Promise<string> {
    const version = (await this.#version()) || (await this.#start(options.timeoutSeconds ?? 300));
    const { pathUrl } = await this.#sandbox.preview(CDP_PORT, { ttlSeconds: options.ttlSeconds });
    return cdpUrlOf(pathUrl, version);
  }

  /** What Chromium says about itself; empty if it does not run. */
  async #version(): Promise<string> {
    return (await this.#sandbox.exec(CDP_VERSION, { user: USER })).stdout;
  }

  async #start(timeoutSeconds: number): Promise<string> {
    const deadline = Date.now() + timeoutSeconds * 1000;
    const chromium = await this.#sandbox.start(CDP_START, { user: USER });
    for (;;) {
      const version = await this.#version();
      if (version) return version;
      // It ends with 0 if another one is starting and opens a window for it.
      if ((await chromium.status()).exitCode) {
        const told = await chromium.wait();
        const message = `Chromium ended with ${told.exitCode} when it started: ${told.stderr.trim()}`;
        throw new CommandFailed(message, told.exitCode, told);
      }
      if (Date.now() > deadline) throw new Error(`Chromium did not open port ${CDP_PORT} within ${timeoutSeconds} s`);
      await sleep(500);
    }
  }
}

/** The WebSocket of a browser, below the URL of its port. The browser itself names it by a host of the sandbox. */
function cdpUrlOf(pathUrl: string, version: string): string {
  const { webSocketDebuggerUrl } = JSON.parse(version) as { webSocketDebuggerUrl: string };
  const url = new URL(pathUrl.replace(/^http/, "ws"));
  url.pathname = url.pathname.replace(/\/$/, "") + new URL(webSocketDebuggerUrl).pathname;
  return url.toString();
}
