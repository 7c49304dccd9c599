/**
 * Which server to talk to, and with which token.
 *
 * An option overrides the environment (`SANDLING_API`, `SANDLING_TOKEN`). Without either, the client uses the local
 * server and starts it if necessary (`local.ts`). The token in the home is sent only to that server, or to another
 * server on this machine.
 */

import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join, resolve } from "node:path";

import { ConfigError } from "./errors.js";

/** Where a server is, and the token for it. */
export interface Endpoint {
  url: string;
  token: string;
}

const LOOPBACK = new Set(["localhost", "127.0.0.1", "[::1]"]);

/** The URL without its password, for messages. */
export function shown(url: string): string {
  const { protocol, host, pathname } = new URL(url);
  return `${protocol}//${host}${pathname.replace(/\/$/, "")}`;
}

/** The directory where the server keeps its state. */
export function home(): string {
  const { SANDLING_HOME, XDG_DATA_HOME } = process.env;
  if (SANDLING_HOME) return resolve(SANDLING_HOME);
  return XDG_DATA_HOME ? resolve(XDG_DATA_HOME, "sandling") : join(homedir(), ".local", "share", "sandling");
}

/** The token that the local server created at its first start. */
export function homeToken(): string | undefined {
  try {
    return readFileSync(join(home(), "token"), "utf8").trim() || undefined;
  } catch {
    return undefined;
  }
}

/** The server that an argument or the environment names; `undefined` for the local server. */
export function configured(apiUrl?: string, apiKey?: string): Endpoint | undefined {
  const named = apiUrl || process.env["SANDLING_API"];
  if (!named) return undefined;
  const url = named.replace(/\/+$/, "").replace(/\/v1$/, "");
  let token = apiKey || process.env["SANDLING_TOKEN"];
  if (!token && LOOPBACK.has(new URL(url).hostname)) token = homeToken();
  if (!token) throw new ConfigError(`no token for ${shown(url)}: pass apiKey, or set SANDLING_TOKEN`);
  return { url, token };
}
