/** How a pool runs what strangers wrote, and how it went. */

import type { Wire } from "./naming.js";
import { toWire } from "./naming.js";

/** What holds where a config says nothing. */
export const DEFAULTS = { language: "python", timeoutSeconds: 30 };

/** How code is run. */
export interface ExecutionConfig {
  /** `python` unless given. */
  language?: string;
  /** 30 unless given. */
  timeoutSeconds?: number;
  /** Of each machine; the template's own if absent. */
  memoryMb?: number;
  /** Bytes a run may print. */
  outputLimit?: number;
  env?: Record<string, string>;
  /** A name or a number; root if absent. */
  user?: string;
  /**
   * Top-level modules that are welcome. Advice only: what is imported beside them is reported, not prevented, because no
   * list of names could prevent it. The virtual machine is what keeps code in.
   */
  allowedImports?: readonly string[];
}

/** One run of a pool, in a machine of its own. */
export interface RunReport {
  stdout: string;
  stderr: string;
  /** Nothing if it was ended by its deadline. */
  exitCode: number | null;
  /** `exited`, `signalled`, `timeout`, `out_of_memory` or `output_limit`. */
  reason: string;
  durationMs: number;
  sandboxId: string;
  advice: string[];
  ok: boolean;
  timedOut: boolean;
}

/** A pool at a glance. */
export interface PoolStatus {
  /** Machines that should be ready. */
  size: number;
  ready: number;
  /** Being made. */
  warming: number;
  /** Handed out and not given back. */
  busy: number;
  /** Handed out since the pool was started. */
  served: number;
  /** Why the last machine could not be made, until one could. */
  lastError: string | null;
}

/** All of it, for a record; of the environment only the names, because the values may be secrets. */
export function configRecord(config: ExecutionConfig): Wire {
  const { language = DEFAULTS.language, timeoutSeconds = DEFAULTS.timeoutSeconds, env = {}, allowedImports } = config;
  const welcome = allowedImports ? [...allowedImports].sort() : null;
  const others = { memoryMb: null, outputLimit: null, user: null, ...config };
  return toWire({ ...others, language, timeoutSeconds, env: Object.keys(env).sort(), allowedImports: welcome });
}

/** What a teacher would remark about the code, before it runs. */
export function advice(code: string, config: ExecutionConfig): string[] {
  const { allowedImports, language = DEFAULTS.language } = config;
  if (!allowedImports || !["python", "py", "python3"].includes(language)) return [];
  const unwelcome = [...importedModules(code)].filter((name) => !allowedImports.includes(name)).sort();
  return unwelcome.map((name) => `imports ${name}, which is not among the allowed modules`);
}

const IMPORT = /^[ \t]*(?:from[ \t]+(\w[\w.]*)[ \t]+import\b|import[ \t]+([\w., \t]+))/gm;

/** The top-level modules that lines of Python import by name. */
function importedModules(code: string): Set<string> {
  const named = [...code.matchAll(IMPORT)].flatMap(([, from, list]) => (from ? [from] : (list ?? "").split(",")));
  return new Set(named.map((name) => name.trim().split(/[.\s]/)[0] ?? "").filter((name) => name));
}
