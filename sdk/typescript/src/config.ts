/**
 * Which server to talk to, and with which token.
 *
 * An option wins over the environment (`SANDLING_API`, `SANDLING_TOKEN`). Without either, a server of this user's own is
 * used, and started if there is none (`local.ts`). The token in its home is sent to that server, or to another on this
 * machine, and to no one else.
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

/** An address for people, without what is secret in it. */
export function shown(url: string): string {
  const { protocol, host, pathname } = new URL(url);
  return `${protocol}//${host}${pathname.replace(/\/$/, "")}`;
}

/** Where the server keeps its state. */
export function home(): string {
  const { SANDLING_HOME, XDG_DATA_HOME } = process.env;
  if (SANDLING_HOME) return resolve(SANDLING_HOME);
  return XDG_DATA_HOME ? resolve(XDG_DATA_HOME, "sandling") : join(homedir(), ".local", "share", "sandling");
}

/** The token that a server made at its first start here. */
export function homeToken(): string | undefined {
  try {
    return readFileSync(join(home(), "token"), "utf8").trim() || undefined;
  } catch {
    return undefined;
  }
}

/** The server that somebody named; nothing if it is to be this user's own. */
export function configured(apiUrl?: string, apiKey?: string): Endpoint | undefined {
  const named = apiUrl || process.env["SANDLING_API"];
  if (!named) return undefined;
  const url = named.replace(/\/+$/, "").replace(/\/v1$/, "");
  let token = apiKey || process.env["SANDLING_TOKEN"];
  if (!token && LOOPBACK.has(new URL(url).hostname)) token = homeToken();
  if (!token) throw new ConfigError(`no token for ${shown(url)}: pass apiKey, or set SANDLING_TOKEN`);
  return { url, token };
}
